"""Finds the paths of a command line that are on network disks: they may not answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system

MOST_PATHS = 100
"""How many paths a command waits for at most; each has a number of one byte."""


def network_paths(arguments: Sequence[str], others: Sequence[Path] = ()) -> list[Path]:
    """Returns the paths among `arguments` that are on a network disk, without touching it.

    Args:
        arguments: The command line.
        others: Further paths to consider.
    """
    named = [expand_user(word) for word in arguments if word and not word.startswith("-")]
    candidates = dict.fromkeys(Path(os.path.abspath(path)) for path in (*named, *others))
    return [path for path in candidates if is_network_file_system(path)][:MOST_PATHS]
