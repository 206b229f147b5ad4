"""Recognizes checkpoints in TensorFlow's V1 format, which this library does not read.

`tf.compat.v1.train.Saver(write_version=SaverDef.V1)` writes the data of `model.ckpt-100` into a
file of that name, or in shards into `model.ckpt-100-00000-of-00002`, and the graph into
`model.ckpt-100.meta`. The state file names the shards as `model.ckpt-100-?????-of-00002`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.table import is_table
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.listing import FileFact
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.identity import Identity

_SHARD = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<count>\d{5})", re.DOTALL)
_LISTED_SHARDS = re.compile(r"(?P<name>.+)-\?{5}-of-\d{5}", re.DOTALL)
_META = ".meta"
_USUAL = ("ckpt", "model")
"""Parts of the usual names of checkpoints."""

_HEAD = 32
_EMPTY_KEY = b"\0\0"
_FIRST_FIELD = b"\x0a"


class VersionOne(msgspec.Struct, frozen=True):
    """One checkpoint in the V1 format.

    Attributes:
        name: The name without the number of a shard.
        path: The path that TensorFlow restores it by.
        files: The names of its data files, and of its graph file if there is one.
        size: Bytes of all of them.
    """

    name: str
    path: str
    files: tuple[str, ...]
    size: int


class VersionOneScanner:
    """Finds checkpoints in the V1 format; a file is opened again only after it changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, tuple[tuple[Identity, bool], bool]] = {}

    def find(self, files: Mapping[str, FileFact], listed: Iterable[str]) -> tuple[VersionOne, ...]:
        """Returns the checkpoints in the V1 format, by name.

        Args:
            files: Regular files that may belong to one, by name.
            listed: The names in TensorFlow's state file.
        """
        names = {_without_shards(name) for name in listed}
        data_files: dict[tuple[str, str], list[FileFact]] = {}
        for name, fact in files.items():
            prefix, path = _prefix_and_path(name)
            named = prefix in names or f"{prefix}{_META}" in files
            usual = not name.endswith(_META) and any(part in name for part in _USUAL)
            if (named or usual) and self._is_data(fact, named):
                data_files.setdefault((prefix, path), []).append(fact)
        return tuple(sorted(_made(data_files, files), key=lambda checkpoint: checkpoint.name))

    def _is_data(self, fact: FileFact, named: bool) -> bool:
        """Whether a file has the data of a checkpoint.

        Args:
            fact: The file.
            named: Whether the state file or a graph file has its name. Otherwise its content has
                to tell.
        """
        entry = self._known.get(fact.name)
        evidence = fact.identity, named
        if entry is None or entry[0] != evidence:
            path = self._directory / fact.name
            try:
                is_data = is_table(path) and (named or _starts_with_meta(path))
            except (DamagedFileError, OSError):
                is_data = named
            entry = self._known[fact.name] = evidence, is_data
        return entry[1]


def _starts_with_meta(path: Path) -> bool:
    """Whether a table begins with the description of its tensors, as only the V1 format does.

    Its first key is empty; the value is a `SavedTensorSlices` whose first field is a message.
    """
    with open_plain(path) as file:
        head = file.read(_HEAD)
    try:
        _, position = read_varint(head, len(_EMPTY_KEY))
    except WireError:
        return False
    return head.startswith(_EMPTY_KEY) and head[position : position + 1] == _FIRST_FIELD


def _made(
    data_files: Mapping[tuple[str, str], list[FileFact]], files: Mapping[str, FileFact]
) -> Iterator[VersionOne]:
    for (name, path), facts in data_files.items():
        graph = files.get(f"{name}{_META}")
        parts = sorted([*facts, graph] if graph is not None else facts)
        yield VersionOne(
            name, path, tuple(part.name for part in parts), sum(part.size for part in parts)
        )


def _prefix_and_path(name: str) -> tuple[str, str]:
    match = _SHARD.fullmatch(name)
    if match is None:
        return name, name
    return match["name"], f"{match['name']}-?????-of-{match['count']}"


def _without_shards(name: str) -> str:
    match = _LISTED_SHARDS.fullmatch(name)
    return match["name"] if match is not None else name


def find_version_one(directory: Path) -> tuple[VersionOne, ...]:
    """Returns the checkpoints in the V1 format, found by their graph files or their content.

    Raises:
        OSError: The directory cannot be read.
    """
    files = FileScanner(directory)
    files.refresh()
    return VersionOneScanner(directory).find(files.unowned(), [])
