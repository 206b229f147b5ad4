"""The footer: the available keys, most useful first, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from textual import events
from textual.binding import Binding
from textual.keys import format_key
from textual.message import Message

from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine
from tfckpt_tui.formats import units

_GAP = "  "
_SPINNER = "◐◓◑◒"


LAST_KEYS = frozenset({"help", "back", "leave"})
"""Actions whose keys come last, in the footer and in the help."""


class KeyHint(msgspec.Struct, frozen=True):
    """One key of the footer.

    Attributes:
        action: Action that a click starts.
        key: The key as the keyboard shows it.
        label: What it does, in one or two words.
        is_last: Whether it is at the right end, and is always shown.
    """

    action: str
    key: str
    label: str
    is_last: bool = False


class KeyBar(Pane):
    """One line of keys, which can be clicked."""

    boxed = False

    class Chosen(Message):
        """A key was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._hints: tuple[KeyHint, ...] = ()
        self._places: list[tuple[int, int, str]] = []
        self._silent_seconds = 0

    def show_silence(self, seconds: int) -> None:
        """Shows how long the run directory has not answered, in seconds; 0 hides the message."""
        if seconds != self._silent_seconds:
            self._silent_seconds = seconds
            self.repaint()

    def show_hints(self, hints: Sequence[KeyHint]) -> None:
        """Replaces the keys."""
        if tuple(hints) != self._hints:
            self._hints = tuple(hints)
            self.repaint()

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the line, and stores the position of each key for clicks."""
        del height
        self._places = []
        right: list[Span] = []
        for hint in (h for h in self._hints if h.is_last):
            right += [(_GAP, ""), *_spans(hint)]
        room = width - StyledLine(tuple(right)).width
        left: list[Span] = self._silence()
        column = StyledLine(tuple(left)).width
        for hint in (h for h in self._hints if not h.is_last):
            spans = _spans(hint)
            size = StyledLine(spans).width
            gap = len(_GAP) if left else 0
            if column + gap + size > room:
                continue
            left += [(_GAP, "")] * bool(left) + list(spans)
            self._places.append((column + gap, column + gap + size, hint.action))
            column += gap + size
        place = width - StyledLine(tuple(right)).width
        for hint in (h for h in self._hints if h.is_last):
            size = len(_GAP) + StyledLine(_spans(hint)).width
            self._places.append((place + len(_GAP), place + size, hint.action))
            place += size
        return [StyledLine((*left, (" " * (room - column), ""), *right))]

    def _silence(self) -> list[Span]:
        if not self._silent_seconds:
            return []
        spinner = _SPINNER[self._silent_seconds % len(_SPINNER)]
        words = f"the disk has not answered for {units.age(self._silent_seconds)}"
        return [(f"{spinner} {words}; the screen is not up to date", "warn")]

    def on_click(self, event: events.Click) -> None:
        """Starts the action of the key under the mouse."""
        column = event.x - self.inner_offset[0]
        for start, end, action in self._places:
            if start <= column < end:
                self.post_message(self.Chosen(action))


def key_name(binding: Binding) -> str:
    """Returns the name of the key on the keyboard; the first of several."""
    return binding.key_display or format_key(binding.key.partition(",")[0])


def _spans(hint: KeyHint) -> tuple[Span, ...]:
    return (hint.key, "key"), (f" {hint.label}", "label")
