"""The file format of an index: a sorted table of blocks with checksums and prefix-coded keys.

Format: `tsl/lib/io/{format,table,block}` in TensorFlow, taken from LevelDB.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c, unmask
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.files import open_plain

FOOTER_SIZE = 48
MAGIC = 0xDB4775248B80FB57
_MAGIC_BYTES = struct.pack("<Q", MAGIC)
TRAILER_SIZE = 5
INDEX_LIMIT = 1 << 30
"""Largest index that is read, in bytes. A million variables need less than a fifth of it."""

_MAX_SHARED = 64
"""Largest total of shared key prefixes, per byte of a block.

TensorFlow writes every 16th key in full, so its ratio is at most 16. Without a limit, a crafted
index of a megabyte could expand to gigabytes of names.
"""

_Handle = tuple[int, int]
"""Offset and size of a block, without its trailer."""


def is_table(path: Path) -> bool:
    """Whether a file ends with the table magic number. Reads the last bytes only.

    Raises:
        DamagedFileError: The path is a link or not a regular file.
        OSError: The file cannot be read.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        return size >= FOOTER_SIZE and os.pread(file.fileno(), 8, size - 8) == _MAGIC_BYTES


class Table:
    """An index file in memory.

    Raises:
        BundleError: The file is not a table.
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._data = self._read(path)
        self._metaindex, self._blocks, self._unused = self._read_footer()

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self._data

    def check(self) -> None:
        """Checks every block against its checksum.

        Raises:
            BundleError: A block is damaged.
        """
        for offset, size in self._handles():
            self._block(offset, size)

    def unused_damage(self) -> str:
        """Returns a description of damage in bytes that no reader uses; empty if there is none.

        Raises:
            BundleError: Bytes that are used are damaged.
        """
        try:
            self._block(*self._metaindex)
        except BundleError as error:
            return f"the metaindex, which is not used: {error.problem}"
        if self._unused:
            return self._unused
        blocks = [self._metaindex, self._blocks, *self._handles()]
        used = FOOTER_SIZE + sum(size + TRAILER_SIZE for _, size in blocks)
        if used != len(self._data):
            return f"{len(self._data) - used} bytes do not belong to any block"
        return ""

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values. Keys strictly increase."""
        previous: bytes | None = None
        for offset, size in self._handles():
            for key, value, _ in self._block_entries(offset, size):
                if previous is not None and key <= previous:
                    raise BundleError(self.name, offset, "keys are not in order")
                previous = key
                yield key, value

    def offset_of(self, key: bytes) -> int | None:
        """Returns the file offset of the value of `key`, for error messages."""
        for offset, size in self._handles():
            for found, _, position in self._block_entries(offset, size):
                if found == key:
                    return position
        return None

    def _read(self, path: Path) -> bytes:
        try:
            with open_inside(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size > INDEX_LIMIT:
                    raise BundleError(
                        self.name, None, f"has {size} bytes; an index has at most {INDEX_LIMIT}"
                    )
                # Checks the end first, so that a large file of another kind is not read.
                self._check_end(size, os.pread(file.fileno(), 8, max(0, size - 8)))
                return file.read(size)
        except DamagedFileError as error:
            raise BundleError(self.name, None, "is not a regular file") from error

    def _check_end(self, size: int, end: bytes) -> None:
        if size < FOOTER_SIZE:
            raise BundleError(
                self.name, 0, f"has {size} bytes; an index has at least {FOOTER_SIZE}"
            )
        if end != _MAGIC_BYTES:
            problem = "does not end with the index magic number; the file may be truncated"
            raise BundleError(self.name, size - 8, problem)

    def _read_footer(self) -> tuple[_Handle, _Handle, str]:
        """Returns the handles of metaindex and index, and damage in unused bytes of the footer."""
        data = self._data
        # Checked again because the file may have been replaced between the two reads.
        self._check_end(len(data), data[-8:])
        start = len(data) - FOOTER_SIZE
        try:
            position = start
            numbers = []
            for _ in range(4):
                number, position = read_varint(data, position)
                numbers.append(number)
        except WireError as error:
            raise BundleError(self.name, start, f"footer: {error}") from error
        unused = ""
        if any(data[position : len(data) - 8]):
            unused = "the padding of the footer is not zero"
        elif position - start != sum(max(1, -(-number.bit_length() // 7)) for number in numbers):
            # A flipped bit in the padding can make a varint longer without changing its value.
            unused = "a number in the footer takes more bytes than it needs"
        return (numbers[0], numbers[1]), (numbers[2], numbers[3]), unused

    def _handles(self) -> Iterator[_Handle]:
        end = 0
        for _, value, place in self._block_entries(*self._blocks):
            try:
                offset, position = read_varint(value, 0)
                size, _ = read_varint(value, position)
            except WireError as error:
                raise BundleError(self.name, place, f"block handle: {error}") from error
            if offset < end:
                # Blocks are written in order. Accepting repeated blocks would let a small crafted
                # file keep a reader busy for hours.
                raise BundleError(self.name, place, "blocks are not in order")
            end = offset + size + TRAILER_SIZE
            yield offset, size

    def _block(self, offset: int, size: int) -> bytes:
        end = offset + size
        if end + TRAILER_SIZE > len(self._data) - FOOTER_SIZE:
            raise BundleError(self.name, offset, "a block reaches beyond the end of the file")
        content = self._data[offset:end]
        stored = unmask(struct.unpack_from("<I", self._data, end + 1)[0])
        if crc32c(self._data[offset : end + 1]) != stored:
            raise BundleError(self.name, offset, "a block does not match its checksum")
        if self._data[end] != 0:
            raise BundleError(
                self.name, end, "a block is compressed; TensorFlow does not compress indexes"
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

    def _block_entries(self, offset: int, size: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields keys and values of a block, with the file offset of each value."""
        block = self._block(offset, size)
        if size < 4:
            raise BundleError(self.name, offset, "a block is too short")
        restarts = struct.unpack_from("<I", block, size - 4)[0]
        limit = size - 4 - 4 * restarts
        if limit < 0:
            raise BundleError(self.name, offset, "a block has more restart points than bytes")
        key, position, left = b"", 0, _MAX_SHARED * size
        while position < limit:
            head = block[position : position + 3]
            if len(head) == 3 and max(head) < 0x80:
                # The common case, inlined: three calls would take a third of the total time.
                shared, rest, length = head
                position += 3
            else:
                shared, rest, length, position = self._lengths(block, position, offset)
            start = position + rest
            end = start + length
            if shared > len(key) or end > limit:
                raise BundleError(self.name, offset + position, "an entry is truncated")
            left -= shared
            if left < 0:
                problem = "keys share more bytes than TensorFlow writes"
                raise BundleError(self.name, offset + position, problem)
            key = key[:shared] + block[position:start]
            yield key, block[start:end], offset + start
            position = end
