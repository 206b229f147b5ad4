"""Completes run directories: the recent ones, and what is on disk."""

from __future__ import annotations

import os
from contextlib import suppress

from click.shell_completion import CompletionItem

from tfckpt_tui.formats.text import clean

_MOST_LOCAL = 100


def complete_directory(typed: str) -> list[CompletionItem]:
    """Returns recent runs and directories here; once there is a path, leaves it to the shell.

    Of recent runs in several places whose names begin so, returns the newest. A shell shows
    directories of its own only if there is nothing else to offer.

    Args:
        typed: What was typed so far.
    """
    by_shell = [CompletionItem(typed, type="dir")]
    if os.sep in typed or typed.startswith("~"):
        return by_shell
    here = [name for name in _directories_here() if name.startswith(typed)]
    if typed and here:
        return by_shell
    recent = [path for path in _recent_runs() if os.path.basename(path).startswith(typed)]
    paths = [path for path in (*recent, *here[:_MOST_LOCAL]) if clean(path) == path]
    if typed and len(set(map(os.path.dirname, paths))) > 1:
        # A shell replaces the word by what all begin with, and the word would be lost.
        del paths[1:]
    return [CompletionItem(path) for path in paths] or by_shell


def _directories_here() -> list[str]:
    with suppress(OSError), os.scandir() as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
        )
    return []


def _recent_runs() -> list[str]:
    from tfckpt_tui.services.runs.recent_runs import remembered_runs

    return [str(path) for path in remembered_runs()]
