"""Runs something in a child process, which a fault may end."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

KILLED = 137
CRASHED = 70
MOST_SECONDS = 60


def in_child(action: Callable[[], int], told: Path) -> int:
    """Runs `action` in a child.

    Args:
        action: Returns the exit status.
        told: What the child prints is written to this file.

    Returns:
        The exit status; `CRASHED` if an error came out.
    """
    child = os.fork()
    if child == 0:
        gc.disable()
        # Opened before the child may become another account.
        os._exit(_run(action, os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _run(action: Callable[[], int], told: int) -> int:
    signal.alarm(MOST_SECONDS)
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            code = action()
    except BaseException:
        words.write(traceback.format_exc())
        code = CRASHED
    os.write(told, words.getvalue().encode("utf-8", "replace"))
    return code
