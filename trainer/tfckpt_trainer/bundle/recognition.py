"""Tells from content whether a file is the index of a bundle, also a damaged one.

A bundle is a table whose first entry has the empty key and a header: the number of data files, the
byte order, and the version. TensorFlow writes this entry first and uncompressed, so a cut index
still begins with it. Other programs have files of that name too: FAISS, databases, archivers.
"""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path

from tfckpt_trainer.bundle.index import HEADER
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.bundle.table import Table
from tfckpt_trainer.bundle.wire import WireError, typed_fields
from tfckpt_trainer.errors import BundleError

_HEAD = 256
"""Bytes that are read of a file. A header takes some ten."""

_FIRST_KEY = b"\0\0"
"""How a block begins with the empty key: it shares no bytes and has none."""

_COUNT, _VERSION = 1, 3
"""Fields of a `BundleHeaderProto` that every writer sets."""

_APPLE_DOUBLE = bytes.fromhex("00051607")
"""How the `._NAME` begin that macOS writes beside each file on other file systems."""


class IndexKind(Enum):
    """What the content of a file named `NAME.index` shows."""

    BUNDLE = auto()
    """The header of a bundle."""
    OTHER = auto()
    """A file of another program for certain, whatever lies beside it."""
    UNKNOWN = auto()
    """Nothing: it is empty, or neither its begin nor its end can be recognized."""


def recognize_index(path: Path) -> IndexKind:
    """Returns what the content of an index file shows. Reads its begin, and a table whole.

    Raises:
        NotFetchedError: It is a pointer of Git LFS.
        DamagedFileError: It is not a regular file.
        OSError: It cannot be read.
    """
    with open_inside(path) as file:
        head = file.read(_HEAD)
    if head.startswith(_APPLE_DOUBLE):
        return IndexKind.OTHER
    is_bundle = _begins_with_header(head) or _is_table_with_header(path)
    return IndexKind.BUNDLE if is_bundle else IndexKind.UNKNOWN


def _begins_with_header(head: bytes) -> bool:
    start = len(_FIRST_KEY) + 1
    if not head.startswith(_FIRST_KEY) or len(head) < start:
        return False
    length = head[start - 1]
    header = head[start : start + length]
    return length < 0x80 and len(header) == length and _is_header(header)


def _is_table_with_header(path: Path) -> bool:
    try:
        key, value = next(Table(path).entries(), (None, b""))
    except BundleError:
        return False
    return key == b"" and _is_header(value)


def _is_header(data: bytes) -> bool:
    try:
        found = {number: value for number, _, value, _ in typed_fields(data, HEADER)}
    except WireError:
        return False
    return found.get(_COUNT, 0) > 0 and _VERSION in found and found.keys() <= HEADER.keys()
