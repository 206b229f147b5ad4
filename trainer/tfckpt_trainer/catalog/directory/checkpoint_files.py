"""Groups the files of a directory by the checkpoint that they belong to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.links import Link
from tfckpt_trainer.catalog.directory.listing import FileFact, Identity, LinkFact, Listing

_INDEX, _META, _TEMPORARY = ".index", ".meta", "_temp"
_ONLY_DATA = ".data-00000-of-00001"
_DATA_LENGTH = len(_ONLY_DATA)
_DATA = ".data-"

WRITER = ".writer-"
"""What the name of the file begins with that marks the writer of a `NAME_temp`."""


class CheckpointFiles(msgspec.Struct, frozen=True):
    """The files of one checkpoint in one directory.

    Attributes:
        facts: All files, sorted by name: data files come before the index. A symbolic link to a
            regular file of the directory has the facts of that file.
        temporary_at: The newest modification time of `NAME_temp`, where TensorFlow writes, and
            of its content; None if it does not exist.
        part_at: The newest modification time of its content; None if it is empty.
        writer: The mark of the command of this library that writes there; empty if none does.
        links: The files that are symbolic links, wherever they lead.
    """

    name: str
    facts: tuple[FileFact, ...] = ()
    temporary_at: float | None = None
    part_at: float | None = None
    writer: str = ""
    links: tuple[Link, ...] = ()

    @property
    def index(self) -> FileFact | None:
        """The index file."""
        for fact in reversed(self.facts):
            if fact.name.endswith(_INDEX):
                return fact
        return None

    @property
    def shards(self) -> dict[tuple[int, int], FileFact]:
        """Data files by number and count, as in their names."""
        shards = {}
        for fact in self.facts:
            if not fact.name.endswith(_INDEX):
                place = place_of(fact.name)
                if place is not None:
                    shards[place] = fact
        return shards

    @property
    def index_first(self) -> list[FileFact]:
        """All regular files, the index first: without it the others have no meaning."""
        return sorted(self._plain, key=lambda fact: (not fact.name.endswith(_INDEX), fact.name))

    @property
    def size(self) -> int:
        """Bytes of all regular files; a link takes no space."""
        return sum([fact.size for fact in self._plain])

    def link(self, name: str) -> Link | None:
        """Returns the symbolic link with this name, if there is one."""
        return next((link for link in self.links if link.name == name), None)

    @property
    def _plain(self) -> Sequence[FileFact]:
        if not self.links:
            return self.facts
        return [fact for fact in self.facts if self.link(fact.name) is None]


class FileScanner:
    """Scans one directory repeatedly; see `Listing` for the cost.

    Attributes:
        files: The files of every checkpoint, by its name.
    """

    def __init__(self, directory: Path, only: AbstractSet[str] | None = None) -> None:
        """Prepares the scanner.

        Args:
            directory: The directory.
            only: The only checkpoints to look for; by default all.
        """
        self._directory = directory
        if only is None:
            self._listing = Listing(directory, lambda name: owner_of(name) != "")
        else:
            self._listing = Listing(
                directory,
                lambda name: owner_of(name) in only,
                is_kept=lambda name: any(start in only for start in _starts(name)),
            )
        self.files: dict[str, CheckpointFiles] = {}
        self._beside: dict[str, list[str]] | None = None

    def scan(self) -> dict[str, CheckpointFiles]:
        """Scans, and returns the files of every checkpoint by its name.

        Raises:
            OSError: The directory cannot be read.
        """
        self.refresh()
        return dict(self.files)

    def refresh(self, watched: Iterable[str] = (), *, missing_ok: bool = False) -> set[str]:
        """Scans again.

        Args:
            watched: Checkpoints whose files are always checked.
            missing_ok: Whether a missing directory counts as empty.

        Returns:
            The checkpoints with files that are new, gone or changed.

        Raises:
            OSError: The directory cannot be read.
        """
        watched_facts = [self.files[name].facts for name in watched if name in self.files]
        names = [fact.name for facts in watched_facts for fact in facts]
        changes: dict[str, list[str]] = {}
        self._beside = None
        for file in self._listing.refresh(names, missing_ok=missing_ok):
            changes.setdefault(owner_of(file), []).append(file)
        for directory in self._listing.directories:
            # A save in it does not always change the directory's own time.
            changes.setdefault(owner_of(directory), [])
        return {name for name, files in changes.items() if self._assemble(name, files)}

    def check(self, name: str) -> CheckpointFiles | None:
        """Asks again about the known files of a checkpoint, without listing the directory.

        Returns:
            Its files; None if it is gone.
        """
        files = self.files.get(name)
        if files is None:
            return None
        names = {fact.name for fact in files.facts} | {link.name for link in files.links}
        self._assemble(name, list(self._listing.check(names)))
        return self.files.get(name)

    def beside(self, name: str) -> list[str]:
        """Returns all entries that begin like the data files of a checkpoint, as of the listing."""
        if self._beside is None:
            self._beside = {}
            for entry in self._listing.names():
                for start in _starts(entry):
                    self._beside.setdefault(start, []).append(entry)
        return self._beside.get(name, [])

    def unowned(self) -> dict[str, FileFact]:
        """Returns the regular files that belong to no checkpoint."""
        owned = {fact.name for files in self.files.values() for fact in files.facts}
        lone = {name: fact for name, fact in self._listing.facts.items() if name not in owned}
        return {**self._listing.others(), **lone}

    def names(self) -> Iterable[str]:
        """Returns the names of everything in the directory, as of the last scan."""
        return self._listing.names()

    def link_targets(self) -> frozenset[str]:
        """Returns the names of the files that symbolic links of the directory lead to."""
        return frozenset(fact.link.file for fact in self._listing.links.values())

    def _assemble(self, name: str, changed: list[str]) -> bool:
        """Groups the files of a checkpoint again; returns whether they changed."""
        before, by_file = self.files.get(name), self._listing.facts
        names = {f"{name}{_META}", *changed}
        if before is not None:
            names.update([fact.name for fact in before.facts])
            names.update([link.name for link in before.links])
        facts = [by_file[file] for file in names if file in by_file and file[-5:] != _TEMPORARY]
        links: list[Link] = []
        if self._listing.links:
            links = _add_links(facts, names, self._listing.links)
        temporary_at, part_at, writer = self._temporary(name)
        # A `.meta` alone is no checkpoint.
        is_graph = all(fact.name.endswith(_META) for fact in facts)
        if is_graph and temporary_at is None and all(link.name.endswith(_META) for link in links):
            return self.files.pop(name, None) is not None
        facts.sort()
        files = CheckpointFiles(name, tuple(facts), temporary_at, part_at, writer, tuple(links))
        self.files[name] = files
        return files != before

    def _temporary(self, name: str) -> tuple[float | None, float | None, str]:
        directory = f"{name}{_TEMPORARY}"
        if directory not in self._listing.directories:
            return None, None, ""
        return look_into_temporary(os.path.join(self._directory, directory))


def size_of_directory(directory: Path) -> int:
    """Returns the bytes of all files below a directory that can be read."""
    size = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
    return size


def scan_files(directory: Path) -> dict[str, CheckpointFiles]:
    """Scans once; see `FileScanner.scan`."""
    return FileScanner(directory).scan()


def scan_files_if_present(scanner: FileScanner) -> dict[str, CheckpointFiles]:
    """Scans a directory that may not exist."""
    scanner.refresh(missing_ok=True)
    return dict(scanner.files)


def identity_of(path: Path) -> Identity | None:
    """Returns size, time and inode of `path`, without following a link; None if it is missing."""
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def owner_of(name: str) -> str:
    """Returns the checkpoint that a file named `name` belongs to; empty if none."""
    if name.endswith(_INDEX):
        return name[: -len(_INDEX)]
    if name.endswith(_ONLY_DATA):
        return name[:-_DATA_LENGTH]
    if place_of(name) is not None:
        return name[:-_DATA_LENGTH]
    if name.endswith(_TEMPORARY):
        return name[: -len(_TEMPORARY)]
    if name.endswith(_META):
        return name[: -len(_META)]
    return ""


def _add_links(
    facts: list[FileFact], names: Iterable[str], link_facts: Mapping[str, LinkFact]
) -> list[Link]:
    """Returns the symbolic links among `names`, and adds the facts of their targets."""
    links = []
    for name in names:
        fact = link_facts.get(name)
        if fact is not None and not name.endswith(_TEMPORARY):
            links.append(fact.link)
            if fact.file is not None:
                facts.append(fact.file)
    return sorted(links)


def _starts(name: str) -> Iterator[str]:
    """Yields the checkpoints of which a file may be, or seem to be, a data file."""
    place = name.find(_DATA)
    while place >= 0:
        yield name[:place]
        place = name.find(_DATA, place + 1)


def place_of(name: str) -> tuple[int, int] | None:
    """Returns number and count of the data file `name`: `NAME.data-00000-of-00001`."""
    if name.endswith(_ONLY_DATA):
        # The usual case first: this runs for every file of a directory.
        return 0, 1
    if name[-20:-14] != ".data-" or name[-9:-5] != "-of-" or len(name) == _DATA_LENGTH:
        return None
    number, count = name[-14:-9], name[-5:]
    if not (number.isascii() and count.isascii() and number.isdigit() and count.isdigit()):
        return None
    return int(number), int(count)


def look_into_temporary(directory: str | Path) -> tuple[float | None, float | None, str]:
    """Returns the newest time of a directory with its content, that of the content, and its mark.

    The mark is that of the command of this library that writes there; empty if none does.
    """
    newest: float | None = None
    writer = ""
    try:
        own = os.lstat(directory).st_mtime
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(WRITER):
                    writer = entry.name.removeprefix(WRITER)
                    continue
                with suppress(FileNotFoundError):
                    newest = max(newest or 0.0, entry.stat(follow_symlinks=False).st_mtime)
    except FileNotFoundError:
        # Its save has just ended.
        return None, None, ""
    except OSError:
        # It may not be read: use its own time.
        return own, own, ""
    return max(own, newest or 0.0), newest, writer


__all__ = [
    "WRITER",
    "CheckpointFiles",
    "FileFact",
    "FileScanner",
    "Identity",
    "identity_of",
    "look_into_temporary",
    "owner_of",
    "place_of",
    "scan_files",
    "scan_files_if_present",
    "size_of_directory",
]
