"""Tells after Ctrl+C whether a command wrote its file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.errors import ExitCode, TfckptError


@contextmanager
def explain_interrupt(path: Path) -> Iterator[None]:
    """Replaces Ctrl+C by an error that says whether a new file was written.

    Args:
        path: The file; for a checkpoint its index, which is written last.

    Raises:
        TfckptError: The command was interrupted.
    """
    existed = os.path.lexists(path)
    try:
        yield
    except KeyboardInterrupt:
        is_written = not existed and os.path.lexists(path)
        error = TfckptError(f"Interrupted; {path if is_written else 'nothing'} was written.")
        error.exit_code = ExitCode.INTERRUPTED
        raise error from None
