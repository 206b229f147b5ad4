"""Groups the files of a directory by the checkpoint that they belong to."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from struct import Struct
from sys import intern

import msgspec

from tfckpt_trainer.bundle.links import Link, stat_inside
from tfckpt_trainer.catalog.directory.listing import DirectoryListing, FileFact, is_doubtful
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY, look_into_temporary
from tfckpt_trainer.rundir.paths import RunDirectory, is_checkpoint_name
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in
from tfckpt_trainer.rundir.storage.trees import walk

_INDEX, _META = ".index", ".meta"
_ONLY_DATA = ".data-00000-of-00001"
_DATA_LENGTH = len(_ONLY_DATA)
_DATA = ".data-"

_SHORT = 50
"""Characters of names that are never too long, whatever bytes they have."""

_COUNTS = 100_000
"""Names of data files have numbers below this."""

_AT_INDEX, _AT_META, _AT_TEMPORARY, _NOWHERE = 1 << 40, (1 << 40) + 1, -1, -2
"""Places of files beside the data file `number` of `count`, whose place is `number * 100000 +
count`. Places grow as the names do."""

_FACT = Struct(">QqqIQ??")
"""A packed `FileFact`: its place, size, time in two parts, inode, whether doubtful, and shared."""

_SIZE = _FACT.size
_PLACE = Struct(">Q")
_INDEX_BYTES, _META_BYTES = _PLACE.pack(_AT_INDEX), _PLACE.pack(_AT_META)
_LOW = (1 << 32) - 1


class CheckpointFiles(msgspec.Struct, frozen=True, gc=False):
    """The files of one checkpoint in one directory.

    A directory may have a hundred thousand checkpoints, so the facts are packed.

    Attributes:
        packed: The facts of all files, sorted by name. A symbolic link to a regular file of the
            directory has the facts of that file.
        temporary_at: The newest modification time of `NAME_temp`, where TensorFlow writes, and
            of its content; None if there is no such directory of a save.
        part_at: The newest modification time of its content; None if it is empty.
        writer: The mark of the command of this library that writes there; empty if none does.
        links: The files that are symbolic links, wherever they lead.
    """

    name: str
    packed: bytes = b""
    temporary_at: float | None = None
    part_at: float | None = None
    writer: str = ""
    links: tuple[Link, ...] = ()

    @property
    def facts(self) -> list[FileFact]:
        """All files, sorted by name: data files come before the index."""
        return [_fact(self.name, packed) for packed in _FACT.iter_unpack(self.packed)]

    @property
    def index(self) -> FileFact | None:
        """The index file."""
        at = self._index_at
        return None if at < 0 else _fact(self.name, _FACT.unpack_from(self.packed, at))

    @property
    def index_at(self) -> float | None:
        """When the index was written, in seconds since the epoch; None if there is none."""
        at = self._index_at
        if at < 0:
            return None
        _, _, high, low, *_ = _FACT.unpack_from(self.packed, at)
        return float(high << 32 | low) / 1e9

    @property
    def has_index(self) -> bool:
        """Whether there is an index file."""
        return self._index_at >= 0

    @property
    def graph(self) -> FileFact | None:
        """The graph file of TensorFlow 1."""
        if self.packed[-_SIZE : _PLACE.size - _SIZE] != _META_BYTES:
            return None
        return _fact(self.name, _FACT.unpack_from(self.packed, len(self.packed) - _SIZE))

    @property
    def shards(self) -> dict[tuple[int, int], FileFact]:
        """Data files by number and count, as in their names."""
        return {
            divmod(packed[0], _COUNTS): _fact(self.name, packed)
            for packed in _FACT.iter_unpack(self.packed)
            if packed[0] < _AT_INDEX
        }

    def shards_of_other_counts(self, count: int) -> list[FileFact]:
        """Returns data files whose names tell another number of them than `count`."""
        return [fact for (_, of), fact in self.shards.items() if of != count]

    @property
    def shard_counts(self) -> set[int]:
        """The numbers of data files that their names tell: one, unless saves are mixed."""
        places = [packed[0] for packed in _FACT.iter_unpack(self.packed)]
        return {place % _COUNTS for place in places if place < _AT_INDEX}

    @property
    def has_index_and_data(self) -> bool:
        """Whether there is an index, and any data file."""
        return self.has_index and bool(self.shard_counts)

    @property
    def data_at(self) -> float:
        """When a data file changed last, in seconds since the epoch; 0 without any."""
        facts = _FACT.iter_unpack(self.packed)
        times = [high << 32 | low for place, _, high, low, *_ in facts if place < _AT_INDEX]
        return max(times, default=0) / 1e9

    @property
    def is_usual(self) -> bool:
        """Whether these are an index and one data file, which this process may read.

        Not the `._NAME` that macOS writes beside them.
        """
        if len(self.packed) != 2 * _SIZE or self.links or self.temporary_at is not None:
            return False
        if self.name.startswith("._"):
            return False
        (data, *_, denied, _), (index, size, *_, index_denied, _) = _FACT.iter_unpack(self.packed)
        return data == 1 and index == _AT_INDEX and size > 0 and not denied and not index_denied

    @property
    def newest_at(self) -> float:
        """When any of these files or `NAME_temp` changed last, in seconds since the epoch."""
        times = [fact.modified_at for fact in self.facts]
        times += [link.modified_at for link in self.links]
        return max(0.0, self.temporary_at or 0.0, *times)

    @property
    def index_first(self) -> list[FileFact]:
        """All regular files, the index first: without it the others have no meaning."""
        return sorted(self._plain, key=lambda fact: (not fact.name.endswith(_INDEX), fact.name))

    @property
    def size(self) -> int:
        """Bytes of all regular files; a link takes no space."""
        if self.links:
            return sum([fact.size for fact in self._plain])
        return sum([packed[1] for packed in _FACT.iter_unpack(self.packed)])

    def link(self, name: str) -> Link | None:
        """Returns the symbolic link with this name, if there is one."""
        return next((link for link in self.links if link.name == name), None)

    @property
    def is_shared(self) -> bool:
        """Whether a file had other names, as hard links, when it was asked about."""
        return any(packed[6] for packed in _FACT.iter_unpack(self.packed))

    @property
    def sizes_by_inode(self) -> list[tuple[int, int]]:
        """Inode and size of each regular file."""
        return [(fact.inode, fact.size) for fact in self._plain]

    @property
    def _plain(self) -> Sequence[FileFact]:
        if not self.links:
            return self.facts
        return [fact for fact in self.facts if self.link(fact.name) is None]

    @property
    def _index_at(self) -> int:
        """Position of the facts of the index; negative if there is none."""
        packed = self.packed
        at = len(packed) - _SIZE
        if at >= _SIZE and packed.startswith(_META_BYTES, at):
            at -= _SIZE
        return at if at >= 0 and packed.startswith(_INDEX_BYTES, at) else -1


def written_at(files: CheckpointFiles | None, aside: CheckpointFiles | None) -> float:
    """Returns when a checkpoint was written, in seconds since the epoch.

    Args:
        files: Its files in the run directory.
        aside: Its files in `saving/`; they count as long as it has no index.
    """
    at = files.index_at if files is not None else None
    if at is not None:
        return at
    return max([part.newest_at for part in (files, aside) if part is not None], default=0.0)


class FileScanner:
    """Scans one directory repeatedly; see `DirectoryListing` for the cost.

    Attributes:
        files: The files of every checkpoint, by its name.
    """

    def __init__(
        self,
        directory: Path,
        only: AbstractSet[str] | None = None,
        entries: AbstractSet[str] | None = None,
    ) -> None:
        """Prepares the scanner.

        Args:
            directory: The directory.
            only: The only checkpoints to look for; by default all.
            entries: The names of their files, if these are known: the directory is not listed.
        """
        self._directory = directory
        if only is None or entries is not None:
            self._listing = DirectoryListing(directory, _relevant_place, only=entries)
        else:
            self._listing = DirectoryListing(
                directory,
                lambda name: place_in(name) if owner_of(name) in only else None,
                is_kept=lambda name: any(start in only for start in _starts(name)),
            )
        self.files: dict[str, CheckpointFiles] = {}
        # A `.meta` alone is no checkpoint.
        self._graphs: dict[str, CheckpointFiles] = {}
        self._beside: dict[str, list[str]] | None = None
        self._owners: AbstractSet[int] | None = None

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
        self._beside = None
        self._owners = RunDirectory(self._directory).owners()
        asked = self._listing.refresh(names, missing_ok=missing_ok)
        found, gone = _by_checkpoint(asked, self._counts)
        for directory in self._listing.directories:
            # A save in it does not always change the directory's own time.
            gone.setdefault(owner_of(directory), [])
        return self._assemble_all(found, gone)

    def is_current(self, name: str) -> bool:
        """Whether the known files of a checkpoint are still the same; lists no directory.

        A checkpoint that is being written is taken to have changed.
        """
        files = self.files.get(name)
        if files is None or files.temporary_at is not None:
            return False
        known: dict[str, Identity | None] = {link.name: None for link in files.links}
        known.update((fact.name, fact.identity) for fact in files.facts)
        return all(_identity_inside(f"{self._directory}/{name}") == known[name] for name in known)

    def beside(self, name: str) -> list[str]:
        """Returns all entries that begin like the data files of a checkpoint, as of the listing."""
        if self._beside is None:
            self._beside = {}
            for entry in self._listing.names():
                for start in _starts(entry):
                    self._beside.setdefault(start, []).append(entry)
        return self._beside.get(name, [])

    def unowned(self) -> dict[str, FileFact]:
        """Returns the regular files that belong to no checkpoint; there are few of them."""
        facts = {graph.name: graph for files in self._graphs.values() for graph in files.facts}
        for name in self._listing.names():
            owner, place = place_in(name)
            if not owner or place < 0:
                with suppress(FileNotFoundError, NotADirectoryError):
                    seen = os.lstat(os.path.join(self._directory, name))
                    if stat.S_ISREG(seen.st_mode):
                        facts[name] = FileFact.of(name, seen)
        return facts

    def other_directories(self) -> list[str]:
        """Returns the directories `NAME_temp` that no save has made."""
        return sorted(
            name
            for name in self._listing.directories
            if (files := self.files.get(owner_of(name))) is None or files.temporary_at is None
        )

    def names(self) -> Iterator[str]:
        """Returns the names of everything in the directory, as of the last scan."""
        return self._listing.names()

    def link_targets(self) -> frozenset[str]:
        """Returns the names of the files that symbolic links of the directory lead to."""
        return frozenset(fact.link.file for fact in self._listing.links.values())

    def _assemble_all(self, found: dict[str, bytes], gone: Mapping[str, list[int]]) -> set[str]:
        """Groups files again; returns the checkpoints that changed."""
        changed = {
            name for name in gone if name not in found and self._assemble(name, b"", gone[name])
        }
        # One after the other: there may be very many, and their memory is used again.
        while found:
            name, packed = found.popitem()
            if self._assemble(name, packed, gone.get(name)):
                changed.add(name)
        return changed

    def _assemble(self, name: str, packed: bytes, gone: list[int] | None) -> bool:
        """Groups the files of a checkpoint again; returns whether they changed.

        Args:
            name: The checkpoint.
            packed: The facts of the regular files that were asked about.
            gone: The places of other files that were asked about.
        """
        before = self.files.get(name) or self._graphs.get(name)
        if before is not None or gone is not None:
            files = self._assembled(name, before, packed, gone or [])
        else:
            # Records and the checkpoints that follow have the same names.
            files = CheckpointFiles(intern(name), b"".join(sorted(_chunks(packed))))
        if files == before:
            return False
        is_graph = len(files.packed) <= _SIZE and (not files.packed or files.graph is not None)
        if is_graph and files.temporary_at is None:
            is_graph = all(link.name.endswith(_META) for link in files.links)
            if is_graph:
                return self._keep_graph(files)
        self._graphs.pop(name, None)
        self.files[files.name] = files
        return True

    def _keep_graph(self, files: CheckpointFiles) -> bool:
        """Keeps a `.meta` alone, or nothing; returns whether it was a checkpoint before."""
        if files.packed or files.links:
            self._graphs[files.name] = files
        else:
            self._graphs.pop(files.name, None)
        return self.files.pop(files.name, None) is not None

    def _assembled(
        self, name: str, before: CheckpointFiles | None, packed: bytes, gone: Sequence[int]
    ) -> CheckpointFiles:
        before = before or CheckpointFiles(name)
        links = [place_in(link.name)[1] for link in before.links]
        chunks = {chunk[: _PLACE.size]: chunk for chunk in _chunks(before.packed)}
        for place in (*links, *gone):
            if place >= 0:
                chunks.pop(_PLACE.pack(place), None)
        chunks.update({chunk[: _PLACE.size]: chunk for chunk in _chunks(packed)})
        found = []
        for place in {*links, *gone}:
            fact = self._listing.links.get(f"{name}{_end(place)}") if place >= 0 else None
            if fact is not None and self._counts_named(name, fact.link.name):
                found.append(fact.link)
                if fact.file is not None:
                    chunks[_PLACE.pack(place)] = _packed(place, fact.file)
        return CheckpointFiles(
            name, b"".join(sorted(chunks.values())), *self._temporary(name), tuple(sorted(found))
        )

    def _counts(self, name: str, owner: int) -> bool:
        """Whether a file counts that belongs to `name`: no stranger put it beside its index."""
        if self._owners is None or owner in self._owners:
            return True
        with suppress(OSError):
            return os.lstat(self._directory / f"{name}{_INDEX}").st_uid not in self._owners
        return True

    def _counts_named(self, name: str, entry: str) -> bool:
        if self._owners is None:
            return True
        with suppress(OSError):
            return self._counts(name, os.lstat(self._directory / entry).st_uid)
        return True

    def _temporary(self, name: str) -> tuple[float | None, float | None, str]:
        directory = f"{name}{TEMPORARY}"
        if directory not in self._listing.directories or not self._counts_named(name, directory):
            return None, None, ""
        return look_into_temporary(os.path.join(self._directory, directory))


def _by_checkpoint(
    asked: Iterable[tuple[tuple[str, int], os.stat_result | None]],
    counts: Callable[[str, int], bool],
) -> tuple[dict[str, bytes], dict[str, list[int]]]:
    """Returns the packed facts of regular files, and the places of others, by checkpoint."""
    found: dict[str, bytes] = {}
    gone: dict[str, list[int]] = {}
    user = os.geteuid()
    for (name, place), seen in asked:
        if seen is None or place < 0 or not counts(name, seen.st_uid):
            gone.setdefault(name, []).append(place)
        else:
            at, doubtful, shared = seen.st_mtime_ns, is_doubtful(seen, user), seen.st_nlink > 1
            times = at >> 32, at & _LOW
            packed = _FACT.pack(place, seen.st_size, *times, seen.st_ino, doubtful, shared)
            found[name] = found.get(name, b"") + packed
    return found, gone


def _chunks(packed: bytes) -> list[bytes]:
    return [packed[at : at + _SIZE] for at in range(0, len(packed), _SIZE)]


def _fact(name: str, packed: tuple[int, ...]) -> FileFact:
    place, size, high, low, inode, doubtful, shared = packed
    at = high << 32 | low
    return FileFact(f"{name}{_end(place)}", size, at, inode, bool(doubtful), bool(shared))


def _packed(place: int, fact: FileFact) -> bytes:
    at = fact.modified_ns
    flags = fact.is_doubtful, fact.is_shared
    return _FACT.pack(place, fact.size, at >> 32, at & _LOW, fact.inode, *flags)


@lru_cache(maxsize=1024)
def _end(place: int) -> str:
    """Returns the end of the name of the file at a place."""
    if place == _AT_INDEX:
        return _INDEX
    if place == _AT_META:
        return _META
    number, count = divmod(place, _COUNTS)
    return f"{_DATA}{number:05d}-of-{count:05d}"


def size_of_directory(
    directory: Path, size_of: Callable[[os.stat_result], int] = lambda facts: facts.st_size
) -> int:
    """Returns the bytes of all files below a directory that can be read.

    Args:
        directory: The directory.
        size_of: Returns the bytes that count of a file.
    """
    size = 0
    for place, names in walk(directory):
        for name in names:
            with suppress(OSError):
                size += size_of(os.lstat(os.path.join(place, name)))
    return size


def scan_files_if_present(scanner: FileScanner) -> dict[str, CheckpointFiles]:
    """Scans a directory that may not exist."""
    scanner.refresh(missing_ok=True)
    return dict(scanner.files)


def _identity_inside(path: str) -> Identity | None:
    """Returns the same of what a symbolic link leads to; None if that is no file."""
    try:
        return identity_in(stat_inside(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def owner_of(name: str) -> str:
    """Returns the checkpoint that a file named `name` belongs to; empty if none."""
    return place_in(name)[0]


def owner_of_part(name: str) -> str:
    """Returns the same, but nothing for a graph file: a graph alone is no checkpoint."""
    owner, place = place_in(name)
    return "" if place == _AT_META else owner


def _relevant_place(name: str) -> tuple[str, int] | None:
    place = place_in(name)
    return place if place[0] else None


def place_in(name: str) -> tuple[str, int]:
    """Returns the checkpoint that a file named `name` belongs to, and the place of the file.

    The place is negative if the file is no part of a checkpoint. Then the name is that of the
    checkpoint if TensorFlow writes it into a directory of that name, or else empty.
    """
    # The usual cases first: this runs for every file of a directory.
    if len(name) <= _SHORT and not name.startswith("."):
        return _place_in(name)
    owner, place = _place_in(name)
    return (owner, place) if is_checkpoint_name(owner) else ("", _NOWHERE)


def _place_in(name: str) -> tuple[str, int]:
    """Returns the same of a name whose beginning is surely that of a checkpoint."""
    if name.endswith(_INDEX):
        return name[: -len(_INDEX)], _AT_INDEX
    if name.endswith(_ONLY_DATA):
        return name[:-_DATA_LENGTH], 1
    place = place_of(name)
    if place is not None:
        return name[:-_DATA_LENGTH], place[0] * _COUNTS + place[1]
    if name.endswith(TEMPORARY):
        return name[: -len(TEMPORARY)], _AT_TEMPORARY
    if name.endswith(_META):
        return name[: -len(_META)], _AT_META
    return "", _NOWHERE


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
    # Fixed width: text compares as the numbers do.
    return (int(number), int(count)) if number < count else None


__all__ = [
    "CheckpointFiles",
    "FileFact",
    "FileScanner",
    "owner_of",
    "place_of",
    "scan_files_if_present",
    "size_of_directory",
    "written_at",
]
