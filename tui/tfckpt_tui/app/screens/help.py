"""The help: keys, states and colours."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.widgets import Static

from tfckpt_tui.app.protocols import ActionInfo
from tfckpt_tui.app.widgets.base.icons import (
    CHECKPOINT,
    COMMAND,
    EVENT_ICONS,
    PIN,
    RUN,
    WORKER,
    Icon,
)
from tfckpt_tui.app.widgets.base.keybar import LAST_KEYS, key_name
from tfckpt_tui.app.widgets.base.modal import Modal
from tfckpt_tui.app.widgets.base.search_input import SearchInput, search_binding
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content, padded
from tfckpt_tui.app.widgets.run.progress import progress_below
from tfckpt_tui.settings.config import Config

_StateT = TypeVar("_StateT", bound=StrEnum)
_Lines = list[tuple[Span, ...]]

_SIGN_WIDTH = 10
_LABEL_WIDTH = 12
_HELP_WIDTH = 45
_LEAST_WIDTH = 10
_FRAME_WIDTH = 8
"""Border, padding and scroll bar of the page, and its distance from the edges."""

_MOVING = (
    ("up", "↑ ↓", "move"),
    ("home", "home end", "to the first and the last row"),
)
"""Keys that move: as Textual names them, as the help does, and what they do."""

_MOVING_THERE = (
    ("tab", "tab", "next pane: history, workers, events"),
    ("escape", "esc", "dismiss failures, clear the filter, unmark all"),
    ("ctrl+p", "ctrl+p", "palette: what each action does; checkpoints, steps, themes"),
)

_TREE = (
    ("◉", "accent", "the checkpoint that a cold start continues from"),
    ("●", "accent", "an ancestor of the current state"),
    ("○", "muted", "abandoned by a restore; can still be restored"),
    ("◇", "muted", "made from other checkpoints by average or edit"),
    ("├─╯", "accent", "a branch starts here: training was restored from this checkpoint"),
    (PIN, "pin", "pinned: never pruned"),
)

_CHART = (
    ("◆", "good", "on the axis: a checkpoint of this step"),
    ("↩", "accent", "a restore of this step"),
    ("↻", "busy", "a restart of the workers"),
    ("✗", "bad", "not a number"),
    ("▲ ▼", "warn", "a few values beyond the edge are cut off; the farthest of them"),
)


class HelpScreen(Modal[None]):
    """The help of one screen, on a page that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", show=False),
        Binding("q,question_mark,f1", "dismiss", "Close", show=False),
        search_binding("search", "Shows the lines that contain a text."),
    ]

    def __init__(self, lines: Sequence[tuple[Span, ...]]) -> None:
        """Makes the page.

        Args:
            lines: What it shows.
        """
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Makes the page."""
        with VerticalScroll(id="help") as page:
            page.border_title = Content(" help ")
            page.border_subtitle = Content(" ↑ ↓ scroll · / search · esc close ")
            yield Static(lines_to_content(self._lines), id="help-text")
            yield SearchInput("a key, or what it does", focus_after="#help")
        yield from progress_below(self)

    def on_mount(self) -> None:
        """Focuses the page, so that the arrows scroll."""
        self.query_one("#help").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Passes the key of the search to the search line while that has the focus."""
        if action == "search" and isinstance(self.focused, SearchInput):
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Opens the search line."""
        self.query_one(SearchInput).open()

    def action_back(self) -> None:
        """Ends the search, or closes the help."""
        if not self.query_one(SearchInput).leave():
            self.dismiss()

    @on(SearchInput.Searched)
    def _show_matching(self, event: SearchInput.Searched) -> None:
        lines = matching_lines(self._lines, event.text) if event.text else self._lines
        self.query_one("#help-text", Static).update(lines_to_content(lines))


def matching_lines(lines: Sequence[tuple[Span, ...]], text: str) -> _Lines:
    """Returns the entries of a help that contain a text, with the titles above them."""
    matches: _Lines = []
    title: _Lines = []
    for entry in _entries(lines):
        words = " ".join(" ".join(part for part, _ in line) for line in entry)
        if entry[0][0][1] == "title":
            title = [(), entry[0]] if matches else [entry[0]]
        elif text.lower() in " ".join(words.lower().split()):
            matches += [*title, *entry]
            title = []
    return matches or [((f"Nothing contains {text}.", "muted"),)]


def _entries(lines: Sequence[tuple[Span, ...]]) -> list[_Lines]:
    """Returns the lines of each entry; those after the first one begin with a blank text."""
    entries: list[_Lines] = []
    for line in lines:
        if line and len(line[0][0]) > _SIGN_WIDTH and not line[0][0].strip():
            entries[-1].append(line)
        elif line:
            entries.append([line])
    return entries


def help_of_keys(
    caption: str, bindings: Sequence[Binding], keys: Collection[str], width: int
) -> _Lines:
    """Returns the help of one screen.

    Args:
        caption: The subject of the screen.
        bindings: Its keys.
        keys: All keys that do something there now, as Textual names them.
        width: Of the terminal in cells.
    """
    lines: _Lines = [((f"Keys of {caption}", "title"),)]
    for binding in sorted(bindings, key=lambda binding: binding.action in LAST_KEYS):
        lines += _explained(key_name(binding), binding.description, binding.tooltip, width)
    named = {key for binding in bindings for key in binding.key.split(",")}
    lines += [
        _row(shown, "key", text) for key, shown, text in _MOVING if key in keys and key not in named
    ]
    return lines


def help_of_actions(config: Config, actions: Sequence[ActionInfo]) -> _Lines:
    """Returns the help of the dashboard: its keys, and what its signs mean.

    Args:
        config: Has the keys that the user chose.
        actions: The actions that are available there now.
    """
    lines: _Lines = [(("Keys of the dashboard", "title"),)]
    for action in actions:
        key = action.key_in(config)
        if key:
            lines.append(_row(format_key(key), "key", action.title))
    lines += [_row(shown, "key", text) for _, shown, text in (*_MOVING, *_MOVING_THERE)]
    lines += [(), (("History", "title"),)]
    lines += [_row(glyph, style, text) for glyph, style, text in _TREE]
    lines += [(), (("Charts", "title"),)]
    lines += [_row(glyph, style, text) for glyph, style, text in _CHART]
    lines += _states("States of the run", RUN)
    lines += _states("States of a worker", WORKER)
    lines += _states(
        "States of a checkpoint; only complete and verified can be restored", CHECKPOINT
    )
    lines += _states("States of a command", COMMAND)
    lines += _states("Events", EVENT_ICONS)
    return lines


def _explained(key: str, label: str, meaning: str, width: int) -> _Lines:
    """Returns a key with what it does; the lines after the first one are indented."""
    before = _SIGN_WIDTH + _LABEL_WIDTH + 4
    room = max(_LEAST_WIDTH, min(_HELP_WIDTH, width - before - _FRAME_WIDTH))
    first, *rest = textwrap.wrap(meaning, room) or [""]
    indent = " " * before
    return [
        (
            ("  ", ""),
            (padded(key, _SIGN_WIDTH), "key"),
            (" ", ""),
            (padded(label, _LABEL_WIDTH), "value"),
            (" ", ""),
            (first, "muted"),
        ),
        *(((indent, ""), (text, "muted")) for text in rest),
    ]


def _row(sign: str, style: str, text: str) -> tuple[Span, ...]:
    return (("  ", ""), (padded(sign, _SIGN_WIDTH), style), (" ", ""), (text, "value"))


def _states(title: str, signs: Mapping[_StateT, Icon]) -> _Lines:
    lines: _Lines = [(), ((title, "title"),)]
    for state, sign in signs.items():
        lines.append(
            (
                ("  ", ""),
                (f"{sign.glyph} ", sign.style),
                (padded(state.value, 12), sign.style),
                (sign.meaning, "value"),
            )
        )
    return lines
