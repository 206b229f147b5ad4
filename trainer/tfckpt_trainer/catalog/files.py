"""One look at the names in a run directory: which files belong to which checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DATA = re.compile(r"(?P<name>.+)\.data-(?P<shard>\d{5})-of-(?P<count>\d{5})")
_TEMPORARY = re.compile(r"(?P<name>.+)_temp")


@dataclass(frozen=True)
class FileFact:
    """One file: where it is, its size, and what tells that it was changed or replaced."""

    path: Path
    size: int
    modified_at: float
    identity: tuple[int, int, int]


@dataclass
class Files:
    """The files of one checkpoint.

    Attributes:
        shards: Data files by number and count, as their names say.
        temporary_at: The newest time within `NAME_temp`, where a save of TensorFlow's goes on.
        others: Further files of it (`.meta` of TensorFlow 1).
    """

    name: str
    index: FileFact | None = None
    shards: dict[tuple[int, int], FileFact] = field(default_factory=dict)
    others: list[FileFact] = field(default_factory=list)
    temporary_at: float | None = None

    @property
    def all(self) -> list[FileFact]:
        """Index first, then data files in order, then the rest."""
        index = [self.index] if self.index else []
        return [*index, *(self.shards[key] for key in sorted(self.shards)), *self.others]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(fact.size for fact in self.all)

    @property
    def identity(self) -> tuple[object, ...]:
        """Changes when any file was changed, replaced, added or removed."""
        return tuple((fact.path.name, fact.identity) for fact in self.all)


def look(directory: Path) -> dict[str, Files]:
    """Returns the files of every checkpoint in `directory`, by its name.

    Symbolic links are passed over: nothing outside the directory is ever read or moved.

    Raises:
        OSError: The directory cannot be read.
    """
    found: dict[str, Files] = {}
    metas = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".index"):
                fact = _fact(entry)
                if fact is not None:
                    _of(found, name.removesuffix(".index")).index = fact
            elif match := _DATA.fullmatch(name):
                fact = _fact(entry)
                if fact is not None:
                    key = int(match["shard"]), int(match["count"])
                    _of(found, match["name"]).shards[key] = fact
            elif name.endswith(".meta"):
                metas.append(entry)
            elif (match := _TEMPORARY.fullmatch(name)) and entry.is_dir(follow_symlinks=False):
                _of(found, match["name"]).temporary_at = _newest(entry)
    for entry in metas:
        fact, name = _fact(entry), entry.name.removesuffix(".meta")
        if fact is not None and name in found:
            found[name].others.append(fact)
    return found


def _of(found: dict[str, Files], name: str) -> Files:
    files = found.get(name)
    if files is None:
        files = found[name] = Files(name)
    return files


def _fact(entry: os.DirEntry[str]) -> FileFact | None:
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        facts = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        # It was deleted between the listing and the look at it.
        return None
    identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return FileFact(Path(entry.path), facts.st_size, facts.st_mtime, identity)


def _newest(directory: os.DirEntry[str]) -> float:
    try:
        return max((*_times(directory.path), directory.stat(follow_symlinks=False).st_mtime))
    except FileNotFoundError:
        return 0.0


def _times(directory: str) -> Iterator[float]:
    with os.scandir(directory) as entries:
        for entry in entries:
            yield entry.stat(follow_symlinks=False).st_mtime
