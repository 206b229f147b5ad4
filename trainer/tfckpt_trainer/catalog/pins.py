"""Pins: a person's word that a checkpoint is never to be pruned."""

from __future__ import annotations

import os

from tfckpt_trainer.rundir.files import make_directory, write_atomic
from tfckpt_trainer.rundir.paths import RunDirectory


def pin(run: RunDirectory, name: str) -> None:
    """Pins checkpoint `name`; a pinned one stays pinned."""
    make_directory(run.pins_directory)
    write_atomic(run.pin(name), b"")


def unpin(run: RunDirectory, name: str) -> None:
    """Removes the pin of checkpoint `name`, if it has one."""
    run.pin(name).unlink(missing_ok=True)


def pinned_names(run: RunDirectory) -> frozenset[str]:
    """Returns the names of all pinned checkpoints."""
    try:
        return frozenset(os.listdir(run.pins_directory))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
