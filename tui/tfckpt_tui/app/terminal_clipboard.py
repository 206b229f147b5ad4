"""The clipboard of the terminal: how a text reaches it, and what is known of that."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

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
