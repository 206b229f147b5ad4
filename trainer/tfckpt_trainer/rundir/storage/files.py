"""File access that is safe beside other processes: atomic writes, bounded reads, no links."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from tfckpt_trainer.errors import DamagedFileError, RefusedError
from tfckpt_trainer.machine.permissions import CONTROL
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.owners import is_own_there, require_owner, user_name
from tfckpt_trainer.rundir.storage.parent_directory import (
    LinkedDirectoryError,
    LinkedFileError,
    ParentDirectory,
    link_words,
)
from tfckpt_trainer.rundir.storage.server_facts import ask_server, modification_time
from tfckpt_trainer.rundir.storage.trees import walk
from tfckpt_trainer.words.advice import Advice

RECORD_LIMIT = 16 << 20
"""Largest file that is read as a record, in bytes."""

RACY_SECONDS = 2.0
"""A file or directory changed this recently may change again without a new time.

Some disks store times in whole seconds, others in units of two.
"""

STALE_TRIES = 3
"""How often a file is opened that is replaced while it is read, on a network disk."""


class IrregularFileError(OSError):
    """A file that is changed in place is a pipe, a device or a socket."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file. Move it away", path)


class NotFlushedError(OSError):
    """A change was made but not flushed to disk. A power loss may undo it."""


def write_atomic(
    path: Path,
    data: bytes,
    *,
    durable: bool = True,
    mode: int | None = None,
    temporary: Path | None = None,
) -> None:
    """Replaces the file `path` atomically: readers see either the old or the new content.

    Args:
        path: The file. Its directory must exist.
        data: The new content.
        durable: Whether to flush the file and its directory to disk.
        mode: Its permissions; None for those that the ones who share its directory need.
        temporary: Where to write first; by default a new name in the same directory.

    Raises:
        NotFlushedError: The file was replaced, but its directory could not be flushed.
        OSError: The file was not replaced. The temporary file was deleted.
    """
    if temporary is None:
        # The name of the file may leave no room for more in a name of 255 bytes.
        start = os.fsdecode(os.fsencode(path.name)[:200])
        temporary = path.with_name(f".{start}.{uuid4().hex}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = disk().open(temporary, flags, 0o644 if mode is None else mode)
        with _writer(_File(descriptor, "wb")) as file:
            if mode is None:
                share(descriptor, path.parent)
            elif stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                disk().set_mode(descriptor, mode)
            file.write(data)
            if durable:
                file.flush()
                disk().flush(descriptor)
        rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            delete_file(temporary)
        if isinstance(error, OSError) and not isinstance(error, LinkedDirectoryError):
            # Nobody else knows the temporary file, and a full disk names none.
            error.filename, error.filename2 = str(path), None
        raise
    if durable:
        sync_directory(path.parent)


def overwrite(path: Path, data: bytes) -> None:
    """Overwrites the content of `path` in place. Works on a full disk.

    The file is padded with spaces to its old size. A concurrent reader may see a mixture of old
    and new content, so use this only for files that are rewritten often, such as heartbeats.

    Args:
        path: An existing regular file with one hard link.
        data: The new content. Trailing spaces must not matter to readers.

    Raises:
        FileNotFoundError: The file does not exist.
        DamagedFileError: The path is not a regular file with one hard link.
        OSError: `data` needs more disk space than the file has, or the write failed. After a
            partial write the file holds a mixture of old and new content.
    """
    descriptor = _open_itself(path, os.O_WRONLY)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            raise DamagedFileError(
                f"{path} is not a regular file with one hard link. Move it away."
            )
        # The unit of `st_blocks` is 512 bytes on every file system.
        if len(data) > max(facts.st_size, 512 * facts.st_blocks):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        padded = data.ljust(facts.st_size)
        if disk().write(descriptor, padded, 0) < len(padded):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Renames `source` to `target` without replacing anything.

    Raises:
        FileExistsError: `target` exists; nothing was moved.
        OSError: The rename failed.
    """
    if facts_of(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    rename(source, target)


def rename(source: Path, target: Path) -> None:
    """Renames `source` to `target`, and replaces what a rename replaces.

    A directory in place of a file of the library is kept aside: nothing could be written there.

    Raises:
        OSError: The rename failed.
    """
    try:
        disk().rename(source, target)
    except IsADirectoryError:
        if CONTROL not in target.parts:
            raise
        move_aside(target)
        disk().rename(source, target)


def delete_file(path: Path) -> None:
    """Deletes a file, if it exists.

    A directory in place of a file of the library is kept aside, as `rename` does.

    Raises:
        OSError: It cannot be deleted.
    """
    try:
        disk().remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        # Linux names it so; others refuse to remove a directory as they refuse what is closed.
        is_directory = isinstance(error, IsADirectoryError) or path.is_dir()
        if not is_directory or CONTROL not in path.parts:
            raise
        move_aside(path)


def delete_tree(directory: Path) -> None:
    """Deletes a directory with all that is in it.

    Raises:
        OSError: It does not exist, is a link, or cannot be deleted.
    """
    disk().remove_tree(directory)


def delete_if_without_files(directory: Path) -> bool:
    """Deletes a directory and those below it, unless something else is there; whether it did."""
    if any(names for _, names in walk(directory)):
        return False
    try:
        disk().remove_directories(directory)
    except OSError:
        return False
    return True


def delete_if_empty(directory: Path) -> bool:
    """Deletes a directory that has no entries; returns whether it did."""
    try:
        disk().remove_directory(directory)
    except OSError:
        return False
    return True


def facts_of(path: Path) -> os.stat_result | None:
    """Returns the `lstat` result of what lies at `path`; None if nothing does.

    Raises:
        OSError: It cannot be looked at, or a directory at or below `.tfckpt` is a link.
    """
    try:
        return disk().facts(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def move_aside(path: Path) -> str:
    """Renames what lies at `path`, so that it is kept and the name is free; returns its new name.

    Raises:
        OSError: The rename failed.
    """
    aside = path.with_name(f"{path.name}.damaged-{uuid4().hex[:8]}")
    rename(path, aside)
    return aside.name


def sync_directory(directory: Path) -> None:
    """Flushes the entries of `directory`, so that renames in it survive a power loss.

    Does nothing on network file systems that cannot flush directories.

    Raises:
        NotFlushedError: The flush failed.
    """
    descriptor = open_directory(directory)
    try:
        _flush(descriptor, directory)
    except NotFlushedError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def open_directory(directory: Path | str) -> int:
    """Opens a directory for reading.

    Raises:
        OSError: It cannot be opened, or it or one above it is a link at or below `.tfckpt`.
    """
    return disk().open(f"{os.fspath(directory)}/.", os.O_RDONLY | os.O_DIRECTORY)


def list_directory(directory: Path | str) -> list[os.DirEntry[str]]:
    """Returns the entries of `directory`; none if it does not exist.

    Below `.tfckpt` no link is followed: what is behind one does not exist.
    """
    try:
        return disk().entries(directory)
    except (FileNotFoundError, NotADirectoryError, LinkedDirectoryError):
        return []


def _flush(descriptor: int, path: Path) -> None:
    try:
        disk().flush(descriptor)
    except OSError as error:
        raise NotFlushedError(error.errno, error.strerror, str(path)) from error


def sync_file(path: Path) -> None:
    """Flushes the content of the regular file `path` to disk; waits for no pipe in its place."""
    descriptor = disk().open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        disk().flush(descriptor)
    finally:
        os.close(descriptor)


def start_flush(descriptor: int, begin: int, size: int) -> None:
    """Has the disk begin to write a part of an open file, and does not wait for it.

    What relies on the file still needs a flush; it then waits for less.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            # Linux has no call for this alone. What it is advised to drop, it first writes, and it
            # drops nothing that is not written yet.
            os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def open_plain(path: Path | str) -> BinaryIO:
    """Opens a regular file for reading. Does not follow symbolic links or wait for pipes.

    Raises:
        FileNotFoundError: The file does not exist.
        DamagedFileError: The path is not a regular file.
        OSError: The file cannot be read.
    """
    return os.fdopen(open_descriptor(path)[0], "rb")


def open_descriptor(path: Path | str) -> tuple[int, os.stat_result]:
    """Opens a file as `open_plain` does; returns its descriptor and its facts."""
    descriptor = _open_itself(path, os.O_RDONLY)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return descriptor, facts


def path_of_open(descriptor: int) -> Path | None:
    """Returns a path by which processes of this user read an open file, whatever its name leads to.

    It is valid until the file is closed. None where the system has none: Linux has.
    """
    path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    return path if path.exists() else None


def _open_itself(path: Path | str, flags: int) -> int:
    """Opens `path` without following a symbolic link or waiting for a pipe."""
    try:
        return disk().open(path, flags | os.O_NONBLOCK)
    except LinkedDirectoryError as error:
        raise DamagedFileError(link_words(error.filename)) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError(
                f"{path} is a symbolic link; expected a regular file. Move the link away."
            ) from error
        if error.errno == errno.ENXIO:
            raise _irregular(path) from error
        raise


def _irregular(path: Path | str) -> DamagedFileError:
    return DamagedFileError(f"{path} is not a regular file. Move it away.")


def read_bounded(
    path: Path | str, limit: int = RECORD_LIMIT, *, written_by: int | None = None
) -> bytes:
    """Reads a regular file of at most `limit` bytes. Does not follow symbolic links.

    Args:
        path: The file.
        limit: Its largest size in bytes.
        written_by: The only user besides root who may have written it; None for any. Give it
            whenever the content is executed or believed.

    Raises:
        NotTrustedError: Another user could have written the file.
        FileNotFoundError: The file does not exist.
        DamagedFileError: The path is not a regular file, or the file is larger than `limit`.
        OSError: The file cannot be read.
    """
    return read_timed(path, limit, written_by=written_by)[0]


def file_time(path: Path | str) -> float:
    """Returns the modification time of a file or directory, by the clock of its file system.

    Raises:
        OSError: The file cannot be read.
    """
    descriptor = disk().open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return modification_time(descriptor) / 1e9
    finally:
        os.close(descriptor)


def read_timed(
    path: Path | str, limit: int = RECORD_LIMIT, *, written_by: int | None = None
) -> tuple[bytes, int]:
    """Reads a file as `read_bounded` does; also returns when it changed, in nanoseconds."""
    for _ in range(STALE_TRIES - 1):
        try:
            return _read_once(path, limit, written_by)
        except OSError as error:
            # Another machine replaced the file between the opening and the reading.
            if error.errno != errno.ESTALE:
                raise
    return _read_once(path, limit, written_by)


def _read_once(path: Path | str, limit: int, written_by: int | None) -> tuple[bytes, int]:
    descriptor = _open_itself(path, os.O_RDONLY)
    try:
        # The size that the kernel remembers may be an old one on a network disk.
        facts = ask_server(descriptor)
        if not stat.S_ISREG(facts.mode):
            raise _irregular(path)
        if written_by is not None:
            require_owner(path, descriptor, written_by)
        if facts.size > limit:
            raise DamagedFileError(
                f"{path} has {facts.size} bytes; expected at most {limit}. tfckpt-tui did not "
                "write it. Move the file away."
            )
        return read_to_end(descriptor, facts.size), facts.modified_ns
    finally:
        os.close(descriptor)


def read_to_end(descriptor: int, size: int) -> bytes:
    """Reads an open regular file of `size` bytes; less if it was cut since."""
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def append_line(path: Path, line: bytes, *, durable: bool = True) -> int:
    """Appends one line in one write, so that only the last line can be incomplete.

    Args:
        path: The file. It is created if it does not exist.
        line: The line.
        durable: Whether to flush the file to disk.

    Returns:
        The size of the file after it, in bytes.

    Raises:
        NotFlushedError: The line was written but not flushed to disk.
        OSError: The line was not written, or only in part. Readers skip a partial line.
    """
    descriptor = open_shared(path, os.O_RDWR | os.O_APPEND)
    try:
        data = line.rstrip(b"\n") + b"\n"
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # An earlier write was incomplete; this line must not become a part of it.
            data = b"\n" + data
        if disk().write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            _flush(descriptor, path)
        return size + len(data)
    finally:
        os.close(descriptor)


def open_shared(path: Path, flags: int) -> int:
    """Opens a file that is changed in place; creates it for all who share its directory.

    A file with a further hard link becomes a copy first: the other one is that of another run, such
    as one that `cp -al` copied.

    Args:
        path: The file.
        flags: The flags of `os.open`, without those that create.

    Raises:
        LinkedFileError: It is a symbolic link.
        IrregularFileError: It is a pipe, a device or a socket; a pipe could keep a writer waiting.
        OSError: It cannot be opened.
    """
    descriptor = _open_or_create(path, flags | os.O_NONBLOCK, 0o644, 0o064)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise IrregularFileError(str(path))
    if _has_further_links(facts):
        os.close(descriptor)
        _separate(path, facts)
        descriptor = _open_or_create(path, flags | os.O_NONBLOCK, 0o644, 0o064)
    os.set_blocking(descriptor, True)
    return descriptor


def open_or_move_aside(path: Path, flags: int) -> tuple[int, str]:
    """Opens a file as `open_shared` does. What lies there and cannot be opened is moved aside.

    For a run that has to go on.

    Args:
        path: The file.
        flags: The flags of `os.open`, without those that create.

    Returns:
        The descriptor, and what was moved, as a sentence; empty if nothing was.

    Raises:
        DamagedFileError: Another process puts something there again and again.
        OSError: It cannot be opened, and nothing that is in the way can be moved.
    """
    told = ""
    for _ in range(STALE_TRIES):
        try:
            return open_shared(path, flags), told
        except (PermissionError, IsADirectoryError, LinkedFileError, IrregularFileError):
            told = f"{path} is no file that this user can write. It is {move_aside(path)} now."
    return open_shared(path, flags), told


def _open_or_create(path: Path, flags: int, mode: int, most: int) -> int:
    """Opens a file, or creates it.

    Args:
        path: The file.
        flags: The flags of `os.open`, without those that create.
        mode: The permissions of a new file in a directory that nobody shares.
        most: The permissions of others to give at most where they share it.
    """
    try:
        return disk().open(path, flags)
    except FileNotFoundError:
        descriptor = disk().open(path, flags | os.O_CREAT, mode)
    except LinkedDirectoryError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkedFileError(str(path)) from None
        # A socket, or a pipe that nobody reads.
        if error.errno == errno.ENXIO:
            raise IrregularFileError(str(path)) from None
        raise
    share(descriptor, path.parent, most)
    return descriptor


def _has_further_links(facts: os.stat_result) -> bool:
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1


def _separate(path: Path, facts: os.stat_result) -> None:
    """Replaces a file by a copy of it, which has no other link."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with open_plain(path) as old, create_file(temporary) as new:
            while data := old.read(RECORD_LIMIT):
                new.write(data)
            disk().set_mode(new.fileno(), stat.S_IMODE(facts.st_mode))
        rename(temporary, path)
    except BaseException:
        delete_file(temporary)
        raise


def open_lock(path: Path) -> int:
    """Opens a file to be locked, and creates it.

    Whoever can open it can hold the lock, even if only for reading. So only those can who may write
    to its directory.

    Raises:
        LinkedFileError: It is a symbolic link.
        RefusedError: Somebody else can replace it while it is held.
        OSError: It cannot be opened.
    """
    directory = os.stat(path.parent)
    writable = directory.st_mode
    most = (0o060 if writable & stat.S_IWGRP else 0) | (0o006 if writable & stat.S_IWOTH else 0)
    descriptor = _open_or_create(path, os.O_RDWR, 0o600, most)
    facts = os.fstat(descriptor)
    if _has_further_links(facts) and _is_free(descriptor):
        # While it is held, another file would let a second one hold it.
        _separate(path, facts)
        os.close(descriptor)
        descriptor = _open_or_create(path, os.O_RDWR, 0o600, most)
    facts = os.fstat(descriptor)
    if writable & stat.S_ISVTX and facts.st_uid not in {0, os.geteuid(), directory.st_uid}:
        os.close(descriptor)
        raise _lock_of_others(path, facts.st_uid)
    mode = stat.S_IMODE(facts.st_mode)
    closed = mode & (0o700 | most)
    if closed != mode:
        # Of an earlier release. Only its owner can close it.
        with suppress(PermissionError):
            disk().set_mode(descriptor, closed)
    return descriptor


def _lock_of_others(path: Path, owner: int) -> RefusedError:
    return RefusedError(
        f"{path} belongs to {user_name(owner)}, who can replace it while somebody else holds it: "
        f"{path.parent} has the sticky bit.",
        Advice.of(
            "Take the bit away with `chmod -t {directory}`, or delete the lock with `rm {lock}` "
            "while nobody uses the run.",
            directory=shlex.quote(os.fspath(path.parent)),
            lock=shlex.quote(os.fspath(path)),
        ),
    )


def _is_free(descriptor: int) -> bool:
    """Whether nobody held a lock; now this descriptor holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def create_file(path: Path, buffering: int = -1) -> BinaryIO:
    """Creates a file for writing, which those who share its directory may read.

    Args:
        path: The file.
        buffering: As `open` takes it.

    Raises:
        FileExistsError: It exists.
        OSError: It cannot be created.
    """
    return _writer(_File(path, "xb", opener=_create), buffering)


class _File(io.FileIO):
    """A file whose content goes through the disk in use."""

    def write(self, data: Any) -> int:
        """Writes a buffer at the present position; returns how many bytes."""
        return disk().write(self.fileno(), data)


def _writer(file: io.FileIO, buffering: int = -1) -> BinaryIO:
    """Returns a file as `open` would."""
    if buffering == 0:
        return file
    return io.BufferedWriter(file, io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering)


def _create(path: str, flags: int) -> int:
    descriptor = disk().open(path, flags, 0o666)
    share(descriptor, Path(path).parent)
    return descriptor


_REPLACED = 0o044
_DIRECTORY = 0o075
"""What others may do with a file that is replaced, and with a directory."""

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def share(descriptor: int, directory: Path, most: int = _REPLACED) -> None:
    """Gives a new file the permissions of its directory if a group shares that.

    Whoever comes first to a run with a umask of 077 would lock out all others. What is replaced by
    a rename needs no more than to be read: who may write to the directory replaces it.

    Args:
        descriptor: The open file or directory.
        directory: Its directory.
        most: The permissions of others to give at most.
    """
    facts = os.fstat(descriptor)
    if facts.st_mode & most == most:
        return
    place = os.stat(directory)
    if not place.st_mode & stat.S_IWOTH:
        # Those outside of the group are none of those who share it.
        most &= ~stat.S_IRWXO
    given = facts.st_mode | place.st_mode & most
    if place.st_mode & stat.S_IWGRP and place.st_gid == facts.st_gid and given != facts.st_mode:
        # Another process may have created it meanwhile, as another user.
        with suppress(PermissionError):
            disk().set_mode(descriptor, stat.S_IMODE(given))


def share_file(path: Path) -> None:
    """Gives a file that another library has just written the permissions of its directory.

    Raises:
        OSError: It cannot be opened.
    """
    descriptor, _ = open_descriptor(path)
    try:
        share(descriptor, path.parent)
    finally:
        os.close(descriptor)


def share_directory(directory: Path) -> None:
    """Gives a directory that another library has just made the permissions of its parent.

    Raises:
        OSError: The parent cannot be read.
    """
    with ParentDirectory(directory) as parent:
        _share_named(parent.name, parent.descriptor, directory.parent, _DIRECTORY)


def make_directory(path: Path, *, durable: bool = False) -> None:
    """Creates the directory `path` and its parents. Refuses a symbolic link at `path`.

    Those who share the parent directory share the new one.

    Args:
        path: The directory.
        durable: Whether to flush its parent directory to disk.

    Raises:
        DamagedFileError: `path` is a symbolic link.
        NotADirectoryError: `path` is a file.
        NotFlushedError: The directory was created but not flushed to disk.
        OSError: The directory cannot be created.
    """
    facts = facts_of(path)
    if facts is None:
        _make_levels(path)
        if durable:
            sync_directory(path.parent)
    elif stat.S_ISLNK(facts.st_mode):
        raise DamagedFileError(link_words(path))
    elif not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a directory; move it away", str(path))


def provide_directory(path: Path) -> None:
    """Creates the directory `path` and its parents, unless there is one or a link to one.

    Raises:
        DamagedFileError: `path` is a symbolic link to something else.
        NotADirectoryError: `path` is a file.
        OSError: The directory cannot be created.
    """
    if not path.is_dir():
        make_directory(path)


def _make_levels(path: Path) -> None:
    if not path.parent.exists():
        _make_levels(path.parent)
    with suppress(FileExistsError):
        create_directory(path)


def create_directory(path: Path, *, is_private: bool = False) -> None:
    """Creates a directory, which those who share its parent directory share.

    Args:
        path: The directory.
        is_private: Whether only its owner may use it.

    Raises:
        FileExistsError: It exists.
        OSError: It cannot be created.
    """
    disk().make_directory(path, 0o700 if is_private else 0o777)
    if is_private:
        return
    descriptor = disk().open(path, _DIRECTORY_FLAGS)
    try:
        share(descriptor, path.parent, _DIRECTORY)
    finally:
        os.close(descriptor)


class PrivateDirectory:
    """An open directory that only its user may change: whoever may rename it changes nothing.

    Attributes:
        path: A path by which processes of this user reach it, whatever lies at its name.
    """

    def __init__(self, directory: Path) -> None:
        """Opens it.

        Raises:
            RefusedError: Another user could change it: it is not the one that was made.
            OSError: It cannot be opened.
        """
        self._descriptor = disk().open(directory, _DIRECTORY_FLAGS)
        self.path = path_of_open(self._descriptor) or directory
        facts = os.fstat(self._descriptor)
        user = os.geteuid()
        is_own = is_own_there(directory.parent, facts.st_uid, user)
        if not is_own or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self.close()
            raise RefusedError(f"Somebody else put a directory in place of {directory}. Try again.")

    def close(self) -> None:
        """Closes it; `path` leads nowhere then."""
        os.close(self._descriptor)

    def share_all(self, directory: Path) -> None:
        """Gives all files in it the permissions of the directory they will be in.

        Another program wrote them. Nobody else could put a file there, such as one with secrets
        that this user wrote elsewhere.

        Raises:
            OSError: A directory cannot be read.
        """
        for _, directories, files, here in os.fwalk(".", dir_fd=self._descriptor):
            for names, most in ((directories, _DIRECTORY), (files, _REPLACED)):
                for name in names:
                    _share_named(name, here, directory, most)


def _share_named(name: str | Path, here: int | None, directory: Path, most: int) -> None:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=here)
    except OSError:
        # A link, for example.
        return
    try:
        share(descriptor, directory, most)
    finally:
        os.close(descriptor)
