"""Pins: a user's order that a checkpoint is never to be pruned."""

from __future__ import annotations

import os

from tfckpt_trainer.rundir.files import make_directory, write_atomic
from tfckpt_trainer.rundir.paths import RunDirectory


def pin(run: RunDirectory, name: str) -> None:
    """Writes the pin of checkpoint `name`; a pinned one stays pinned.

    It neither takes the lock nor looks for the checkpoint: `pinning.set_pins` does.

    Raises:
        RefusedError: A directory in the way is a symbolic link.
        NotFlushedError: It is pinned; the disk refused to flush that.
        OSError: It is not pinned.
    """
    run.refuse_links()
    make_directory(run.pins_directory, durable=True)
    write_atomic(run.pin(name), b"")


def unpin(run: RunDirectory, name: str) -> None:
    """Removes the pin of checkpoint `name`, if it has one.

    Raises:
        RefusedError: A directory in the way is a symbolic link.
    """
    run.refuse_links()
    run.pin(name).unlink(missing_ok=True)


def is_pinned(run: RunDirectory, name: str) -> bool:
    """Whether checkpoint `name` is pinned at this moment."""
    return os.path.lexists(run.pin(name))


def pinned_names(run: RunDirectory) -> frozenset[str]:
    """Returns the names of all pinned checkpoints."""
    try:
        return frozenset(os.listdir(run.pins_directory))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
