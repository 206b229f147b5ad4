"""The sorted table that an index file is: blocks with checksums, keys with shared prefixes.

Format: `tsl/lib/io/{format,table,block}` of TensorFlow, which is LevelDB's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c, unmask
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.files import read_bounded

FOOTER_SIZE = 48
MAGIC = 0xDB4775248B80FB57
TRAILER_SIZE = 5
INDEX_LIMIT = 1 << 30
"""Bytes beyond which no index is read; a million variables take less than a fifth of it."""

_Handle = tuple[int, int]
"""Where a block is: its offset and its size without the trailer."""


class Table:
    """An index file in memory.

    Raises:
        BundleError: It is no table.
        FileNotFoundError: It is not there.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self._data = read_bounded(path, INDEX_LIMIT)
        except DamagedFileError as error:
            raise BundleError(self.name, None, str(error)) from error
        self._metaindex, self._blocks, self._padding = self._read_footer()

    def check(self) -> None:
        """Checks every block against its checksum."""
        for offset, size in self._handles():
            self._block(offset, size)

    def unused_damage(self) -> str:
        """Returns what is wrong where neither TensorFlow nor we read, or nothing.

        Raises:
            BundleError: It is damaged where it is read.
        """
        try:
            self._block(*self._metaindex)
        except BundleError as error:
            return f"the metaindex, which nobody uses: {error.problem}"
        if any(self._padding):
            return "the padding of the footer is not zero"
        blocks = [self._metaindex, self._blocks, *self._handles()]
        used = FOOTER_SIZE + sum(size + TRAILER_SIZE for _, size in blocks)
        if used != len(self._data):
            return f"{len(self._data) - used} bytes belong to no block"
        return ""

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values; keys strictly increase."""
        previous: bytes | None = None
        for offset, size in self._handles():
            for key, value in self._block_entries(offset, size):
                if previous is not None and key <= previous:
                    raise BundleError(self.name, offset, "keys are not in order")
                previous = key
                yield key, value

    def _read_footer(self) -> tuple[_Handle, _Handle, bytes]:
        data = self._data
        if len(data) < FOOTER_SIZE:
            raise BundleError(
                self.name, 0, f"has {len(data)} bytes; an index has at least {FOOTER_SIZE}"
            )
        start = len(data) - FOOTER_SIZE
        if struct.unpack_from("<Q", data, len(data) - 8)[0] != MAGIC:
            raise BundleError(self.name, len(data) - 8, "does not end as an index does (cut off?)")
        try:
            position = start
            numbers = []
            for _ in range(4):
                number, position = read_varint(data, position)
                numbers.append(number)
        except WireError as error:
            raise BundleError(self.name, start, f"footer: {error}") from error
        padding = data[position : len(data) - 8]
        return (numbers[0], numbers[1]), (numbers[2], numbers[3]), padding

    def _handles(self) -> Iterator[tuple[int, int]]:
        for _, value in self._block_entries(*self._blocks):
            try:
                offset, position = read_varint(value, 0)
                size, _ = read_varint(value, position)
            except WireError as error:
                raise BundleError(self.name, self._blocks[0], f"block handle: {error}") from error
            yield offset, size

    def _block(self, offset: int, size: int) -> bytes:
        end = offset + size
        if end + TRAILER_SIZE > len(self._data) - FOOTER_SIZE:
            raise BundleError(self.name, offset, "a block reaches beyond the end of the file")
        content = self._data[offset:end]
        stored = unmask(struct.unpack_from("<I", self._data, end + 1)[0])
        if crc32c(self._data[offset : end + 1]) != stored:
            raise BundleError(self.name, offset, "block does not match its checksum")
        if self._data[end] != 0:
            raise BundleError(
                self.name, end, "block is compressed, which TensorFlow does not write"
            )
        return content

    def _lengths(self, block: bytes, position: int, offset: int) -> tuple[int, int, int, int]:
        try:
            shared, position = read_varint(block, position)
            rest, position = read_varint(block, position)
            length, position = read_varint(block, position)
        except WireError as error:
            raise BundleError(self.name, offset + position, str(error)) from error
        return shared, rest, length, position

    def _block_entries(self, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
        block = self._block(offset, size)
        if size < 4:
            raise BundleError(self.name, offset, "block is too short")
        restarts = struct.unpack_from("<I", block, size - 4)[0]
        limit = size - 4 - 4 * restarts
        if limit < 0:
            raise BundleError(self.name, offset, "block has more restarts than bytes")
        key, position = b"", 0
        while position < limit:
            head = block[position : position + 3]
            if len(head) == 3 and max(head) < 0x80:
                # Nearly always; three calls would take a third of the time of a whole index.
                shared, rest, length = head
                position += 3
            else:
                shared, rest, length, position = self._lengths(block, position, offset)
            end = position + rest + length
            if shared > len(key) or end > limit:
                raise BundleError(self.name, offset + position, "an entry is cut off")
            key = key[:shared] + block[position : position + rest]
            yield key, block[position + rest : end]
            position = end
