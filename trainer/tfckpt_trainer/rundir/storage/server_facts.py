"""Asks the server of a network disk about a file, instead of what the kernel remembers of it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import msgspec


def modification_time(descriptor: int) -> int:
    """Returns the modification time of an open file in nanoseconds, as the server knows it.

    `os.fstat` would return what the kernel remembers, for seconds or minutes on a network disk.

    Raises:
        OSError: The disk refuses.
    """
    return ask_server(descriptor).modified_ns


class ServerFacts(msgspec.Struct, frozen=True):
    """What the server says about a file.

    Attributes:
        modified_ns: When its content changed last, in nanoseconds since the epoch.
        size: Its bytes.
        mode: Its type and permissions, as in `os.stat_result`.
    """

    modified_ns: int
    size: int
    mode: int


def ask_server(descriptor: int) -> ServerFacts:
    """Returns the present facts of an open file. From then on, the kernel knows them too.

    Raises:
        OSError: The disk refuses.
    """
    found = _ask(descriptor, b"", _EMPTY_PATH)
    return found or _facts_of(os.fstat(descriptor))


def ask_server_about(path: Path) -> ServerFacts:
    """Returns the present facts of a file without opening it; those of a link itself.

    Raises:
        OSError: The disk refuses, or there is no such file.
    """
    found = _ask(_WORKING_DIRECTORY, os.fsencode(path), _NO_LINK)
    return found or _facts_of(os.lstat(path))


def wait_for_server(path: Path) -> None:
    """Asks the server for the facts of a directory in one call; returns once it has answered.

    Raises:
        OSError: The answer is an error.
    """
    if _ask(_WORKING_DIRECTORY, os.fsencode(path), 0) is None:
        # What `os.stat` returns, the kernel may remember.
        os.scandir(path).close()


def _ask(descriptor: int, name: bytes, flags: int) -> ServerFacts | None:
    """Returns the present facts of a file; None where the system has no such call."""
    statx = _statx()
    if statx is None:
        return None
    buffer = _Buffer()
    if statx(descriptor, name, flags | _FORCE_SYNC, _WANTED, buffer) == 0:
        mode, size, seconds, fraction = _FACTS.unpack_from(buffer)
        return ServerFacts(seconds * 1_000_000_000 + fraction, size, mode)
    if ctypes.get_errno() in _NO_STATX:
        return None
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), os.fsdecode(name) or None)


def _facts_of(facts: os.stat_result) -> ServerFacts:
    return ServerFacts(facts.st_mtime_ns, facts.st_size, facts.st_mode)


@cache
def _statx() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


_NO_STATX = {errno.ENOSYS, errno.EINVAL, errno.EPERM}
"""What an old kernel or a container without the call answers."""

# Of <linux/stat.h> and <fcntl.h>.
_EMPTY_PATH = 0x1000
_FORCE_SYNC = 0x2000
_NO_LINK = 0x100
_WORKING_DIRECTORY = -100
_WANTED = 0x1 | 0x40 | 0x200
_Buffer = ctypes.c_char * 256
_FACTS = struct.Struct("28xH10xQ64xqI")
"""Mode, size and modification time."""
