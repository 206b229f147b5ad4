"""What is in one directory, looked at again and again: only what changed is told.

Reading the names is cheap, asking for the size and time of each file is not. What was replaced
shows by its inode, which comes with the name. So each look asks for what is new or has another
inode, for what the caller watches, and for `STATS_PER_LOOK` of the rest in turn: a file that is
changed in place, which nobody who writes checkpoints does once they are complete, is noticed
some looks later in a directory of more files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.links import Link, follow_link

STATS_PER_LOOK = 1024
"""Files known from before whose size and time are asked for again in one look."""

Identity = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


class FileFact(msgspec.Struct, frozen=True, order=True, gc=False):
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


class LinkFact(msgspec.Struct, frozen=True, gc=False):
    """A symbolic link, and the facts of the regular file to which it leads in its directory.

    Attributes:
        file: Under the name of the link; None if it leads to no such file.
    """

    link: Link
    file: FileFact | None


class Listing:
    """The plain files, the symbolic links and the directories in one directory.

    Attributes:
        facts: Of the plain files that matter, by name.
        links: Of the symbolic links that matter, by name.
        directories: The names of the directories that matter.
    """

    def __init__(self, directory: Path, matters: Callable[[str], bool]) -> None:
        self._directory = os.fspath(directory)
        self._matters = matters
        self._inodes: dict[str, int] = {}
        self._changed: set[str] = set()
        self._strange: set[str] = set()
        self._turn: Iterator[str] = iter(())
        self.facts: dict[str, FileFact] = {}
        self.links: dict[str, LinkFact] = {}
        self.directories: set[str] = set()

    def refresh(self, watched: Iterable[str] = (), *, missing_ok: bool = False) -> set[str]:
        """Looks again.

        Args:
            watched: Names of files to look at whatever their turn.
            missing_ok: Whether a directory that is not there is an empty one.

        Returns:
            The names of what is new, gone, or another than it was.

        Raises:
            OSError: The directory cannot be read; the next look tells what this one did not.
        """
        inodes = self._read_names(missing_ok)
        # The inode of a link that was deleted may be that of the file that took its name.
        suspects = {*watched, *self._whose_turn_it_is(), *self._strange}
        if inodes != self._inodes:
            suspects |= self._inodes.keys() - inodes.keys()
            known = self._inodes.get
            suspects.update([name for name, inode in inodes.items() if known(name) != inode])
        self._changed.update([name for name in suspects if self._look_at(name, name in inodes)])
        # Not before: what could not be looked at is as unknown as it was.
        self._inodes = inodes
        changed, self._changed = self._changed, set()
        return changed

    def others(self) -> dict[str, FileFact]:
        """Looks at the plain files that do not matter; there are few of them."""
        found = {}
        for name in self._inodes:
            if not self._matters(name):
                with suppress(FileNotFoundError, NotADirectoryError):
                    seen = os.lstat(f"{self._directory}/{name}")
                    if stat.S_ISREG(seen.st_mode):
                        found[name] = _fact(name, seen)
        return found

    def names(self) -> Iterable[str]:
        """Returns the names of everything that the last look saw."""
        return self._inodes.keys()

    def _read_names(self, missing_ok: bool) -> dict[str, int]:
        try:
            with os.scandir(self._directory) as entries:
                return {entry.name: entry.inode() for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            if not missing_ok:
                raise
            return {}

    def _whose_turn_it_is(self) -> list[str]:
        names = list(islice(self._turn, STATS_PER_LOOK))
        if len(names) < STATS_PER_LOOK:
            self._turn = iter(tuple(self.facts))
            names += islice(self._turn, STATS_PER_LOOK - len(names))
        return names

    def _look_at(self, name: str, is_listed: bool) -> bool:
        """Returns whether something else is there than was known."""
        if not self._matters(name):
            return False
        if not is_listed:
            return self._forget(name)
        try:
            seen = os.lstat(f"{self._directory}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            # It was deleted since the names were read.
            return self._forget(name)
        if stat.S_ISREG(seen.st_mode):
            fact = _fact(name, seen)
            if self.facts.get(name) == fact:
                return False
            self._forget(name)
            self.facts[name] = fact
            return True
        if stat.S_ISLNK(seen.st_mode):
            return self._look_at_link(name)
        forgotten = self._forget(name)
        self._strange.add(name)
        if stat.S_ISDIR(seen.st_mode):
            self.directories.add(name)
            return True
        # A pipe, a device: nothing that anybody saved.
        return forgotten

    def _look_at_link(self, name: str) -> bool:
        """Returns whether the link, or the file at its end, is another than was known."""
        try:
            link, seen = follow_link(self._directory, name)
        except (FileNotFoundError, NotADirectoryError):
            return self._forget(name)
        except OSError as error:
            if error.errno == errno.EINVAL:
                # Another file took its place; the next look sees that by its inode.
                return self._forget(name)
            raise
        fact = LinkFact(link, _fact(name, seen) if seen is not None else None)
        if self.links.get(name) == fact:
            return False
        self._forget(name)
        self.links[name] = fact
        # The file at its end may change and the link not: each look follows it again.
        self._strange.add(name)
        return True

    def _forget(self, name: str) -> bool:
        """Returns whether it was known."""
        was_directory = name in self.directories
        self.directories.discard(name)
        self._strange.discard(name)
        was_link = self.links.pop(name, None) is not None
        return self.facts.pop(name, None) is not None or was_directory or was_link


def _fact(name: str, seen: os.stat_result) -> FileFact:
    return FileFact(name, seen.st_size, seen.st_mtime_ns, seen.st_ino)
