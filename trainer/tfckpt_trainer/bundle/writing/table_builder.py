"""Builds the sorted table of an index, byte for byte as TensorFlow does.

Format: see `bundle.table`; algorithm: `tsl/lib/io/{table_builder,block_builder}.cc`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from tfckpt_trainer.bundle.checksum import crc32c, mask
from tfckpt_trainer.bundle.table import FOOTER_SIZE, MAGIC
from tfckpt_trainer.bundle.wire import encode_varint

BLOCK_SIZE = 256 << 10
"""A data block ends with the entry that makes it this long."""

RESTART_INTERVAL = 16
"""Every 16th key of a data block is written in full."""


class TableBuilder:
    """Writes keys and values, in the order of the keys, to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = 0
        self._block = _Block(RESTART_INTERVAL)
        self._index = _Block(1)
        self._last_key: bytes | None = None
        self._closed_block: bytes | None = None

    def add(self, key: bytes, value: bytes) -> None:
        """Adds one entry.

        Raises:
            ValueError: The key does not follow the one before it.
        """
        if self._last_key is not None:
            if key <= self._last_key:
                raise ValueError(f"{key!r} does not follow {self._last_key!r}")
            if self._closed_block is not None:
                self._index.add(_separator(self._last_key, key), self._closed_block)
                self._closed_block = None
        self._block.add(key, value)
        self._last_key = key
        if self._block.size >= BLOCK_SIZE:
            self._close_block()

    def finish(self) -> None:
        """Writes the end of the table."""
        if self._last_key is not None:
            if not self._block.is_empty:
                self._close_block()
            if self._closed_block is not None:
                self._index.add(_successor(self._last_key), self._closed_block)
        handles = self._write(_Block(RESTART_INTERVAL)) + self._write(self._index)
        footer = handles.ljust(FOOTER_SIZE - 8, b"\0") + struct.pack("<Q", MAGIC)
        self._file.write(footer)

    def _close_block(self) -> None:
        self._closed_block = self._write(self._block)
        self._block = _Block(RESTART_INTERVAL)

    def _write(self, block: _Block) -> bytes:
        """Writes a block and returns its handle."""
        content = block.content()
        handle = encode_varint(self._offset) + encode_varint(len(content))
        # The byte between content and checksum is the kind of compression: none.
        data = content + b"\0"
        data += struct.pack("<I", mask(crc32c(data)))
        self._file.write(data)
        self._offset += len(data)
        return handle


class _Block:
    """Entries whose keys leave out what they share with the key before."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._data = bytearray()
        self._restarts = [0]
        self._since_restart = 0
        self._last_key = b""

    @property
    def is_empty(self) -> bool:
        return not self._data

    @property
    def size(self) -> int:
        return len(self._data) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart < self._interval:
            shared = _shared(self._last_key, key)
        else:
            self._restarts.append(len(self._data))
            self._since_restart = 0
        for number in (shared, len(key) - shared, len(value)):
            self._data += encode_varint(number)
        self._data += key[shared:] + value
        self._last_key = key
        self._since_restart += 1

    def content(self) -> bytes:
        count = len(self._restarts)
        return bytes(self._data) + struct.pack(f"<{count + 1}I", *self._restarts, count)


def _shared(key: bytes, other: bytes) -> int:
    """Returns how many bytes at the start are equal."""
    length = min(len(key), len(other))
    if key[:length] == other[:length]:
        return length
    return next(place for place in range(length) if key[place] != other[place])


def _separator(start: bytes, limit: bytes) -> bytes:
    """Returns a short key that is not less than `start` and less than `limit`."""
    place = _shared(start, limit)
    if place < min(len(start), len(limit)) and start[place] + 1 < limit[place]:
        return start[:place] + bytes([start[place] + 1])
    return start


def _successor(key: bytes) -> bytes:
    """Returns a short key that is not less than `key`."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
