"""Writes the smallest TensorFlow checkpoint there is: one float tensor in one shard.

Format: tensorflow/core/util/tensor_bundle and LevelDB's table format.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c

_MAGIC = 0xDB4775248B80FB57
_FLOAT = 1


def write_bundle(prefix: Path, values: tuple[float, ...]) -> tuple[Path, Path]:
    """Writes index and data of checkpoint `prefix`; returns their paths."""
    data = struct.pack(f"<{len(values)}f", *values)
    shard = prefix.with_name(f"{prefix.name}.data-00000-of-00001")
    shard.write_bytes(data)
    shape = _bytes(2, _bytes(2, _varint(1, len(values))))
    entry = _varint(1, _FLOAT) + shape + _varint(5, len(data))
    entry += b"\x35" + struct.pack("<I", _masked(crc32c(data)))
    header = _varint(1, 1) + _bytes(3, _varint(1, 1))
    table, handles = b"", []
    for block in (_block([(b"", header), (b"v", entry)]), _block([])):
        handles.append(_number(len(table)) + _number(len(block)))
        table += block + b"\0" + struct.pack("<I", _masked(crc32c(block + b"\0")))
    last = _block([(b"v", handles[0])])
    handles.append(_number(len(table)) + _number(len(last)))
    table += last + b"\0" + struct.pack("<I", _masked(crc32c(last + b"\0")))
    footer = (handles[1] + handles[2]).ljust(40, b"\0") + struct.pack("<Q", _MAGIC)
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(table + footer)
    return index, shard


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(
        _number(0) + _number(len(key)) + _number(len(value)) + key + value for key, value in entries
    )
    return body + struct.pack("<II", 0, 1)


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _number(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _varint(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(value)) + value
