"""Tells from content whether a file is the index of a bundle, also a damaged one.

A bundle is a table whose first entry has the empty key and a header: the number of data files, the
byte order, and the version. TensorFlow writes this entry first and uncompressed, so a cut index
still begins with it. Other programs have files of that name too: FAISS, databases, archivers.

`tf.data.Dataset.cache(FILE)` writes its elements as a bundle, too. Its tensors are called by the
numbers of element and component: `      0_0` (`cache_dataset_ops.cc`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from pathlib import Path

from tfckpt_trainer.bundle.index import HEADER
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.bundle.table import IndexTable
from tfckpt_trainer.bundle.wire import WireError, read_varint, typed_fields
from tfckpt_trainer.errors import BundleError, DamagedFileError

_HEAD = 256
"""Bytes that are read of a file. A header takes some ten."""

_FIRST_KEY = b"\0\0"
"""How a block begins with the empty key: it shares no bytes and has none."""

_COUNT, _VERSION = 1, 3
"""Fields of a `BundleHeaderProto` that every writer sets."""

_CACHED = re.compile(rb" *[0-9]+_ *[0-9]+")
"""The name of a tensor in a cache of tf.data."""

_APPLE_DOUBLE = bytes.fromhex("00051607")
"""How the `._NAME` begin that macOS writes beside each file on other file systems."""


_META_GRAPH_TAGS = {field << 3 | 2 for field in range(1, 8)}
"""The fields of a `MetaGraphDef` (`meta_graph.proto`), each with a length."""

_LONGEST_HEAD = 11
"""Bytes of a tag and the longest number."""


class IndexKind(Enum):
    """What the content of a file named `NAME.index` shows."""

    BUNDLE = auto()
    """The header of a bundle."""
    OTHER = auto()
    """A file of another program, or of a cache, for certain, whatever lies beside it."""
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
    name = _name_after_header(head)
    if name is None:
        name = _name_in_table(path)
    if name is None:
        return IndexKind.UNKNOWN
    is_cache = is_of_cache(name) if name else _has_no_tensor(path)
    return IndexKind.OTHER if is_cache else IndexKind.BUNDLE


def is_meta_graph(path: Path) -> bool:
    """Whether a file begins with two fields of a `MetaGraphDef`; false if it cannot be read."""
    with suppress(OSError, DamagedFileError, WireError), open_inside(path) as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        for _ in range(2):
            file.seek(at)
            head = file.read(_LONGEST_HEAD)
            if not head or head[0] not in _META_GRAPH_TAGS:
                # One field may be all.
                return 0 < at == size
            length, used = read_varint(head, 1)
            at += used + length
        return at <= size
    return False


def is_of_cache(name: bytes) -> bool:
    """Whether a bundle whose first tensor has this name is a cache of tf.data."""
    return _CACHED.fullmatch(name) is not None


def _has_no_tensor(path: Path) -> bool:
    """Whether a bundle has nothing but its header: a cache of no elements. Each save has more."""
    with suppress(BundleError):
        return sum(1 for _ in islice(IndexTable(path).entries(), 2)) == 1
    return False


def _name_after_header(head: bytes) -> bytes | None:
    """Returns the first name after the header with which a file begins; None if there is none."""
    start = len(_FIRST_KEY) + 1
    if not head.startswith(_FIRST_KEY) or len(head) < start:
        return None
    length = head[start - 1]
    header, rest = head[start : start + length], head[start + length :]
    if length >= 0x80 or len(header) < length or not _is_header(header):
        return None
    # The entry shares no bytes with the empty key: 0, the size of the name, that of the value.
    is_short = len(rest) > 3 and rest[0] == 0 and max(rest[1], rest[2]) < 0x80
    return rest[3 : 3 + rest[1]] if is_short else b""


def _name_in_table(path: Path) -> bytes | None:
    """Returns the first name of a table after its header; None if there is none."""
    name = None
    with suppress(BundleError):
        entries = IndexTable(path).entries()
        key, value = next(entries, (None, b""))
        if key == b"" and _is_header(value):
            name = b""
            name, _ = next(entries, (b"", b""))
    return name


def _is_header(data: bytes) -> bool:
    try:
        found = {number: value for number, _, value, _ in typed_fields(data, HEADER)}
    except WireError:
        return False
    return found.get(_COUNT, 0) > 0 and _VERSION in found and found.keys() <= HEADER.keys()
