"""Files that others read while we write: atomic writes, bounded reads, no links followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tfckpt_trainer.errors import DamagedFileError

RECORD_LIMIT = 16 << 20
"""Bytes beyond which no file of ours is read: whatever it is, it is not one of ours."""


class NotFlushedError(OSError):
    """A change was made and the disk refused to flush it: a power loss may undo it."""


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replaces `path` by a file that holds `data`: a reader sees the old file or the new one.

    Args:
        path: The file; its directory exists.
        data: All of its content.
        durable: Whether to flush the file and its directory to disk. Heartbeats need not be.

    Raises:
        NotFlushedError: The file was replaced; its directory could not be flushed.
        OSError: Nothing was replaced; the temporary file is gone.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def overwrite(path: Path, data: bytes) -> None:
    """Writes `data` over the content of `path` in place: for a disk without a free block.

    The file keeps its inode and does not become shorter: what is left of its old content is
    replaced by spaces. A reader that comes in the middle may see a mixture of both contents, so
    this is only for files that are written again soon and may be skipped once.

    Args:
        path: An existing plain file with no other name.
        data: All of its new content; text that may end in spaces.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFileError: It is a symbolic link, no plain file, or has a second name.
        OSError: `data` needs more disk space than the file has, or the disk refused. If the disk
            refused midway, the file holds a mixture of both contents.
    """
    descriptor = _open_itself(path, os.O_WRONLY)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            raise DamagedFileError(f"{path} is not a plain file with one name; move it away.")
        # `st_blocks` counts units of 512 bytes on any file system.
        if len(data) > max(facts.st_size, 512 * facts.st_blocks):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        padded = data.ljust(facts.st_size)
        if os.pwrite(descriptor, padded, 0) < len(padded):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Renames `source` to `target`, in place of nothing.

    Raises:
        FileExistsError: There is something at `target`; nothing was moved.
        OSError: The disk refused.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    os.rename(source, target)


def sync_directory(directory: Path) -> None:
    """Flushes the entries of `directory`, so that renames in it survive a power loss.

    Some network file systems cannot flush a directory at all; they are taken as they are.

    Raises:
        NotFlushedError: The disk refused; the entries are there.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _flush(descriptor, directory)
    except NotFlushedError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def _flush(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise NotFlushedError(error.errno, error.strerror, str(path)) from error


def sync_file(path: Path) -> None:
    """Flushes the content of the regular file `path` to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path) -> BinaryIO:
    """Opens a regular file for reading; follows no symbolic link and waits for no pipe.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFileError: It is a link, a directory or a device.
        OSError: It cannot be read.
    """
    descriptor = _open_itself(path, os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(f"{path} is not a plain file; move it away.")
    return os.fdopen(descriptor, "rb")


def _open_itself(path: Path, flags: int) -> int:
    """Opens what `path` itself is: no symbolic link is followed, no pipe waited for."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError(
                f"{path} is a symbolic link, and a plain file was expected; move the link away."
            ) from error
        raise


def read_bounded(path: Path, limit: int = RECORD_LIMIT) -> bytes:
    """Reads a regular file of at most `limit` bytes, following no symbolic link.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFileError: It is a link, a directory or a device, or it is larger than `limit`.
        OSError: It cannot be read.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DamagedFileError(
                f"{path} has {size} bytes, and at most {limit} were expected; "
                "it is not a file of tfckpt-tui: move it away."
            )
        # Not `limit`: as many bytes would be allocated first.
        return file.read(size)


def append_line(path: Path, line: bytes, *, durable: bool = True) -> None:
    """Appends one line in one write; a reader may meet a torn last line only.

    Args:
        path: The file; it is created where it is missing.
        line: The line.
        durable: Whether to flush it to disk.

    Raises:
        NotFlushedError: The line is there; the disk refused to flush it.
        OSError: The line is not there, or only a part of it, which readers pass over.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o644)
    try:
        data = line.rstrip(b"\n") + b"\n"
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # A write was cut off before: its line must not swallow this one.
            data = b"\n" + data
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            _flush(descriptor, path)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, durable: bool = False) -> None:
    """Creates `path` and its parents; refuses a symbolic link in the place of `path` itself.

    Args:
        path: The directory.
        durable: Whether to flush the directory in which it was created.

    Raises:
        DamagedFileError: `path` is a symbolic link.
        NotFlushedError: It is there; the disk refused to flush that.
        OSError: It cannot be created.
    """
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise DamagedFileError(f"{path} is a symbolic link; a directory was expected there.")
    if durable and is_new:
        sync_directory(path.parent)
