"""Writes checkpoints in TensorFlow's format by hand: whole ones, and as wrong as a test wants.

Format: tensorflow/core/util/tensor_bundle and LevelDB's table format. Nothing of the product's
reader is used but the checksum itself.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np

_MAGIC = 0xDB4775248B80FB57
_BLOCK = 1 << 18
STRING, VARIANT = 7, 21
GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"

NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19,
    "uint32": 22, "uint64": 23, "float8_e5m2": 24, "float8_e4m3fn": 25, "float8_e4m3fnuz": 26,
    "float8_e4m3b11fnuz": 27, "float8_e5m2fnuz": 28, "int4": 29, "uint4": 30, "int2": 31,
    "uint2": 32, "float4_e2m1fn": 33,
}  # fmt: skip
"""Numbers of element types, by the names of numpy and ml_dtypes."""

Extents = tuple[tuple[int, int], ...]
"""Start and length in each dimension."""


@dataclass
class Stored:
    """What has bytes in a data file.

    Attributes:
        dtype: Number of the element type.
        chunks: Its bytes, in pieces.
        crc: Its checksum; that of its bytes by default.
        offset: Where the index says that it begins; where it was written by default.
        size: How long the index says that it is.
    """

    dtype: int
    shape: tuple[int, ...]
    chunks: Iterable[bytes]
    shard: int = 0
    crc: int | None = None
    offset: int | None = None
    size: int | None = None


@dataclass
class Parts:
    """A tensor that is stored in parts; `listed` is what its own entry says of them."""

    dtype: int
    shape: tuple[int, ...]
    parts: dict[Extents, Stored]
    listed: Sequence[Extents] | None = None


@dataclass
class Object:
    """A node of an object graph; attributes are name, full name and key."""

    children: dict[str, int] = field(default_factory=dict)
    attributes: Sequence[tuple[str, str, str]] = ()
    slots: Sequence[tuple[int, str, int]] = ()


def array(values: Any, shard: int = 0) -> Stored:
    """A tensor of numbers."""
    values = np.asarray(values)
    return Stored(NUMBERS[values.dtype.name], values.shape, [values.tobytes()], shard)


def strings(texts: Sequence[bytes], shape: tuple[int, ...] | None = None) -> Stored:
    """A tensor of strings, as `WriteStringTensor` lays it out."""
    lengths = struct.pack(f"<{len(texts)}I", *map(len, texts))
    check = struct.pack("<I", masked(google_crc32c.value(lengths)))
    body = b"".join(texts)
    crc = google_crc32c.value(lengths + check + body)
    data = b"".join(_number(len(text)) for text in texts) + check + body
    return Stored(STRING, (len(texts),) if shape is None else shape, [data], crc=crc)


def variants(elements: Sequence[bytes]) -> Stored:
    """A tensor of variants, as `WriteVariantTensor` lays it out."""
    data, covered = b"", b""
    for element in elements:
        covered += struct.pack("<Q", len(element)) + element
        check = struct.pack("<I", masked(google_crc32c.value(covered)))
        covered += check
        data += _number(len(element)) + element + check
    return Stored(VARIANT, (len(elements),), [data], crc=google_crc32c.value(covered))


def in_parts(values: Any, boxes: Iterable[Extents]) -> Parts:
    """A tensor of numbers cut into boxes."""
    values = np.asarray(values)
    parts = {box: array(values[tuple(slice(a, a + n) for a, n in box)]) for box in boxes}
    return Parts(NUMBERS[values.dtype.name], values.shape, parts)


def rows(total: int, width: int, *lengths: int) -> list[Extents]:
    """Boxes of so many rows each that together make `total` rows of `width`."""
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    assert sum(lengths) == total
    return [((start, length), (0, width)) for start, length in zip(starts, lengths, strict=True)]


def graph(nodes: Sequence[Object]) -> Stored:
    """The object graph, whose first node is the root."""
    return strings([graph_message(nodes)], shape=())


def graph_message(nodes: Sequence[Object]) -> bytes:
    """The message of an object graph."""
    return b"".join(_bytes(1, _node(node)) for node in nodes)


def entry_of(tensor: Stored) -> bytes:
    """The entry of a tensor in an index."""
    return _write_stored(io.BytesIO(), tensor)


def index_with(entry: bytes) -> bytes:
    """An index with one entry, whose checksums are right."""
    header = _field(1, 1) + _bytes(3, _field(1, 1))
    return _table([(b"", header), (b"v", entry)])


def variable(name: str, full_name: str = "") -> tuple[str, str, str]:
    """The attribute of a variable at path `name`."""
    return "VARIABLE_VALUE", full_name or name, key_of(name)


def key_of(path: str) -> str:
    """The name of the tensor of the variable at `path`."""
    return f"{path}/.ATTRIBUTES/VARIABLE_VALUE"


def write(
    prefix: Path,
    tensors: Mapping[str, Stored | Parts],
    shards: int = 1,
    *,
    is_big_endian: bool = False,
) -> list[Path]:
    """Writes data files and index of checkpoint `prefix`; returns their paths, the index last."""
    paths = [prefix.with_name(f"{prefix.name}.data-{n:05d}-of-{shards:05d}") for n in range(shards)]
    endianness = _field(2, 1) if is_big_endian else b""
    entries = {b"": _field(1, shards) + endianness + _bytes(3, _field(1, 1))}
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        _write_all(files, tensors, entries)
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(_table(sorted(entries.items())))
    return [*paths, index]


def write_floats(prefix: Path, *shards: Sequence[float]) -> list[Path]:
    """Writes one tensor of floats for each shard; returns the paths, the index last."""
    floats = [array(np.array(values, np.float32), shard) for shard, values in enumerate(shards)]
    tensors = {f"v{shard or ''}": tensor for shard, tensor in enumerate(floats)}
    return write(prefix, tensors, len(shards))


def _write_all(
    files: Sequence[IO[bytes]], tensors: Mapping[str, Stored | Parts], entries: dict[bytes, bytes]
) -> None:
    for name, tensor in tensors.items():
        key = name.encode("utf-8", "surrogateescape")
        if isinstance(tensor, Stored):
            entries[key] = _write_stored(files[tensor.shard], tensor)
            continue
        listed = tensor.parts if tensor.listed is None else tensor.listed
        boxes = b"".join(_bytes(7, _box(box)) for box in listed)
        entries[key] = _field(1, tensor.dtype) + _bytes(2, _shape(tensor.shape)) + boxes
        for box, part in tensor.parts.items():
            entries[_slice_key(key, box)] = _write_stored(files[part.shard], part)


def masked(crc: int) -> int:
    """A checksum as it is stored."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _write_stored(file: IO[bytes], tensor: Stored) -> bytes:
    offset, crc = file.tell(), 0
    for chunk in tensor.chunks:
        file.write(chunk)
        crc = google_crc32c.extend(crc, chunk)
    size = file.tell() - offset if tensor.size is None else tensor.size
    crc = crc if tensor.crc is None else tensor.crc
    offset = offset if tensor.offset is None else tensor.offset
    entry = _field(1, tensor.dtype) + _bytes(2, _shape(tensor.shape))
    # As protobuf does, zeros are left out.
    entry += b"".join(_field(n, v) for n, v in ((3, tensor.shard), (4, offset), (5, size)) if v)
    return entry + b"\x35" + struct.pack("<I", masked(crc))


def _shape(shape: tuple[int, ...]) -> bytes:
    return b"".join(_bytes(2, _field(1, size)) for size in shape)


def _box(box: Extents) -> bytes:
    return b"".join(_bytes(1, _field(1, start) + _field(2, length)) for start, length in box)


def _slice_key(name: bytes, box: Extents) -> bytes:
    numbers = b"".join(_ordered(start) + _ordered(length) for start, length in box)
    return b"\x00" + name + b"\x00\x01" + bytes([1, len(box)]) + numbers


def _ordered(value: int) -> bytes:
    """A small number as `OrderedCode::WriteSignedNumIncreasing` has it."""
    assert 0 <= value < 1 << 13
    return bytes([0x80 | value]) if value < 64 else struct.pack(">H", 0xC000 | value)


def _node(node: Object) -> bytes:
    data = b""
    for name, child in node.children.items():
        data += _bytes(1, _field(1, child) + _bytes(2, name.encode()))
    for attribute in node.attributes:
        data += _bytes(2, b"".join(_bytes(n + 1, t.encode()) for n, t in enumerate(attribute)))
    for original, name, slot in node.slots:
        data += _bytes(3, _field(1, original) + _bytes(2, name.encode()) + _field(3, slot))
    return data


def _table(entries: list[tuple[bytes, bytes]]) -> bytes:
    table, handles, block = b"", [], b""
    for place, (key, value) in enumerate(entries):
        block += _number(0) + _number(len(key)) + _number(len(value)) + key + value
        if len(block) >= _BLOCK or place == len(entries) - 1:
            handles.append((key, _number(len(table)) + _number(len(block) + 8)))
            table += _closed(block)
            block = b""
    meta = _number(len(table)) + _number(8)
    table += _closed(b"")
    index = b"".join(
        _number(0) + _number(len(key)) + _number(len(handle)) + key + handle
        for key, handle in handles
    )
    last = _number(len(table)) + _number(len(index) + 8)
    return table + _closed(index) + (meta + last).ljust(40, b"\0") + struct.pack("<Q", _MAGIC)


def _closed(block: bytes) -> bytes:
    content = block + struct.pack("<II", 0, 1) + b"\0"
    return content + struct.pack("<I", masked(google_crc32c.value(content)))


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _field(number: int, value: int) -> bytes:
    return _number(number << 3) + _number(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


def peak_memory(script: str, *words: object) -> int:
    """Runs Python code in a process of its own; returns the most bytes of memory that it had."""
    # Not `ru_maxrss`, which a process inherits from the one that started it.
    tell = 'print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))'
    command = [sys.executable, "-c", f"{script}\n{tell}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[1]) << 10
