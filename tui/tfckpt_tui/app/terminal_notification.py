"""The notification that a terminal shows on its desktop: which kind it knows, and its bytes."""

from __future__ import annotations

from collections.abc import Mapping

from tfckpt_tui.formats.text import clean_message, cut
from tfckpt_tui.settings.config import NotifySequence

_LONGEST = 200
"""Cells of the text; longer ones are cut by the desktop in any case."""

_TITLE = "tfckpt-tui"

_KNOWN = (
    ("TERM", "xterm-kitty", NotifySequence.OSC99),
    ("TERM", "xterm-ghostty", NotifySequence.OSC777),
    ("TERM", "foot", NotifySequence.OSC777),
    ("TERM_PROGRAM", "ghostty", NotifySequence.OSC777),
    ("TERM_PROGRAM", "WezTerm", NotifySequence.OSC777),
    ("TERM_PROGRAM", "iTerm.app", NotifySequence.OSC9),
    ("LC_TERMINAL", "iTerm2", NotifySequence.OSC9),
    ("KITTY_WINDOW_ID", "", NotifySequence.OSC99),
    ("GHOSTTY_RESOURCES_DIR", "", NotifySequence.OSC777),
    ("WEZTERM_PANE", "", NotifySequence.OSC777),
    ("ITERM_SESSION_ID", "", NotifySequence.OSC9),
)
"""Variables of terminals with the beginning of their value; the last ones remain within tmux."""


def find_notification(environment: Mapping[str, str]) -> NotifySequence:
    """Returns the kind of notification that the terminal shows; `off` if that is not known."""
    for variable, value, kind in _KNOWN:
        if variable in environment and environment[variable].startswith(value):
            return kind
    return NotifySequence.OFF


def notification(kind: NotifySequence, text: str, environment: Mapping[str, str]) -> str:
    """Returns what a terminal has to be sent for a notification; empty for none.

    Args:
        kind: The kind, or `auto`.
        text: What the notification says.
        environment: The variables of this process, which tell the terminal.
    """
    kind = find_notification(environment) if kind is NotifySequence.AUTO else kind
    # A semicolon would begin the next field.
    said = cut(clean_message(text).replace(";", ","), _LONGEST)
    commands = {
        NotifySequence.OSC9: [f"9;{_TITLE}: {said}"],
        NotifySequence.OSC777: [f"777;notify;{_TITLE};{said}"],
        NotifySequence.OSC99: [
            f"99;i=tfckpt:d=0:p=title;{_TITLE}",
            f"99;i=tfckpt:d=1:p=body;{said}",
        ],
    }
    sent = "".join(f"\x1b]{command}\x1b\\" for command in commands.get(kind, []))
    if sent and "TMUX" in environment:
        # Passed to the terminal outside, if tmux allows that.
        escaped = sent.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{escaped}\x1b\\"
    return sent
