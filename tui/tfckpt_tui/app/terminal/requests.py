"""What the terminal is asked for beside its cells: the clipboard, a notification of the desktop."""

from __future__ import annotations

import subprocess
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


_TMUX_SECONDS = 1.0

_COPIES = (
    ("TERM", "xterm-kitty"),
    ("TERM", "xterm-ghostty"),
    ("TERM", "foot"),
    ("TERM", "alacritty"),
    ("TERM_PROGRAM", "ghostty"),
    ("TERM_PROGRAM", "WezTerm"),
    ("WT_SESSION", ""),
)
"""Variables of terminals that let programs copy, unless configured otherwise."""

_COPIES_NOT = (
    ("STY", "", "GNU screen passes nothing to the clipboard"),
    ("TERM", "linux", "this terminal has no clipboard"),
    ("TERM_PROGRAM", "Apple_Terminal", "this terminal lets no program copy"),
)
_TMUX = (("TMUX", ""), ("TERM", "tmux"), ("TERM", "screen"))


def give_to_tmux(text: str, environment: Mapping[str, str]) -> bool:
    """Has tmux copy a text, if the app runs in it; returns whether tmux took it.

    By default tmux ignores what programs send to the clipboard, but copies itself.
    """
    if "TMUX" not in environment:
        return False
    try:
        done = subprocess.run(
            ("tmux", "load-buffer", "-w", "-"),
            input=text.encode(),
            capture_output=True,
            timeout=_TMUX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def copied_in_words(what: str, environment: Mapping[str, str], *, by_tmux: bool) -> str:
    """Returns what became of a copied text. Terminals do not answer, so it tells what is known.

    Args:
        what: What was copied, such as `3 lines`.
        environment: The variables of this process, which tell the terminal.
        by_tmux: Whether tmux took it.
    """
    if by_tmux:
        return f"Copied {what}."
    for variable, value, why in _COPIES_NOT:
        if _is_set(environment, variable, value):
            return f"Not copied: {why}."
    if any(_is_set(environment, *one) for one in _TMUX):
        return f"Sent {what} to tmux, which copies it only with `set -g set-clipboard on`."
    if any(_is_set(environment, *one) for one in _COPIES):
        return f"Copied {what}."
    return f"Sent {what} to the clipboard of the terminal."


def _is_set(environment: Mapping[str, str], variable: str, beginning: str) -> bool:
    return variable in environment and environment[variable].startswith(beginning)
