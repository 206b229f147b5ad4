"""The help: keys, states and colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.screen import ModalScreen
from textual.widgets import Static

from tfckpt_tui.app.actions.action import Action
from tfckpt_tui.app.screens.page import key_of
from tfckpt_tui.app.widgets.base.icons import CHECKPOINT, COMMAND, JOURNAL, PIN, RUN, WORKER, Icon
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content, padded
from tfckpt_tui.settings.config import Config

_StateT = TypeVar("_StateT", bound=StrEnum)
_Lines = list[tuple[Span, ...]]

_SIGN_WIDTH = 10
_HELP_WIDTH = 60

_MOVING = (
    ("↑ ↓ k j", "move in the focused pane"),
    ("home end", "first and last row; page up and page down work too"),
    ("tab", "next pane: history, workers, events"),
    ("esc", "close a dialog, or dismiss failures"),
    ("ctrl+p", "palette: search actions, checkpoints and themes"),
)

_TREE = (
    ("◉", "accent", "the checkpoint that a cold start continues from"),
    ("●", "accent", "an ancestor of the current state"),
    ("○", "muted", "abandoned by a restore; can still be restored"),
    ("├─╯", "accent", "a branch starts here: training was restored from this checkpoint"),
    (PIN, "pin", "pinned: never pruned"),
)

_CHART = (
    ("◆", "good", "on the axis: a checkpoint of this step"),
    ("↩", "accent", "a restore of this step"),
    ("↻", "busy", "a restart of the workers"),
    ("✗", "bad", "not a number"),
)


class HelpScreen(ModalScreen[None]):
    """Keys, states and colours on one page that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", show=False),
    ]

    def __init__(
        self,
        config: Config,
        actions: Sequence[Action],
        caption: str = "",
        bindings: Sequence[Binding] = (),
    ) -> None:
        """Makes the page.

        Args:
            config: Has the keys that the user chose.
            actions: The actions of the dashboard.
            caption: The subject of the screen that opens the help; empty for the dashboard.
            bindings: The keys of that screen.
        """
        super().__init__()
        self._actions = actions
        self._config = config
        self._caption = caption
        self._bindings_here = bindings

    def compose(self) -> ComposeResult:
        """Makes the page."""
        with VerticalScroll(id="help") as page:
            page.border_title = Content(" help ")
            page.border_subtitle = Content(" ↑ ↓ scroll · esc close ")
            here = _keys_here(self._caption, self._bindings_here) if self._caption else []
            yield Static(lines_to_content([*here, *_page(self._config, self._actions)]))

    def on_mount(self) -> None:
        """Focuses the page, so that the arrows scroll."""
        self.query_one("#help").focus()


def _keys_here(caption: str, bindings: Sequence[Binding]) -> _Lines:
    lines: _Lines = [((f"Keys of {caption}", "title"),)]
    for binding in bindings:
        lines += _explained(key_of(binding), binding.description, binding.tooltip)
    return [*lines, ()]


def _page(config: Config, actions: Sequence[Action]) -> _Lines:
    lines: _Lines = [(("Keys of the dashboard", "title"),)]
    for action in actions:
        key = action.key_in(config)
        lines += _explained(format_key(key) if key else "", action.title, action.help)
    lines += [(), (("Keys of every screen", "title"),)]
    lines += [_row(key, "key", text) for key, text in _MOVING]
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
    lines += _states("Events", JOURNAL)
    return lines


def _explained(key: str, title: str, meaning: str) -> _Lines:
    wrapped = textwrap.wrap(meaning, _HELP_WIDTH)
    return [
        (("  ", ""), (padded(key, _SIGN_WIDTH), "key"), (" ", ""), (title, "value")),
        *((((" " * (_SIGN_WIDTH + 3)), ""), (text, "muted")) for text in wrapped),
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
