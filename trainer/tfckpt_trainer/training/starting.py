"""Errors of the disk at the start of training, as a message that says what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from tfckpt_trainer.errors import TfckptError, in_words
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.reserve import is_full


@contextmanager
def disk_errors_explained(run: RunDirectory) -> Iterator[None]:
    """Turns an error of the disk into one that names the path, the reason and what to do.

    Raises:
        TfckptError: In place of an `OSError` of the block.
    """
    try:
        yield
    except OSError as error:
        root = shlex.quote(str(run.root))
        what_to_do = (
            f"Free disk space with `tfckpt-tui trash {root} empty`, or delete checkpoints with "
            f"`tfckpt-tui prune {root} CKPT --delete`, then start again."
            if is_full(error)
            else f"Check that this user may write to it, with `ls -la {root}`, then start again."
        )
        raise TfckptError(
            f"Training cannot start in {run.root}: {in_words(error)}. {what_to_do}"
        ) from error
