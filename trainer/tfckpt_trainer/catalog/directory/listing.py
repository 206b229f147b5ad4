"""Lists one directory repeatedly and reports what changed.

Reading the names is cheap, asking for the size and time of each file is not. A replaced file has
another inode, which comes with the name. So each refresh asks about files that are new or have
another inode, files that the caller watches, and `STATS_PER_REFRESH` of the others in turn. In a
larger directory a file that is changed in place is noticed some refreshes later. Programs that
write checkpoints do not change complete ones in place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.links import Link, follow_link

STATS_PER_REFRESH = 1024
"""How many known files one refresh asks about again."""

Identity = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


class FileFact(msgspec.Struct, frozen=True, order=True, gc=False):
    """One file: its name, its size, and what changes when it is modified or replaced.

    Attributes:
        is_doubtful: Whether its mode alone does not say that this process may read it.
    """

    name: str
    size: int
    modified_ns: int
    inode: int
    is_doubtful: bool = False

    @property
    def modified_at(self) -> float:
        """Modification time in seconds since the epoch."""
        return self.modified_ns / 1e9

    @property
    def identity(self) -> Identity:
        """Differs if the file was modified or replaced."""
        return self.size, self.modified_ns, self.inode


class LinkFact(msgspec.Struct, frozen=True, gc=False):
    """A symbolic link, and the facts of the regular file it leads to in the same directory.

    Attributes:
        file: Has the name of the link; None if the link leads to no such file.
    """

    link: Link
    file: FileFact | None


class Listing:
    """The regular files, symbolic links and subdirectories of one directory.

    Attributes:
        facts: The facts of the relevant regular files, by name.
        links: The facts of the relevant symbolic links, by name.
        directories: The names of the relevant subdirectories.
    """

    def __init__(
        self,
        directory: Path,
        is_relevant: Callable[[str], bool],
        *,
        is_kept: Callable[[str], bool] = lambda name: True,
        only: Collection[str] | None = None,
    ) -> None:
        """Prepares the listing.

        Args:
            directory: The directory.
            is_relevant: Whether a file with this name matters.
            is_kept: Whether to know the name of another file too; by default, of all.
            only: The only names to look for, which needs no listing; by default all.
        """
        self._only = only
        self._is_kept = is_kept
        self._directory = os.fspath(directory)
        self._is_relevant = is_relevant
        self._inodes: dict[str, int] = {}
        self._changed: set[str] = set()
        self._unsettled: set[str] = set()
        self._turn: Iterator[str] = iter(())
        self.facts: dict[str, FileFact] = {}
        self.links: dict[str, LinkFact] = {}
        self.directories: set[str] = set()

    def refresh(self, watched: Iterable[str] = (), *, missing_ok: bool = False) -> set[str]:
        """Lists the directory again.

        Args:
            watched: Files to ask about even if it is not their turn.
            missing_ok: Whether a missing directory counts as empty.

        Returns:
            The names that are new, gone or changed.

        Raises:
            OSError: The directory cannot be read. The next refresh reports the missed changes.
        """
        inodes = self._read_names(missing_ok)
        # A file that replaced a deleted link may have got its inode.
        suspects = {*watched, *self._next_in_turn(), *self._unsettled}
        if inodes != self._inodes:
            suspects |= self._inodes.keys() - inodes.keys()
            inode_before = self._inodes.get
            suspects.update([name for name, inode in inodes.items() if inode_before(name) != inode])
        self._changed.update([name for name in suspects if self._check(name, name in inodes)])
        # Last: after an error the next refresh has to find the same changes.
        self._inodes = inodes
        changed, self._changed = self._changed, set()
        return changed

    def check(self, names: Iterable[str]) -> set[str]:
        """Asks about these known files without listing the directory; returns what changed."""
        return {name for name in names if self._check(name, name in self._inodes)}

    def others(self) -> dict[str, FileFact]:
        """Returns the regular files that are not relevant; there are few of them."""
        facts = {}
        for name in self._inodes:
            if not self._is_relevant(name):
                with suppress(FileNotFoundError, NotADirectoryError):
                    seen = os.lstat(f"{self._directory}/{name}")
                    if stat.S_ISREG(seen.st_mode):
                        facts[name] = _fact(name, seen)
        return facts

    def names(self) -> Iterable[str]:
        """Returns the names of all entries at the last refresh."""
        return self._inodes.keys()

    def _read_names(self, missing_ok: bool) -> dict[str, int]:
        if self._only is not None:
            return self._inodes_of(self._only)
        try:
            with os.scandir(self._directory) as entries:
                return {
                    entry.name: entry.inode()
                    for entry in entries
                    if self._is_kept(entry.name) or self._is_relevant(entry.name)
                }
        except (FileNotFoundError, NotADirectoryError):
            if not missing_ok:
                raise
            return {}

    def _inodes_of(self, names: Iterable[str]) -> dict[str, int]:
        inodes = {}
        for name in names:
            with suppress(FileNotFoundError, NotADirectoryError):
                inodes[name] = os.lstat(f"{self._directory}/{name}").st_ino
        return inodes

    def _next_in_turn(self) -> list[str]:
        names = list(islice(self._turn, STATS_PER_REFRESH))
        if len(names) < STATS_PER_REFRESH:
            self._turn = iter(tuple(self.facts))
            names += islice(self._turn, STATS_PER_REFRESH - len(names))
        return names

    def _check(self, name: str, is_listed: bool) -> bool:
        """Asks about one name; returns whether it changed."""
        if not self._is_relevant(name):
            return False
        if not is_listed:
            return self._forget(name)
        try:
            seen = os.lstat(f"{self._directory}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            # It was deleted after the names were read.
            return self._forget(name)
        if stat.S_ISREG(seen.st_mode):
            fact = _fact(name, seen)
            if self.facts.get(name) == fact:
                return False
            self._forget(name)
            self.facts[name] = fact
            return True
        if stat.S_ISLNK(seen.st_mode):
            return self._check_link(name)
        forgotten = self._forget(name)
        self._unsettled.add(name)
        if stat.S_ISDIR(seen.st_mode):
            self.directories.add(name)
            return True
        # A pipe or a device.
        return forgotten

    def _check_link(self, name: str) -> bool:
        """Follows a link; returns whether the link or its target changed."""
        try:
            link, seen = follow_link(self._directory, name)
        except (FileNotFoundError, NotADirectoryError):
            return self._forget(name)
        except OSError as error:
            if error.errno == errno.EINVAL:
                # Another file took its place; the next refresh sees the new inode.
                return self._forget(name)
            raise
        fact = LinkFact(link, _fact(name, seen) if seen is not None else None)
        if self.links.get(name) == fact:
            return False
        self._forget(name)
        self.links[name] = fact
        # Its target may change while the link does not, so each refresh follows it again.
        self._unsettled.add(name)
        return True

    def _forget(self, name: str) -> bool:
        """Drops a name; returns whether it was known."""
        was_directory = name in self.directories
        self.directories.discard(name)
        self._unsettled.discard(name)
        was_link = self.links.pop(name, None) is not None
        return self.facts.pop(name, None) is not None or was_directory or was_link


def _fact(name: str, seen: os.stat_result) -> FileFact:
    doubtful = _is_doubtful(seen)
    return FileFact(name, seen.st_size, seen.st_mtime_ns, seen.st_ino, doubtful)


def _is_doubtful(seen: os.stat_result) -> bool:
    user = os.geteuid()
    if user == seen.st_uid:
        return user != 0 and not seen.st_mode & stat.S_IRUSR
    everyone = stat.S_IRGRP | stat.S_IROTH
    return user != 0 and seen.st_mode & everyone != everyone
