"""What all our apps share: colours, harmless text, signals, and an end without a traceback."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.app.themes import defaults_for, themes_with
from tfckpt_tui.formats.text import UNSAFE
from tfckpt_tui.settings.config import Config

if TYPE_CHECKING:
    from tfckpt_tui.app.crash_report import Crash

ResultT = TypeVar("ResultT")

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_NO_COLOR = os.environ.get("NO_COLOR", "")
_PLAIN = Style()


class Neutralise(LineFilter):
    """The second line of defence: whatever came past `clean` is made harmless on its way out."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the segments without a character that a terminal would act on.

        Each has a style: Textual's filter for terminals without colours fails on one that has
        none.
        """
        del background
        return [
            Segment(UNSAFE.sub(_harmless, segment.text), segment.style or _PLAIN)
            if segment.control is None
            else segment
            for segment in segments
        ]


class BaseApp(App[ResultT]):
    """An app in our colours that leaves the terminal as it was, whatever ends it.

    Attributes:
        config: What the person set for all runs.
        crash: The error that ended it, if one did.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, system=True),
    ]
    CSS_PATH = "app.tcss"
    TITLE = "tfckpt-tui"

    def __init__(self, config: Config) -> None:
        """Makes the app.

        Raises:
            UsageError: The theme of the configuration is none.
        """
        _say_whether_colours()
        super().__init__()
        self.config = config
        self.crash: Crash | None = None
        self._neutralise = Neutralise()
        for theme in themes_with(config.themes):
            self.register_theme(theme)
        self.theme = self._wanted_theme()

    def get_line_filters(self) -> list[LineFilter]:
        """Returns ours, and Textual's behind it."""
        return [self._neutralise, *super().get_line_filters()]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Returns our colours for themes that were made without them."""
        theme = BUILTIN_THEMES.get(self.theme)
        return defaults_for(dark=theme is None or theme.dark)

    def on_mount(self) -> None:
        """Makes sure that a signal leaves the terminal as it was."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # By default these kill the process with the terminal in raw mode.
            leave: Callable[[], None] = partial(self.exit, return_code=128 + number)
            loop.add_signal_handler(number, leave)

    def _wanted_theme(self) -> str:
        """Returns the theme of the configuration.

        Raises:
            UsageError: There is no such theme.
        """
        wanted = self.config.app.theme
        if wanted not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            raise UsageError(f"There is no theme {wanted!r}; choose one of {known}.")
        return wanted

    def _fatal_error(self) -> None:
        # Textual would print a traceback with the values of all variables.
        from tfckpt_tui.app.crash_report import take_down

        assert self._exception is not None
        self.crash = self.crash or take_down(self._exception)
        self._close_messages_no_wait()


def _say_whether_colours() -> None:
    """Puts `NO_COLOR` back: Textual takes it out for its first app, and takes an empty one for set.

    See https://no-color.org: it counts when it is not empty.
    """
    if _NO_COLOR:
        os.environ["NO_COLOR"] = _NO_COLOR
    else:
        os.environ.pop("NO_COLOR", None)


def _harmless(match: Any) -> str:
    return "\ufffd" * cell_len(match[0])
