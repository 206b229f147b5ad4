"""What a page or a pane says while it has nothing to show: what it is for, and what to do first."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from textual.message_pump import MessagePump

from tfckpt_trainer.words.advice import Advice, CommandOrKey
from tfckpt_tui.app.protocols import copy_text, words_of
from tfckpt_tui.app.widgets.base.list_pane import TextPane
from tfckpt_tui.app.widgets.base.styled_text import StyledLine, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean

_MARGIN = 3
"""Least cells for the key of an offer and the blanks after it."""

LAUNCH = Advice.of("Press {launch} to launch training here.", launch=CommandOrKey("launch"))

LINES = Advice.of(
    "Press {worker} to see the lines that the script needs.", worker=CommandOrKey("worker")
)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An example for this run.

    Attributes:
        text: A rule, a command, or lines to paste.
        told: What follows from it, or where it belongs, as sentences.
        style: Name of the style of `told`.
        key: The key that takes it; empty if none does.
        label: What the key does, in a few words.
        take: Is called when the key is pressed; None if the key is that of an advised action.
    """

    text: str
    told: str = ""
    style: str = "value"
    key: str = ""
    label: str = ""
    take: Callable[[], None] | None = None

    def lines(self, width: int) -> Iterator[StyledLine]:
        """Yields its lines, at most `width` cells wide."""
        margin = max(_MARGIN, len(self.key) + 2)
        room = max(1, width - margin)
        shown = [(part, "strong") for one in self.text.splitlines() for part in wrapped(one, room)]
        shown += [(part, self.style) for part in wrapped(self.told, room)]
        for place, span in enumerate(shown):
            yield line((f"{self.key if place == 0 else '':<{margin}}", "key"), span)


def to_paste(node: MessagePump, text: str, told: str = "") -> Offer:
    """Returns an offer whose text the key `y` copies.

    Args:
        node: The screen that shows it.
        text: A command, or lines of a file.
        told: Where it belongs, as sentences.
    """
    what = units.count(len(text.splitlines()), "line")
    return Offer(
        text=text, told=told, key="y", label="copy", take=partial(copy_text, node, text, what)
    )


def manager_line(path: str) -> str:
    """Returns the line of a script without this library that saves checkpoints in a directory."""
    return f"tf.train.CheckpointManager(checkpoint, {clean(path)!r}, max_to_keep=5)"


MANAGER = "In a script without tfckpt_trainer: its checkpoints appear here too."
"""Where that line belongs."""


class EmptyPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says while it has nothing to show.

    Attributes:
        purpose: That it is empty, and what it is for.
        advice: What to do, or why nothing can be done now. Keys that it names work on the page.
        offers: Examples for this run.
        keeps: The page's own actions that do something on an empty page.
    """

    purpose: str
    advice: tuple[str | Advice, ...] = ()
    offers: tuple[Offer, ...] = ()
    keeps: tuple[str, ...] = ()

    def lines(self, width: int, node: MessagePump) -> list[StyledLine]:
        """Returns its lines.

        Args:
            width: The most cells of a line.
            node: The screen or the widget that shows them.
        """
        shown = [line((part, "muted")) for part in wrapped(self.purpose, width)]
        for one in self.advice:
            shown += [line((part, "value")) for part in wrapped(words_of(node, one), width)]
        for offer in self.offers:
            shown += [StyledLine(), *offer.lines(width)]
        return shown

    @property
    def taken(self) -> Sequence[Offer]:
        """The offers that a key of the page takes."""
        return [offer for offer in self.offers if offer.key and offer.take is not None]

    @property
    def actions(self) -> Sequence[str]:
        """The actions of the dashboard whose keys its advice names."""
        return [name for one in self.advice if isinstance(one, Advice) for name in one.app_actions]


class EmptyPane(TextPane):
    """Takes the place of all other panes of a page that has nothing to show."""

    def __init__(self, title: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title = ((title, "title"),)
        self._shown: EmptyPage | None = None

    def show_empty(self, shown: EmptyPage | None) -> None:
        """Shows what the page says; None if it has something else to show."""
        if shown != self._shown:
            self._shown = shown
            self._wrap()

    def on_resize(self) -> None:
        """Wraps the texts to the new width."""
        self._wrap()

    def _wrap(self) -> None:
        shown = self._shown
        lines = shown.lines(self.inner_size[0], self) if shown is not None else ()
        self.show_lines(lines, self._title)


def wrapped(text: str, width: int) -> list[str]:
    """Returns the lines of a text, cleaned; names and options are not cut at their hyphens."""
    return textwrap.wrap(clean(text), max(1, width), break_on_hyphens=False)
