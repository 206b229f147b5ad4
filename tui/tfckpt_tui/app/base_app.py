"""The base of all apps: themes, safe text, signals, and crashes without a traceback."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import threading
import traceback
import unicodedata
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.cells import cell_len
from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import screen as textual_screen
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, Key, Paste, Resize
from textual.filter import LineFilter
from textual.notifications import Notification, Notify
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tfckpt_tui.app.contrast import with_contrast
from tfckpt_tui.app.terminal.driver import TerminalDriver
from tfckpt_tui.app.terminal.key_turns import KeyTurns
from tfckpt_tui.app.terminal.plain_text import plain_text_filter
from tfckpt_tui.app.terminal.requests import copied_in_words, give_to_tmux, notification
from tfckpt_tui.app.themes import ANSI_THEMES, THEMES, defaults_for, themes_with
from tfckpt_tui.formats.text import UNSAFE, clean_message
from tfckpt_tui.settings.config import Config

if TYPE_CHECKING:
    from tfckpt_tui.app.crash import Crash

ResultT = TypeVar("ResultT")

NOT_NOW = "Not now: "
"""Begins the title of a toast that says why an action is unavailable."""

_NO_KEY = ","
"""Textual takes an empty text for the default key, and this for a list of no keys."""

_FRAME_SECONDS = 0.1
"""How long a key may take until its frame has reached the terminal."""

_PACKAGES = ("tfckpt_tui.", "tfckpt_trainer.")
_SIGNALS = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU),
)
"""Signals that end a process unless it handles them."""

_OTHER_LAYOUT = "The keys are Latin letters. Switch the layout of the keyboard."
_NO_COLOR = os.environ.get("NO_COLOR", "")
_PLAIN = Style()
_UNSAFE = re.compile(UNSAFE)

if "TEXTUAL_FPS" not in os.environ:
    # The next frame comes one or two periods after a frame: with Textual's 60 a second, up to 33 ms
    # after a key. Programs that the app starts would inherit the environment variable.
    textual_screen.UPDATE_PERIOD = 1 / 120  # type: ignore[misc]


class UnsafeTextFilter(LineFilter):
    """Replaces control characters that were not removed by `clean`, as a second line of defence."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the segments without characters that a terminal would interpret.

        Each segment gets a style: Textual's filter for terminals without colours needs one.
        """
        del background
        if all(map(attrgetter("style"), segments)) and not _UNSAFE.search(
            "".join([segment.text for segment in segments])
        ):
            return segments
        return [
            Segment(_UNSAFE.sub(_replacement, segment.text), segment.style or _PLAIN)
            if segment.control is None
            else segment
            for segment in segments
        ]


class BaseApp(App[ResultT]):
    """An app with our themes that restores the terminal, whatever ends it.

    Attributes:
        config: The configuration of the user.
        crash: The error that ended the app, if any.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, system=True),
    ]
    CSS_PATH = "app.tcss"
    TITLE = "tfckpt-tui"

    def __init__(self, config: Config) -> None:
        """Makes the app.

        Raises:
            UsageError: The chosen theme does not exist, or one of the user is invalid.
        """
        _restore_no_color()
        super().__init__()
        self.config = config
        self.crash: Crash | None = None
        self._earlier_hook = threading.excepthook
        self._key_turns = KeyTurns(self, self._handle_key)
        self._unsafe_text_filter = UnsafeTextFilter()
        self._plain_text_filter = plain_text_filter()
        for name in ANSI_THEMES:
            self.unregister_theme(name)
        for theme in themes_with(config):
            self.register_theme(theme)
        # Without the watcher of the theme, which would have Textual parse all styles a second time.
        self.set_reactive(App.theme, config.app.theme)
        self.stylesheet.set_variables(self.get_css_variables())
        self._refresh_truecolor_filter(self.ansi_theme)
        self.set_keymap({name: keys or _NO_KEY for name, keys in config.keys.items()})

    def get_line_filters(self) -> list[LineFilter]:
        """Returns our filter, followed by those of Textual."""
        plain = [self._plain_text_filter] if self._plain_text_filter is not None else []
        return [self._unsafe_text_filter, *super().get_line_filters(), *plain]

    async def on_event(self, event: Event) -> None:
        """Handles an event; keys one after another, each once the screen before it is open."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            self._postpone_collection()
            await self._key_turns.take(event)
        else:
            await super().on_event(event)
        if isinstance(event, Resize) and isinstance(self._driver, TerminalDriver):
            self._driver.redraw_after(event)

    async def _handle_key(self, event: Event) -> None:
        """Handles a key whose turn has come; says why a letter of another alphabet does nothing."""
        if isinstance(event, Key) and self._is_of_other_layout(event):
            self.notify(_OTHER_LAYOUT, severity="warning", markup=False)
        await super().on_event(event)

    def _is_of_other_layout(self, key: Key) -> bool:
        letter = key.character or ""
        if letter.isascii() or not letter.isalpha() or isinstance(self.focused, Input):
            return False
        is_latin = unicodedata.name(letter[0], "").startswith("LATIN")
        return not is_latin and key.key not in self.screen.active_bindings

    def _postpone_collection(self) -> None:
        """Has garbage collected after the frame of a key, which would be late by up to 0.1 s."""
        if gc.isenabled():
            gc.disable()
            asyncio.get_running_loop().call_later(_FRAME_SECONDS, gc.enable)

    def on_unmount(self) -> None:
        """Has garbage collected, and defects in threads handled, as before the app."""
        gc.enable()
        threading.excepthook = self._earlier_hook

    def set_timer(self, *arguments: Any, **options: Any) -> Timer:
        """Starts a timer that ends once, however late.

        Textual drops it if the process does not run for that time while it starts. After the timer
        of a resize was dropped, the app follows no size any more.
        """
        timer = super().set_timer(*arguments, **options)
        timer._skip = False
        return timer

    def push_screen(self, *arguments: Any, **options: Any) -> Any:
        """Opens a screen, without the toasts of the screen below."""
        # Later: a toast of an earlier key may still be in the queue.
        self.call_later(self.clear_notifications)
        return super().push_screen(*arguments, **options)

    def on_notify(self, event: Notify) -> None:
        """Removes the toasts that a new one replaces, before Textual adds it."""
        for shown in list(self._notifications):
            if _replaces(event.notification, shown):
                self._unnotify(shown)

    def notify_terminal(self, text: str) -> None:
        """Has the terminal notify the user, in the way that is configured."""
        sent = notification(self.config.app.notify, text, os.environ)
        if sent and not self.is_headless and self._driver is not None:
            self._driver.write(sent)

    def copy_to_clipboard(self, text: str) -> None:
        """Copies a text by the terminal, and by tmux if the app runs in it."""
        # Bytes of a file name that are not UTF-8 cannot be sent.
        text = text.encode("utf-8", "replace").decode()
        super().copy_to_clipboard(text)
        self._tmux_took = not self.is_headless and give_to_tmux(text, os.environ)

    def copy(self, text: str, what: str) -> None:
        """Copies a text, and says so as far as it is known.

        Args:
            text: The text.
            what: What it is, such as `3 lines`.
        """
        self.copy_to_clipboard(text)
        told = copied_in_words(what, os.environ, by_tmux=self._tmux_took)
        self.notify(clean_message(told), markup=False)

    def remove_toast(self, message: str) -> None:
        """Removes the toast with this message, if it is still shown."""
        for shown in list(self._notifications):
            if shown.message == message:
                self._unnotify(shown)

    def get_driver_class(self) -> type[Driver]:
        """Returns a driver that ends the app when its terminal is closed."""
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Returns defaults of our colours, for themes that do not define them."""
        return defaults_for(dark=self.current_theme.dark)

    def get_css_variables(self) -> dict[str, str]:
        """Returns the colours; other themes than ours get readable ones where they have others."""
        variables = super().get_css_variables()
        variables["button"] = variables["panel"]
        if self.current_theme not in THEMES:
            variables = with_contrast(variables)
        self.theme_variables = variables
        return variables

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(self._driver, TerminalDriver):
            renderable = self._driver.changed_cells(renderable)
        super()._display(screen, renderable)

    def on_mount(self) -> None:
        """Restores the terminal when a signal ends the app; notices defects in other threads."""
        self._earlier_hook, threading.excepthook = threading.excepthook, self._end_thread
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # By default the signal kills the process and leaves the terminal in raw mode.
            leave: Callable[[], None] = partial(self.exit, return_code=128 + number)
            loop.add_signal_handler(number, leave)

    def _end_thread(self, ended: threading.ExceptHookArgs) -> None:
        """Ends the app by an error of its code in a thread; others are those of libraries."""
        is_own = any(
            str(frame.f_globals.get("__name__")).startswith(_PACKAGES)
            for frame, _ in traceback.walk_tb(ended.exc_traceback)
        )
        error = ended.exc_value
        is_defect = is_own and isinstance(error, Exception)
        if not (is_defect and self.call_later(self._handle_exception, error)):
            self._earlier_hook(ended)

    def _handle_exception(self, error: Exception) -> None:
        # Screens of an app that quits have no widgets any more, or none yet, and fail for want of
        # them. Nobody can act on these errors: the app is leaving, whatever they are.
        if not self._exit:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual prints a traceback with the values of all variables.
        from tfckpt_tui.app.crash import report_crash

        assert self._exception is not None
        self.crash = self.crash or report_crash(self._exception)
        self._close_messages_no_wait()


def _replaces(new: Notification, shown: Notification) -> bool:
    """Whether a toast says the same as one that is shown, or also why an action is unavailable."""
    if new.title.startswith(NOT_NOW) and shown.title.startswith(NOT_NOW):
        return True
    return (new.title, new.message) == (shown.title, shown.message)


def _restore_no_color() -> None:
    """Restores `NO_COLOR` in the environment, unless it is empty.

    Textual removes it for its first app, and treats an empty one as set. By https://no-color.org
    it counts only if it is not empty.
    """
    if _NO_COLOR:
        os.environ["NO_COLOR"] = _NO_COLOR
    else:
        os.environ.pop("NO_COLOR", None)


def _replacement(match: Any) -> str:
    return "\ufffd" * cell_len(match[0])
