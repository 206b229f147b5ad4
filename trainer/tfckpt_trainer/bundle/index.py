"""The index of a checkpoint: which tensors there are, and where their bytes lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from operator import mul
from pathlib import Path

from tfckpt_trainer.bundle.checksum import unmask
from tfckpt_trainer.bundle.slices import Slice, decode_slice_key, parse_slice, slice_key
from tfckpt_trainer.bundle.table import Table
from tfckpt_trainer.bundle.wire import BYTES, WireError, fields, signed64
from tfckpt_trainer.errors import BundleError

VERSION = 1
"""Of the format, as TensorFlow counts it; the only one there has been."""

MAX_SHARDS = 100_000
MAX_RANK = 254
"""TensorFlow's own limit for the number of dimensions."""

MAX_ELEMENTS = (1 << 63) - 1
"""Beyond it TensorFlow itself is aborted."""

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32",
    14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16", 18: "complex128", 19: "float16",
    20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz",
    29: "int4", 30: "uint4", 31: "int2", 32: "uint2",
    33: "float4_e2m1fn",
}  # fmt: skip
"""Names of `tensorflow/core/framework/types.proto`, as `tf.DType.name` gives them."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint.

    Attributes:
        shard: Number of the data file that holds its bytes, of `shard_count`.
        offset: Where they begin in it.
        size: How many they are.
        crc32c: Their checksum, unmasked.
        slices: If it was saved in parts: which; it has no bytes of its own then.
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
        """How many elements the shape has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Index:
    """All entries of a checkpoint.

    Attributes:
        entries: Tensors by name.
        parts: The parts of tensors that were saved in slices, by name and slice.
    """

    shard_count: int
    entries: dict[str, TensorEntry]
    parts: dict[tuple[str, Slice], TensorEntry] = field(default_factory=dict)

    def stored(self) -> list[TensorEntry]:
        """Everything that has bytes in a data file."""
        whole = [entry for entry in self.entries.values() if not entry.slices]
        return [*whole, *self.parts.values()]

    def shard_sizes(self) -> list[int]:
        """Returns how many bytes each data file must have."""
        sizes = [0] * self.shard_count
        for entry in self.stored():
            sizes[entry.shard] = max(sizes[entry.shard], entry.offset + entry.size)
        return sizes


def index_path(prefix: Path) -> Path:
    """The index file of the checkpoint at `prefix`."""
    return prefix.with_name(f"{prefix.name}.index")


def shard_path(prefix: Path, shard: int, count: int) -> Path:
    """Data file number `shard` of `count`."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{count:05d}")


def check_index_blocks(prefix: Path) -> None:
    """Checks the checksums of the index alone, which takes a tenth of a millisecond.

    Raises:
        BundleError: It is damaged.
        FileNotFoundError: There is none.
    """
    Table(index_path(prefix)).check()


def read_shard_count(prefix: Path) -> int:
    """Checks the checksums of the index and reads its header, whatever the number of tensors.

    Returns:
        How many data files the checkpoint has.

    Raises:
        BundleError: It is damaged.
        FileNotFoundError: There is none.
    """
    table = Table(index_path(prefix))
    table.check()
    return _read_header(table, table.entries())


def read_index(prefix: Path) -> Index:
    """Reads the whole index of the checkpoint at `prefix`.

    Raises:
        BundleError: It is damaged, or it holds what no TensorFlow would write.
        FileNotFoundError: There is none.
    """
    table = Table(index_path(prefix))
    rest = table.entries()
    index = Index(_read_header(table, rest), {})
    for key, value in rest:
        try:
            if key[0] == 0:
                name, part = decode_slice_key(key)
                index.parts[name, part] = _entry(name, value, index.shard_count)
            else:
                name = key.decode("utf-8", "surrogateescape")
                index.entries[name] = _entry(name, value, index.shard_count)
        except WireError as error:
            name = repr(key) if key[0] == 0 else key.decode("utf-8", "backslashreplace")
            raise BundleError(table.name, table.offset_of(key), f"{name}: {error}") from error
    return index


def _read_header(table: Table, entries: Iterator[tuple[bytes, bytes]]) -> int:
    """Takes the header, which comes first; returns how many data files it counts."""
    key, value = next(entries, (None, b""))
    if key != b"":
        raise BundleError(table.name, 0, "does not begin with a header")
    try:
        return _shard_count(value)
    except WireError as error:
        raise BundleError(table.name, table.offset_of(key), f"header: {error}") from error


def _shard_count(data: bytes) -> int:
    count = endianness = needed = 0
    for number, kind, value, content in fields(data):
        if number == 1:
            count = signed64(value)
        elif number == 2:
            endianness = value
        elif number == 3 and kind == BYTES:
            needed = _needed_version(content)
    if endianness != 0:
        raise WireError("was written on a big-endian machine, which is not supported")
    if needed > VERSION:
        raise WireError(f"needs a reader of version {needed}, and this one knows {VERSION}")
    if not 0 < count <= MAX_SHARDS:
        raise WireError(f"names {count} data files")
    return count


def _needed_version(data: bytes) -> int:
    """Decodes of a `VersionDef` the oldest version that may read the file."""
    return next((value for number, _, value, _ in fields(data) if number == 2), 0)


def _entry(name: str, data: bytes, shard_count: int) -> TensorEntry:
    dtype = shard = offset = size = checksum = 0
    shape: tuple[int, ...] = ()
    slices = []
    for number, kind, value, content in fields(data):
        if number == 1:
            dtype = value
        elif number == 2 and kind == BYTES:
            shape = _known_shape(content)
        elif number == 3:
            shard = signed64(value)
        elif number == 4:
            offset = signed64(value)
        elif number == 5:
            size = signed64(value)
        elif number == 6:
            checksum = value
        elif number == 7 and kind == BYTES:
            slices.append(parse_slice(content))
    if dtype not in DTYPES:
        raise WireError(f"has the unknown type {dtype}")
    if not 0 <= shard < shard_count or offset < 0 or size < 0:
        raise WireError("lies in no data file")
    return TensorEntry(
        name=name,
        dtype=DTYPES[dtype],
        shape=shape,
        shard=shard,
        shard_count=shard_count,
        offset=offset,
        size=size,
        crc32c=unmask(checksum),
        slices=tuple(slices),
    )


@lru_cache(maxsize=1024)
def _known_shape(data: bytes) -> tuple[int, ...]:
    """Decodes a `TensorShapeProto`; thousands of tensors have a few shapes between them."""
    shape = []
    for number, kind, _, content in fields(data):
        if number == 2 and kind == BYTES:
            size = 0
            for inner, _, value, _ in fields(content):
                if inner == 1:
                    size = signed64(value)
            if size < 0:
                raise WireError(f"has a dimension of {size}")
            shape.append(size)
    if len(shape) > MAX_RANK:
        raise WireError(f"has {len(shape)} dimensions")
    # TensorFlow multiplies from the left, and a zero comes too late for what is too large by then.
    if any(count > MAX_ELEMENTS for count in accumulate(shape, mul)):
        raise WireError("has more elements than can be counted")
    return tuple(shape)


__all__ = [
    "DTYPES",
    "Index",
    "Slice",
    "TensorEntry",
    "check_index_blocks",
    "index_path",
    "read_index",
    "read_shard_count",
    "shard_path",
    "slice_key",
]
