"""The notification that a terminal shows on its desktop: which kind it knows, and its bytes."""

from __future__ import annotations

from collections.abc import Mapping

from tfckpt_tui.formats.text import clean_message, cut
from tfckpt_tui.settings.config import Notify

_LONGEST = 200
"""Cells of the text; longer ones are cut by the desktop in any case."""

_TITLE = "tfckpt-tui"

_KNOWN = (
    ("TERM", "xterm-kitty", Notify.OSC99),
    ("TERM", "xterm-ghostty", Notify.OSC777),
    ("TERM", "foot", Notify.OSC777),
    ("TERM_PROGRAM", "ghostty", Notify.OSC777),
    ("TERM_PROGRAM", "WezTerm", Notify.OSC777),
    ("TERM_PROGRAM", "iTerm.app", Notify.OSC9),
    ("LC_TERMINAL", "iTerm2", Notify.OSC9),
    ("KITTY_WINDOW_ID", "", Notify.OSC99),
    ("GHOSTTY_RESOURCES_DIR", "", Notify.OSC777),
    ("WEZTERM_PANE", "", Notify.OSC777),
    ("ITERM_SESSION_ID", "", Notify.OSC9),
)
"""Variables of terminals with the beginning of their value; the last ones remain within tmux."""


def find_notification(environment: Mapping[str, str]) -> Notify:
    """Returns the kind of notification that the terminal shows; `off` if that is not known."""
    for variable, value, kind in _KNOWN:
        if variable in environment and environment[variable].startswith(value):
            return kind
    return Notify.OFF


def notification(kind: Notify, text: str, environment: Mapping[str, str]) -> str:
    """Returns what a terminal has to be sent for a notification; empty for none.

    Args:
        kind: The kind, or `auto`.
        text: What the notification says.
        environment: The variables of this process, which tell the terminal.
    """
    kind = find_notification(environment) if kind is Notify.AUTO else kind
    # A semicolon would begin the next field.
    said = cut(clean_message(text).replace(";", ","), _LONGEST)
    commands = {
        Notify.OSC9: [f"9;{_TITLE}: {said}"],
        Notify.OSC777: [f"777;notify;{_TITLE};{said}"],
        Notify.OSC99: [f"99;i=tfckpt:d=0:p=title;{_TITLE}", f"99;i=tfckpt:d=1:p=body;{said}"],
    }
    sent = "".join(f"\x1b]{command}\x1b\\" for command in commands.get(kind, []))
    if sent and "TMUX" in environment:
        # Passed to the terminal outside, if tmux allows that.
        escaped = sent.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{escaped}\x1b\\"
    return sent
