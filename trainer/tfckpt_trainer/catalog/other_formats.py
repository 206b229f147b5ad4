"""What a directory has beside its checkpoints: files of other formats, and checkpoints below it."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.catalog.saved_model import SAVED_MODEL_FILES

_MOST_DIRECTORIES = 64
"""Subdirectories that are looked into."""

_MOST_ENTRIES = 10_000
"""Entries that are looked at in each."""

_READERS = {
    ".keras": "`keras.models.load_model`",
    ".weights.h5": "`model.load_weights`",
    ".h5": "`keras.models.load_model` or `model.load_weights`",
    ".hdf5": "`keras.models.load_model` or `model.load_weights`",
    ".safetensors": "`tfckpt-tui convert`",
}
"""What reads a file, by the end of its name; the longest end counts."""

_SAVED_MODEL = "`tf.saved_model.load`"
_ORBAX = "`orbax.checkpoint`"
_ORBAX_FILES = frozenset({"_CHECKPOINT_METADATA", "manifest.ocdbt"})


class Neighbours(NamedTuple):
    """What a directory has beside its checkpoints.

    Attributes:
        below: Subdirectories with checkpoints.
        others: The names of files and directories of other formats, by what reads them.
    """

    below: tuple[str, ...] = ()
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()


NO_NEIGHBOURS = Neighbours()


def find_neighbours(root: Path) -> Neighbours:
    """Looks at the names in a directory and in its subdirectories.

    Raises:
        OSError: The directory cannot be read.
    """
    below: list[str] = []
    others: dict[str, list[str]] = {}
    directories: list[str] = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith("_temp"):
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif reader := _reader_of(entry.name):
                others.setdefault(reader, []).append(entry.name)
    for name in sorted(directories)[:_MOST_DIRECTORIES]:
        names = _names_in(root / name)
        if names & SAVED_MODEL_FILES:
            others.setdefault(_SAVED_MODEL, []).append(name)
        elif names & _ORBAX_FILES:
            others.setdefault(_ORBAX, []).append(name)
        elif has_checkpoint(names):
            below.append(name)
    return Neighbours(
        tuple(below), tuple((reader, tuple(sorted(found))) for reader, found in others.items())
    )


def has_checkpoint(names: frozenset[str]) -> bool:
    """Whether files are those of a checkpoint: an index, and data of the same name."""
    indexed = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    return any(name.rpartition(".data-")[0] in indexed for name in names if ".data-" in name)


def _reader_of(name: str) -> str:
    ends = [end for end in _READERS if name.endswith(end)]
    return _READERS[max(ends, key=len)] if ends else ""


def _names_in(directory: Path) -> frozenset[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return frozenset(entry.name for entry in islice(entries, _MOST_ENTRIES))
    return frozenset()
