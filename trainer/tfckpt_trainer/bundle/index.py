"""The index of a checkpoint: its tensors and where their bytes are stored."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, chain
from operator import mul
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfckpt_trainer.bundle.checksum import unmask
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES
from tfckpt_trainer.bundle.slices import Slice, decode_slice_key, parse_slice, slice_key
from tfckpt_trainer.bundle.table import IndexTable
from tfckpt_trainer.bundle.wire import (
    BYTES,
    FIXED32,
    VARINT,
    UnsupportedError,
    WireError,
    encode_varint,
    fields,
    read_varint,
    signed64,
    typed_fields,
)
from tfckpt_trainer.errors import BundleError, UnsupportedBundleError

VERSION = 1
"""Version of the bundle format. TensorFlow has only had this one."""

_MAX_INT32 = (1 << 31) - 1
_MASK32 = (1 << 32) - 1
HEADER = {1: VARINT, 2: VARINT, 3: BYTES}
_ENTRY = {1: VARINT, 2: BYTES, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: BYTES}
_SHAPE = {2: BYTES, 3: VARINT}
_DIMENSION = {1: VARINT, 2: BYTES}
"""Wire types by field number."""

_SHARD, _OFFSET, _SIZE, _CHECKSUM = 0x18, 0x20, 0x28, 0x35
"""Field numbers with their wire types, as they are in the file."""

_CHECKSUM_SIZE = 4
_SHORTEST = 9
"""Bytes of an entry without its checksum, if all numbers take one byte and the shape takes none."""

_LARGEST_SIZE = (1 << 63) - 1
_LONGEST_OFFSET = 5
_CONTINUED = [int.from_bytes(b"\x80" * count, "little") for count in range(_LONGEST_OFFSET + 1)]
"""The bits of a varint of so many bytes that say whether more follow."""

MAX_SHARDS = 100_000
MAX_RANK = 254
"""TensorFlow's own limit on the number of dimensions."""

MAX_ELEMENTS = (1 << 63) - 1
"""TensorFlow aborts on tensors with more elements."""

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32",
    14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16", 18: "complex128", 19: "float16",
    20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz",
    29: "int4", 30: "uint4", 31: "int2", 32: "uint2",
    33: "float4_e2m1fn",
}  # fmt: skip
"""`tf.DType.name` by the numbers in `tensorflow/core/framework/types.proto`."""


class TensorEntry(msgspec.Struct, frozen=True):
    """One tensor of a checkpoint.

    Attributes:
        shard: Number of the data file that holds its bytes, from 0 to `shard_count` - 1.
        offset: Position of its first byte in that file.
        size: Size in bytes.
        crc32c: Checksum of its bytes, unmasked.
        slices: The parts of a tensor that was saved in parts. It has no bytes of its own.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int
    shard_count: int
    offset: int
    size: int
    crc32c: int
    slices: tuple[Slice, ...] = ()

    @property
    def element_count(self) -> int:
        """The number of elements of the shape."""
        return math.prod(self.shape)


class Index(msgspec.Struct, frozen=True):
    """All entries of a checkpoint.

    Attributes:
        entries: Tensors by name.
        parts: Parts of tensors that were saved in parts, by tensor name and slice.
    """

    shard_count: int
    entries: dict[str, TensorEntry]
    parts: dict[tuple[str, Slice], TensorEntry] = {}

    def stored(self) -> list[TensorEntry]:
        """Returns the entries that have bytes in a data file: whole tensors and parts."""
        whole = [entry for entry in self.entries.values() if not entry.slices]
        return [*whole, *self.parts.values()]

    def shard_sizes(self) -> list[int]:
        """Returns the expected size of each data file in bytes."""
        sizes = [0] * self.shard_count
        for entry in self.stored():
            end = entry.offset + entry.size
            if end > sizes[entry.shard]:
                sizes[entry.shard] = end
        return sizes


def index_path(prefix: Path) -> Path:
    """Returns the path of the index file of the checkpoint at `prefix`."""
    return prefix.with_name(f"{prefix.name}.index")


def index_lies_at(prefix: Path) -> bool:
    """Whether something has the name of the index of the checkpoint at `prefix`."""
    return os.path.lexists(index_path(prefix))


def shard_path(prefix: Path, shard: int, count: int) -> Path:
    """Returns the path of data file number `shard` of `count`."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{count:05d}")


class IndexReader:
    """Reads an index: at first its header alone, then all of it.

    Attributes:
        shard_count: The number of data files of the checkpoint.
        first_name: The name of the first tensor; empty without tensors.
    """

    def __init__(self, table: IndexTable) -> None:
        """Reads the header.

        Raises:
            BundleError: The index is damaged.
        """
        self._table = table
        entries = table.entries()
        self.shard_count = _read_header(table, entries)
        first = next(entries, None)
        self.first_name = first[0] if first is not None else b""
        self._rest = chain([first] if first is not None else [], entries)

    @classmethod
    def checked(cls, path: Path | str, content: bytes | None = None) -> IndexReader:
        """Opens an index file, and checks it against its checksums.

        Args:
            path: The file.
            content: Its bytes, if they were read before.

        Raises:
            BundleError: The index is damaged.
            FileNotFoundError: There is no index.
        """
        table = IndexTable(path, content)
        table.check()
        return cls(table)

    def read(self) -> Index:
        """Reads all entries.

        Raises:
            BundleError: The index is damaged, or TensorFlow cannot have written it.
        """
        table, index, count = self._table, Index(self.shard_count, {}), self.shard_count
        for key, value in self._rest:
            try:
                if key[0] == 0:
                    name, part = decode_slice_key(key)
                    index.parts[name, part] = _any_entry(name, value, count)
                else:
                    name = key.decode("utf-8", "surrogateescape")
                    index.entries[name] = _usual_entry(name, value, count) or _any_entry(
                        name, value, count
                    )
            except WireError as error:
                name = repr(key) if key[0] == 0 else key.decode("utf-8", "backslashreplace")
                raise _refusal(table, key, name, error) from error
        return index


def read_shard_count(prefix: Path) -> int:
    """Checks the index file against its checksums and reads its header only.

    Returns:
        The number of data files of the checkpoint.

    Raises:
        BundleError: The index is damaged.
        FileNotFoundError: There is no index.
    """
    return IndexReader.checked(index_path(prefix)).shard_count


def read_index(prefix: Path) -> Index:
    """Reads the whole index of the checkpoint at `prefix`.

    Raises:
        BundleError: The index is damaged, or TensorFlow cannot have written it.
        FileNotFoundError: There is no index.
    """
    return IndexReader(IndexTable(index_path(prefix))).read()


def _read_header(table: IndexTable, entries: Iterator[tuple[bytes, bytes]]) -> int:
    """Reads the header, which is the first entry, and returns the number of data files."""
    key, value = next(entries, (None, b""))
    if key != b"":
        raise BundleError(table.name, 0, "does not start with a header")
    try:
        return _shard_count(value)
    except WireError as error:
        raise _refusal(table, key, "header", error) from error


def _refusal(table: IndexTable, key: bytes, name: str, error: WireError) -> BundleError:
    if isinstance(error, UnsupportedError):
        # Its place tells nothing: it is no damage.
        return UnsupportedBundleError(table.name, None, f"{name} {error}" if key else str(error))
    return BundleError(table.name, table.offset_of(key), f"{name}: {error}")


@lru_cache(maxsize=16)
def _shard_count(data: bytes) -> int:
    """Decodes a `BundleHeaderProto`. Cached because all checkpoints of a run have the same."""
    count = endianness = 0
    versions = []
    for number, _, value, content in typed_fields(data, HEADER):
        if number == 1:
            count = signed64(value)
        elif number == 2:
            endianness = value
        elif number == 3:
            versions.append(content)
    if endianness != 0:
        raise UnsupportedError(
            "was written on a big-endian machine, and only little-endian files are read here. To "
            "convert it, restore it with TensorFlow and save it again"
        )
    _check_version(_merged(versions))
    if not 0 < count <= MAX_SHARDS:
        raise WireError(f"has {count} data files; expected 1 to {MAX_SHARDS}")
    return count


def _check_version(data: bytes) -> None:
    """Checks a `VersionDef`, which says which readers can read the file."""
    producer = needed = 0
    refused: set[int] = set()
    for number, kind, value, content in fields(data):
        if number == 1 and kind == VARINT:
            producer = value
        elif number == 2 and kind == VARINT:
            needed = value
        elif number == 3 and kind == VARINT:
            refused.add(value & _MASK32)
        elif number == 3 and kind == BYTES:
            refused.update(value & _MASK32 for value in _packed(content))
        elif number <= 3:
            raise WireError(f"field {number} of the version has wire type {kind}")
    if producer > _MAX_INT32:
        raise WireError(f"was written by version {producer}, which does not exist")
    if needed > VERSION:
        raise UnsupportedError(
            f"needs a reader of version {needed}; this one reads version {VERSION}"
        )
    if VERSION in refused:
        raise UnsupportedError(f"says that readers of version {VERSION} cannot read it")


def _merged(messages: list[bytes]) -> bytes:
    """Merges a message that comes several times: its fields follow one another."""
    if len(messages) > 1:
        for message in messages:
            # Two truncated messages must not make a whole one.
            for _ in fields(message):
                pass
    return b"".join(messages)


def _packed(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = read_varint(data, position)
        yield value


def _usual_entry(name: str, data: bytes, shard_count: int) -> TensorEntry | None:
    """Decodes an entry as TensorFlow writes most of them; None for any other.

    Most tensors share type, shape and data file with others, and their size follows from these. So
    only offset and checksum are decoded. `_any_entry` reads such an entry the same, more slowly.
    """
    end = len(data) - _CHECKSUM_SIZE
    if end < _SHORTEST or end < _SHORTEST + data[3]:
        return None
    start = 4 + data[3]
    if data[start] == _SHARD:
        start += 2
    head = _known_head(data[:start])
    if head is None or head.shard >= shard_count or data[start] != _OFFSET:
        return None
    dtype, shape, shard, size, rest = head
    stop = end - len(rest)
    length = stop - start - 1
    if not 0 < length <= _LONGEST_OFFSET or not data.startswith(rest, stop):
        return None
    bits = int.from_bytes(data[start + 1 : stop], "little")
    # The last byte of a number does not say that more follow; all before it do.
    if bits & _CONTINUED[length] != _CONTINUED[length - 1]:
        return None
    offset = bits & 0x7F | bits >> 1 & 0x3F80 | bits >> 2 & 0x1FC000 | bits >> 3 & 0xFE00000
    if length == _LONGEST_OFFSET:
        offset |= bits >> 4 & 0x7F0000000
    checksum = unmask(int.from_bytes(data[end:], "little"))
    return TensorEntry(name, dtype, shape, shard, shard_count, offset, size, checksum)


class _Head(NamedTuple):
    """What entries share that have the same bytes before their offset.

    Attributes:
        rest: The bytes between offset and checksum: the size that follows from type and shape.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int
    size: int
    rest: bytes


@lru_cache(maxsize=1024)
def _known_head(data: bytes) -> _Head | None:
    """Decodes type, shape and shard; None unless the size in bytes follows from them."""
    try:
        entry = _any_entry("", data, MAX_SHARDS)
    except WireError:
        return None
    item = ITEM_SIZES.get(entry.dtype)
    size = 0 if item is None else item * entry.element_count
    if not 0 < size <= _LARGEST_SIZE or entry.slices:
        return None
    rest = bytes([_SIZE, *encode_varint(size), _CHECKSUM])
    return _Head(entry.dtype, entry.shape, entry.shard, size, rest)


def _any_entry(name: str, data: bytes, shard_count: int) -> TensorEntry:
    dtype, shapes, shard, offset, size, checksum, slices = _any_fields(data)
    if dtype not in DTYPES:
        raise UnsupportedError(f"has type number {dtype}, which this version does not know")
    if not 0 <= shard < shard_count or offset < 0 or size < 0:
        raise WireError("has an invalid shard, offset or size")
    shape = _known_shape(shapes)
    checksum = unmask(checksum)
    return TensorEntry(
        name, DTYPES[dtype], shape, shard, shard_count, offset, size, checksum, slices
    )


_EntryFields = tuple[int, bytes, int, int, int, int, tuple[Slice, ...]]
"""Type, shape, shard, offset, size, masked checksum and slices of a `BundleEntryProto`."""


def _any_fields(data: bytes) -> _EntryFields:
    dtype = shard = offset = size = checksum = 0
    shapes: list[bytes] = []
    slices = []
    for number, _, value, content in typed_fields(data, _ENTRY):
        if number == 1:
            dtype = value
        elif number == 2:
            shapes.append(content)
        elif number == 3:
            shard = signed64(value)
        elif number == 4:
            offset = signed64(value)
        elif number == 5:
            size = signed64(value)
        elif number == 6:
            checksum = value
        elif number == 7:
            slices.append(parse_slice(content))
    return dtype, _merged(shapes), shard, offset, size, checksum, tuple(slices)


def _check_utf8(text: bytes) -> None:
    """Checks a string of a protocol buffer; TensorFlow does not read a message without it."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError("the name of a dimension is not UTF-8") from error


@lru_cache(maxsize=1024)
def _known_shape(data: bytes) -> tuple[int, ...]:
    """Decodes a `TensorShapeProto`. Cached because most tensors share a few shapes."""
    shape = []
    for number, _, _, content in typed_fields(data, _SHAPE):
        if number == 2:
            size = 0
            for inner, _, value, text in typed_fields(content, _DIMENSION):
                if inner == 1:
                    size = signed64(value)
                elif inner == 2:
                    _check_utf8(text)
            if size < 0:
                raise WireError(f"has a dimension of size {size}")
            shape.append(size)
    if len(shape) > MAX_RANK:
        raise WireError(f"has {len(shape)} dimensions; TensorFlow allows {MAX_RANK}")
    # TensorFlow multiplies from the left, so a later zero does not prevent the overflow.
    if any(count > MAX_ELEMENTS for count in accumulate(shape, mul)):
        raise WireError("has more elements than TensorFlow can count")
    return tuple(shape)


__all__ = [
    "DTYPES",
    "Index",
    "IndexReader",
    "Slice",
    "TensorEntry",
    "index_path",
    "read_index",
    "read_shard_count",
    "shard_path",
    "slice_key",
]
