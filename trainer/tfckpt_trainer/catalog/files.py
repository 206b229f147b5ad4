"""One look at the names in a run directory: which files belong to which checkpoint."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_DATA = re.compile(r"(?P<name>.+)\.data-(?P<shard>\d{5})-of-(?P<count>\d{5})", re.DOTALL)
_TEMPORARY = "_temp"

Owner = tuple[str, bool]
"""To which checkpoint a file belongs, and whether it is its temporary directory."""

Identity = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""

_NOBODY: Owner = ("", False)


class FileFact(NamedTuple):
    """One file: its name, its size, and what tells that it was changed or replaced."""

    name: str
    size: int
    modified_ns: int
    inode: int

    @property
    def modified_at(self) -> float:
        """When its content was last changed, in seconds since the epoch."""
        return self.modified_ns / 1e9

    @property
    def identity(self) -> Identity:
        """Another file, or another content, has another one."""
        return self.size, self.modified_ns, self.inode


@dataclass(slots=True)
class Files:
    """The files of one checkpoint in one directory.

    Attributes:
        facts: Of all of them, by name: data files come before the index.
        temporary_at: The newest time within `NAME_temp`, where a save of TensorFlow's goes on.
    """

    name: str
    facts: tuple[FileFact, ...] = ()
    temporary_at: float | None = None

    @property
    def index(self) -> FileFact | None:
        """The index file."""
        wanted = f"{self.name}.index"
        for fact in reversed(self.facts):
            if fact.name == wanted:
                return fact
        return None

    @property
    def shards(self) -> dict[tuple[int, int], FileFact]:
        """Data files by number and count, as their names say."""
        found = {}
        for fact in self.facts:
            match = _DATA.fullmatch(fact.name)
            if match is not None:
                found[int(match["shard"]), int(match["count"])] = fact
        return found

    @property
    def index_first(self) -> list[FileFact]:
        """All of them, the index before the others: without it the rest means nothing."""
        wanted = f"{self.name}.index"
        return sorted(self.facts, key=lambda fact: (fact.name != wanted, fact.name))

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(fact.size for fact in self.facts)


class Look:
    """Looks at one directory again and again; what a name says is worked out once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owners: dict[str, Owner] = {}
        self._facts: dict[str, FileFact] = {}
        self._files: dict[str, Files] = {}

    def take(self) -> dict[str, Files]:
        """Returns the files of every checkpoint in the directory, by its name.

        Symbolic links are passed over: nothing outside the directory is ever moved.

        Raises:
            OSError: The directory cannot be read.
        """
        before, self._owners = self._owners, {}
        known, self._facts = self._facts, {}
        facts: dict[str, list[FileFact]] = {}
        temporary: dict[str, float] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                owner = before.get(entry.name) or _owner(entry.name)
                self._owners[entry.name] = owner
                name, is_temporary = owner
                if not name:
                    continue
                seen = _stat(entry)
                if seen is None:
                    continue
                if is_temporary:
                    if stat.S_ISDIR(seen.st_mode):
                        temporary[name] = _newest(entry.path, seen.st_mtime)
                elif stat.S_ISREG(seen.st_mode):
                    fact = _fact(entry.name, seen, known.get(entry.name))
                    self._facts[entry.name] = fact
                    facts.setdefault(name, []).append(fact)
        self._files = _assemble(facts, temporary, self._files)
        return dict(self._files)


def look(directory: Path) -> dict[str, Files]:
    """Looks once; see `Look.take`."""
    return Look(directory).take()


def look_if_there(look: Look) -> dict[str, Files]:
    """Looks at a directory that need not exist."""
    try:
        return look.take()
    except (FileNotFoundError, NotADirectoryError):
        return {}


def identity_of(path: Path) -> Identity | None:
    """Returns size, time and inode of what `path` itself is, or None where nothing is."""
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return identity_of_stat(facts)


def identity_of_stat(facts: os.stat_result) -> Identity:
    """Returns size, time and inode: another file, or another content, has others."""
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _owner(name: str) -> Owner:
    if name.endswith(".index") and name != ".index":
        return name.removesuffix(".index"), False
    match = _DATA.fullmatch(name)
    if match is not None:
        return match["name"], False
    if name.endswith(".meta") and name != ".meta":
        return name.removesuffix(".meta"), False
    if name.endswith(_TEMPORARY) and name != _TEMPORARY:
        return name.removesuffix(_TEMPORARY), True
    return _NOBODY


def _fact(name: str, seen: os.stat_result, known: FileFact | None) -> FileFact:
    identity = seen.st_size, seen.st_mtime_ns, seen.st_ino
    # Of ten thousand files all but a few are as before; not to make them anew halves the time.
    return known if known is not None and known.identity == identity else FileFact(name, *identity)


def _assemble(
    facts: dict[str, list[FileFact]], temporary: dict[str, float], before: dict[str, Files]
) -> dict[str, Files]:
    found = {}
    for name, files in facts.items():
        # A `.meta` belongs to a checkpoint of TensorFlow 1, and makes none by itself.
        if len(files) == 1 and files[0].name.endswith(".meta") and name not in temporary:
            continue
        files.sort()
        known = before.get(name)
        fresh = Files(name, tuple(files), temporary.get(name))
        found[name] = known if known is not None and known == fresh else fresh
    for name, newest in temporary.items():
        if name not in found:
            found[name] = Files(name, (), newest)
    return found


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        # It was deleted between the listing and the look at it.
        return None


def _newest(directory: str, own: float) -> float:
    """Returns the newest time in a temporary directory; a file that just left does not count."""
    newest = own
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                seen = _stat(entry)
                if seen is not None:
                    newest = max(newest, seen.st_mtime)
    except OSError:
        # It was removed meanwhile, or is not ours to read: its own time says enough.
        return newest
    return newest
