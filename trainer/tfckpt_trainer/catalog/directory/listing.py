"""Lists one directory repeatedly and tells which files may have changed.

Reading the names is cheap, asking for the size and time of each file is not. A replaced file has
another inode, which comes with the name. So each refresh asks about files that are new or have
another inode, files that the caller watches, and `STATS_PER_REFRESH` of the others in turn. In a
larger directory a file that is changed in place is noticed some refreshes later. Programs that
write checkpoints do not change complete ones in place.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tfckpt_trainer.bundle.links import Link, follow_link
from tfckpt_trainer.rundir.storage.identity import Identity

STATS_PER_REFRESH = 1024
"""How many known files one refresh asks about again."""


class FileFact(msgspec.Struct, frozen=True, order=True, gc=False):
    """One file: its name, its size, and what changes when it is modified or replaced.

    Attributes:
        is_doubtful: Whether its mode alone does not say that this process may read it.
        is_shared: Whether it had other names, as hard links, when it was asked about.
    """

    name: str
    size: int
    modified_ns: int
    inode: int
    is_doubtful: bool = False
    is_shared: bool = False

    @property
    def modified_at(self) -> float:
        """Modification time in seconds since the epoch."""
        return self.modified_ns / 1e9

    @property
    def identity(self) -> Identity:
        """Differs if the file was modified or replaced."""
        return self.size, self.modified_ns, self.inode

    @classmethod
    def of(cls, name: str, seen: os.stat_result) -> FileFact:
        """Returns the facts of the file `name`."""
        doubtful, shared = is_doubtful(seen, os.geteuid()), seen.st_nlink > 1
        return cls(name, seen.st_size, seen.st_mtime_ns, seen.st_ino, doubtful, shared)


class LinkFact(msgspec.Struct, frozen=True, gc=False):
    """A symbolic link, and the facts of the regular file it leads to in the same directory.

    Attributes:
        file: Has the name of the link; None if the link leads to no such file.
    """

    link: Link
    file: FileFact | None


class NameChanges(msgspec.Struct, frozen=True):
    """What changed in a directory since it was listed last.

    Attributes:
        names: The names that are there.
        inodes: The inode of each.
        new: The names that are new or have another inode.
        gone: The names that are gone.
        turn: The names that are to be asked about now because it is their turn.
    """

    names: Sequence[str]
    inodes: array[int]
    new: Sequence[str]
    gone: Sequence[str]
    turn: Sequence[str]


class NameList:
    """The names in one directory, in a fifth of the memory of a dictionary."""

    def __init__(
        self,
        directory: Path,
        *,
        only: Collection[str] | None = None,
        is_kept: Callable[[str], object] | None = None,
    ) -> None:
        """Prepares the list.

        Args:
            directory: The directory.
            only: The only names to look for, which needs no listing; by default all.
            is_kept: Whether to know a name; by default all.
        """
        self.directory = os.fspath(directory)
        self._only = only
        self._is_kept = is_kept
        self._text = ""
        self._inodes = array("Q")
        self._turn = 0

    def names(self) -> Iterator[str]:
        """Returns the names, as of the last `keep`; at no time all of them are in memory."""
        return (match[0] for match in _NAMES.finditer(self._text))

    def compare(self, missing_ok: bool = False) -> NameChanges:
        """Lists the directory again, and compares it with what `keep` kept.

        Args:
            missing_ok: Whether a missing directory counts as empty.

        Raises:
            OSError: The directory cannot be read.
        """
        names, inodes = self._read(missing_ok)
        turn = self._next_in_turn(names)
        if not self._inodes:
            return NameChanges(names, inodes, names, [], turn)
        if inodes == self._inodes and "/".join(names) == self._text:
            # The usual case, without a dictionary.
            return NameChanges(names, inodes, [], [], turn)
        before = dict(zip(self.names(), self._inodes, strict=True))
        inode_before = before.pop
        pairs = zip(names, inodes, strict=True)
        new = [name for name, inode in pairs if inode_before(name, None) != inode]
        return NameChanges(names, inodes, new, list(before), turn)

    def keep(self, changes: NameChanges) -> None:
        """Remembers a listing, after its changes were looked at."""
        if changes.new or changes.gone:
            # No name has a slash.
            self._text = "/".join(changes.names)
            self._inodes = changes.inodes

    def _read(self, missing_ok: bool) -> tuple[list[str], array[int]]:
        names: list[str] = []
        inodes = array("Q")
        if self._only is not None:
            for name in self._only:
                with suppress(FileNotFoundError, NotADirectoryError):
                    inodes.append(os.lstat(f"{self.directory}/{name}").st_ino)
                    names.append(name)
            return names, inodes
        is_kept = self._is_kept
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if is_kept is None or is_kept(entry.name):
                        names.append(entry.name)
                        inodes.append(entry.inode())
        except (FileNotFoundError, NotADirectoryError):
            if not missing_ok:
                raise
        return names, inodes

    def _next_in_turn(self, names: Sequence[str]) -> Sequence[str]:
        first, self._turn = self._turn, self._turn + STATS_PER_REFRESH
        chosen = names[first : self._turn]
        if self._turn >= len(names):
            self._turn = min(STATS_PER_REFRESH - len(chosen), len(names))
            chosen = [*chosen, *names[: self._turn]]
        return chosen


_NAMES = re.compile("[^/]+")

PlaceT = TypeVar("PlaceT")


class DirectoryListing(Generic[PlaceT]):
    """The entries of one directory; tells which of them may have changed.

    The caller keeps the facts of regular files: there may be hundreds of thousands.

    Attributes:
        links: The facts of the relevant symbolic links, by name.
        directories: The names of the relevant subdirectories.
    """

    def __init__(
        self,
        directory: Path,
        place_of: Callable[[str], PlaceT | None],
        is_kept: Callable[[str], object] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """Prepares the listing.

        Args:
            directory: The directory.
            place_of: What a file with this name is to the caller; None if it is irrelevant.
            is_kept: Whether to know the name of another file too; by default, of all.
            only: The only names to look for, which needs no listing; by default all.
        """
        is_listed = is_kept and (lambda name: is_kept(name) or place_of(name) is not None)
        self._entries = NameList(directory, only=only, is_kept=is_listed)
        self._place_of = place_of
        self._unsettled: set[str] = set()
        self.links: dict[str, LinkFact] = {}
        self.directories: set[str] = set()

    def refresh(
        self, watched: Iterable[str] = (), *, missing_ok: bool = False
    ) -> Iterator[tuple[PlaceT, os.stat_result | None]]:
        """Lists the directory again, and asks about the names that may have changed.

        Args:
            watched: Files to ask about even if it is not their turn.
            missing_ok: Whether a missing directory counts as empty.

        Yields:
            What each of these names is to the caller, with the facts of the regular file of that
            name, if it is one.

        Raises:
            OSError: The directory cannot be read. The next refresh tells the missed changes.
        """
        changes = self._entries.compare(missing_ok)
        # A file that replaced a deleted link may have got its inode.
        suspects = {*watched, *changes.turn, *self._unsettled}.difference(changes.new)
        for name in chain(changes.new, suspects, changes.gone):
            place = self._place_of(name)
            if place is not None:
                yield place, self._look_at(name)
        # Last: after an error the next refresh has to find the same changes.
        self._entries.keep(changes)

    def names(self) -> Iterator[str]:
        """Returns the names of all entries at the last refresh."""
        return self._entries.names()

    def _look_at(self, name: str) -> os.stat_result | None:
        """Returns the facts of a regular file; remembers what else is there."""
        try:
            seen = os.lstat(f"{self._entries.directory}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            # It was deleted after the names were read.
            self._forget(name)
            return None
        if stat.S_ISREG(seen.st_mode):
            if name in self._unsettled:
                self._forget(name)
            return seen
        if stat.S_ISLNK(seen.st_mode):
            self._follow(name)
            return None
        self._forget(name)
        self._unsettled.add(name)
        # Others are pipes and devices.
        if stat.S_ISDIR(seen.st_mode):
            self.directories.add(name)
        return None

    def _follow(self, name: str) -> None:
        """Follows a link."""
        try:
            link, seen = follow_link(self._entries.directory, name)
        except OSError as error:
            # It is gone, or another file took its place: the next refresh sees the new inode.
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EINVAL}:
                raise
            self._forget(name)
            return
        self._forget(name)
        self.links[name] = LinkFact(link, FileFact.of(name, seen) if seen is not None else None)
        # Its target may change while the link does not, so each refresh follows it again.
        self._unsettled.add(name)

    def _forget(self, name: str) -> None:
        self.directories.discard(name)
        self._unsettled.discard(name)
        self.links.pop(name, None)


def is_doubtful(seen: os.stat_result, user: int) -> bool:
    """Whether the mode of a file alone does not say that this user may read it."""
    if user == 0:
        return False
    if user == seen.st_uid:
        return not seen.st_mode & stat.S_IRUSR
    everyone = stat.S_IRGRP | stat.S_IROTH
    return seen.st_mode & everyone != everyone
