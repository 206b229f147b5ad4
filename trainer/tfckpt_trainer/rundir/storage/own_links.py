"""Opens paths that a person names. A symbolic link on the way is followed only if it is harmless.

Whoever may write to a directory of a path can put a link there, which leads to what only the person
may read or write. So a link is followed if its user or root made it, if it leads to another name in
its own directory, or if what it leads to belongs to whoever made it, as in the cache of a model hub
that another user filled.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import path_of_open
from tfckpt_trainer.rundir.storage.owners import is_own_there, user_name
from tfckpt_trainer.words.clean_text import clean

MOST_LINKS = 40
"""Links that are followed on the way of one path; Linux has the same limit."""

_PATH_ONLY = getattr(os, "O_PATH", 0)
"""Opens what needs no right to be read, such as a link; macOS has no such flag."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | _PATH_ONLY
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_IS_LINK = {errno.ELOOP, errno.ENOTDIR}
"""How a system refuses to open a link as a file, and as a directory."""

_HERE = {"", os.curdir}


class LinkOfOthersError(OSError):
    """A symbolic link of another user leads out of its directory, and is not followed."""

    def __init__(self, path: Path, owner: int, target: str, itself: str) -> None:
        """Says whose link it is, where it leads, and what to do.

        Args:
            path: The link.
            owner: The ID of the user who made it.
            target: Where it leads, as stored in it.
            itself: The path that was named, without the link.
        """
        super().__init__(
            errno.ELOOP,
            f"it is a symbolic link of {user_name(owner)} to {clean(target)}; links of other users "
            "are followed only within their directory, or to what is theirs. Name the file or "
            "directory itself: "
            f"`{shlex.quote(clean(itself))}`",
            str(path),
        )


class HeldDirectory(msgspec.Struct, frozen=True):
    """An open directory: whoever renames it, or puts a link in its place, changes nothing.

    Attributes:
        opened: A path by which this process reaches it, whatever lies at its name.
        named: Its path without links, for messages and for other programs.
    """

    opened: Path
    named: Path


def open_named_file(path: Path | str) -> BinaryIO:
    """Opens a regular file for reading; waits for no pipe.

    Raises:
        LinkOfOthersError: A link of another user on the way leads out of its directory.
        DamagedFileError: It is no regular file.
        OSError: It cannot be read.
    """
    return os.fdopen(open_named_descriptor(path)[0], "rb")


def open_named_descriptor(path: Path | str) -> tuple[int, os.stat_result]:
    """Opens a file as `open_named_file` does; returns its descriptor and its facts."""
    try:
        descriptor = _Way(path).open(_FILE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _irregular(path) from error
        raise
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return descriptor, facts


def resolve_named(directory: Path | str) -> Path:
    """Returns the path of a directory without links; what does not exist of it stays as it is.

    Raises:
        LinkOfOthersError: A link of another user on the way leads out of its directory.
        OSError: There are too many links.
    """
    way = _Way(directory)
    try:
        os.close(way.open(_DIRECTORY))
    except (LinkOfOthersError, _TooManyLinksError):
        raise
    except OSError:
        # What it is, and why it cannot be opened, is said by who uses it.
        pass
    return Path(os.path.normpath(way.place.joinpath(*way.rest)))


@contextmanager
def held_directory(directory: Path) -> Iterator[HeldDirectory]:
    """Opens a directory to write in it.

    Raises:
        LinkOfOthersError: A link of another user on the way leads out of its directory.
        OSError: It cannot be opened.
    """
    way = _Way(directory)
    descriptor = way.open(_DIRECTORY)
    held = HeldDirectory(path_of_open(descriptor) or way.place, way.place)
    try:
        yield held
    except OSError as error:
        error.filename = _as_named(error.filename, held.opened, directory)
        error.filename2 = _as_named(error.filename2, held.opened, directory)
        raise
    finally:
        os.close(descriptor)


def maker_of(link: str, target: str) -> int | None:
    """Returns the ID of the user who made a link, if what it leads to has to be that user's.

    This holds as long as it is the same when a file is opened.
    """
    owner = os.lstat(link).st_uid
    is_own = _is_inside(target) or _is_own_in(os.path.dirname(link), owner, os.geteuid())
    return None if is_own else owner


def _is_inside(target: str) -> bool:
    """Whether a link leads to a name in its own directory."""
    return "/" not in target and target != os.pardir


@cache
def _is_own_in(directory: str, owner: int, user: int) -> bool:
    # Asked once: on some disks, it changes the time of the directory.
    return is_own_there(Path(directory), owner, user)


def _as_named(file: Any, opened: Path, directory: Path) -> Any:
    """Returns the file of an error by the path that was named, if it is in the open directory."""
    if isinstance(file, str | os.PathLike) and Path(file).is_relative_to(opened):
        return str(directory / Path(file).relative_to(opened))
    return file


def _irregular(path: Path | str) -> DamagedFileError:
    return DamagedFileError(f"{path} is not a regular file. Move it away.")


class _TooManyLinksError(OSError):
    """The links on the way of a path are a loop."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, os.strerror(errno.ELOOP), path)


class _Link(msgspec.Struct, frozen=True):
    target: str
    owner: int


class _Way:
    """A path that is opened component by component.

    Attributes:
        place: The directory that was reached, without links.
        rest: The names that follow.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = os.fspath(path)
        self._start = "/" if self._path.startswith("/") else os.curdir
        self._links = 0
        self.place = Path(os.path.abspath(self._start))
        self.rest = _names(self._path)
        self._of_others: list[tuple[int, LinkOfOthersError]] = []

    def open(self, flags: int) -> int:
        """Opens the file or directory at the end of the path; returns its descriptor.

        Raises:
            LinkOfOthersError: A link of another user leads out of its directory.
            OSError: It cannot be opened.
        """
        here = os.open(self._start, _DIRECTORY)
        try:
            while self.rest:
                inner = self._step(here, flags if len(self.rest) == 1 else _DIRECTORY)
                if inner is not None:
                    os.close(here)
                    here = inner
            self._require_end_of(os.fstat(here).st_uid)
        except BaseException as error:
            os.close(here)
            if isinstance(error, OSError):
                self._require_end_of(None)
            raise
        return here

    def _require_end_of(self, owner: int | None) -> None:
        """Refuses links of others that led to something that is not theirs, or to nothing."""
        for maker, refusal in self._of_others:
            if maker != owner:
                raise refusal

    def _step(self, here: int, flags: int) -> int | None:
        """Opens the next name; None if it was a link, and `rest` begins with its target now."""
        name = self.rest[0]
        try:
            inner = os.open(name, flags, dir_fd=here)
        except OSError as error:
            link = _link_at(name, here) if error.errno in _IS_LINK else None
            if link is None:
                error.filename = str(self.place / name)
                raise
            return self._follow(link, here)
        self.place = self.place.parent if name == os.pardir else self.place / name
        self.rest = self.rest[1:]
        return inner

    def _follow(self, link: _Link, here: int) -> int | None:
        name, *after = self.rest
        self._links += 1
        if self._links > MOST_LINKS:
            raise _TooManyLinksError(self._path)
        directory = path_of_open(here) or self.place
        is_own = _is_inside(link.target) or is_own_there(directory, link.owner, os.geteuid())
        if not is_own:
            itself = os.path.normpath(self.place.joinpath(link.target, *after))
            refusal = LinkOfOthersError(self.place / name, link.owner, link.target, itself)
            self._of_others.append((link.owner, refusal))
        self.rest = [*_names(link.target), *after]
        if not link.target.startswith("/"):
            return None
        self.place = Path("/")
        return os.open("/", _DIRECTORY)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in _HERE]


def _link_at(name: str, here: int) -> _Link | None:
    """Returns the link at a name in an open directory; None if it is none."""
    if _PATH_ONLY:
        # What is looked at is held: another one may come to its name meanwhile.
        held = os.open(name, _PATH_ONLY | os.O_NOFOLLOW, dir_fd=here)
        try:
            facts = os.fstat(held)
            is_link = stat.S_ISLNK(facts.st_mode)
            return _Link(os.readlink("", dir_fd=held), facts.st_uid) if is_link else None
        finally:
            os.close(held)
    facts = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISLNK(facts.st_mode):
        return None
    target = os.readlink(name, dir_fd=here)
    after = os.stat(name, dir_fd=here, follow_symlinks=False)
    # A link never changes: the same one has the same target.
    is_same = os.path.samestat(facts, after) and facts.st_ctime_ns == after.st_ctime_ns
    return _Link(target, facts.st_uid) if is_same else None
