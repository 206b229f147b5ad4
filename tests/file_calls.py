"""Faults at the file calls of a process, also at those that TensorFlow makes itself.

    with patch.dict(os.environ, LD_PRELOAD=str(build(directory))):
        ...  # starts the process

There, `begin(root, Fault(errno.EIO, 12, 20))` has its calls of these numbers fail.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from requirements import missing

SOURCE = Path(__file__).with_suffix(".c")
KILL, TEAR = 0, -1


class Fault(NamedTuple):
    """What happens at calls of a process.

    Attributes:
        what: The number of an error, `KILL`, or `TEAR` to end it after half of what it writes.
        first: The first call at which it happens, counted from 1.
        last: The last one.
        of_reads: Whether calls that read are counted, and not those that change the disk.
    """

    what: int
    first: int
    last: int
    of_reads: bool = False


NONE = Fault(KILL, 0, 0)


def build(place: Path) -> Path:
    """Compiles what has to be loaded before the C library; returns the file, in a directory."""
    library = place / "file_calls.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE, "-ldl"]
    subprocess.run(words, check=True)
    return library


def begin(root: Path, fault: Fault) -> None:
    """Counts the calls of this process below a directory from now on, and has some of them fail.

    Raises:
        AttributeError: The library was not loaded before the C library.
    """
    first, last = ctypes.c_long(fault.first), ctypes.c_long(fault.last)
    begin_in_c = ctypes.CDLL(None).file_calls_begin
    begin_in_c(os.fsencode(root), int(fault.of_reads), fault.what, first, last)


def counted() -> tuple[int, int]:
    """Returns how many calls changed the disk since, and how many read from it."""
    count = ctypes.CDLL(None).file_calls_count
    count.restype = ctypes.c_long
    return count(0), count(1)


def lacking() -> list[str]:
    """Returns what this machine lacks for it, and how to get that."""
    return missing("cc", "Linux")
