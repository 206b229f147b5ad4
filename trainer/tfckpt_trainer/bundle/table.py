"""The file format of an index: a sorted table of blocks with checksums and prefix-coded keys.

Format: `tsl/lib/io/{format,table,block}` in TensorFlow, taken from LevelDB.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c, unmask
from tfckpt_trainer.bundle.links import read_inside
from tfckpt_trainer.bundle.snappy import decompress, expanded_size
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.storage.files import open_plain

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

_MAX_EXPANSION = 8
_ALWAYS_EXPANDED = 4 << 20
"""Blocks with Snappy compression may take this many bytes in total, or 8 times the file.

The keys share their prefixes already, so compression rarely saves more than three quarters.
Without a limit, a crafted index could expand to 21 times its size.
"""

_PLAIN, _SNAPPY = 0, 1
_LONGEST_VARINT32 = 5

_NUMBER = struct.Struct("<I")

_READ_AT_ONCE = 1 << 16
"""A file of at most so many bytes is read before its end is checked."""

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


def read_table(path: Path | str) -> bytes:
    """Reads an index file, of which only size and end are checked.

    Raises:
        BundleError: The file is not a table.
        FileNotFoundError: The file does not exist.
    """
    name = os.path.basename(path)
    try:
        # Checks the end first, so that a large file of another kind is not read.
        return read_inside(path, _READ_AT_ONCE, partial(_check_end, name))
    except DamagedFileError as error:
        raise BundleError(name, None, "is not a regular file") from error


def _check_end(name: str, size: int, end: bytes) -> None:
    if size > INDEX_LIMIT:
        problem = f"has {size} bytes; an index has at most {INDEX_LIMIT}"
        raise BundleError(name, None, problem)
    if size < FOOTER_SIZE:
        raise BundleError(name, 0, f"has {size} bytes; an index has at least {FOOTER_SIZE}")
    if end != _MAGIC_BYTES:
        problem = "does not end with the index magic number; the file may be truncated"
        raise BundleError(name, size - 8, problem)


class IndexTable:
    """An index file in memory.

    Raises:
        BundleError: The file is not a table.
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path | str, content: bytes | None = None) -> None:
        """Reads a table.

        Args:
            path: The file.
            content: Its bytes, if they were read before.
        """
        self.name = os.path.basename(path)
        self._data = read_table(path) if content is None else content
        self._metaindex, self._blocks, self._padding = self._read_footer()
        self._is_checked = False
        self._handles = list(self._read_handles())

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self._data

    def check(self) -> None:
        """Checks every block against its checksum.

        Raises:
            BundleError: A block is damaged.
        """
        for _, offset, size in self._handles:
            self._block(offset, size)
        self._is_checked = True

    def unused_damage(self) -> str:
        """Returns a description of damage in bytes that no reader uses; empty if there is none.

        Raises:
            BundleError: Bytes that are used are damaged.
        """
        try:
            self._block(*self._metaindex)
        except BundleError as error:
            return f"the metaindex, which is not used: {error.problem}"
        unused = self._unused_in_footer()
        if unused:
            return unused
        sizes = [self._metaindex[1], self._blocks[1], *(size for _, _, size in self._handles)]
        used = FOOTER_SIZE + sum(size + TRAILER_SIZE for size in sizes)
        if used != len(self._data):
            return f"{len(self._data) - used} bytes do not belong to any block"
        return ""

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values. Keys strictly increase."""
        previous: bytes | None = None
        for last, offset, size in self._handles:
            for key, value, _ in self._block_entries(offset, size):
                if previous is not None and key <= previous:
                    raise BundleError(self.name, offset, "keys are not in order")
                previous = key
                yield key, value
            # TensorFlow finds the block of a key by these; it misses keys that they exclude.
            if previous is not None and previous > last:
                raise BundleError(self.name, offset, "a block has keys that TensorFlow cannot find")
            previous = last

    def offset_of(self, key: bytes) -> int | None:
        """Returns the file offset of the value of `key`, for error messages."""
        for _, offset, size in self._handles:
            for entry_key, _, position in self._block_entries(offset, size):
                if entry_key == key:
                    return position
        return None

    def _read_footer(self) -> tuple[_Handle, _Handle, int]:
        """Returns the handles of metaindex and index, and where they end."""
        data = self._data
        _check_end(self.name, len(data), data[-8:])
        start = len(data) - FOOTER_SIZE
        try:
            position = start
            numbers = []
            for _ in range(4):
                number, position = read_varint(data, position)
                numbers.append(number)
        except WireError as error:
            raise BundleError(self.name, start, f"footer: {error}") from error
        return (numbers[0], numbers[1]), (numbers[2], numbers[3]), position

    def _unused_in_footer(self) -> str:
        """Returns a description of damage in bytes of the footer that no reader uses."""
        data, numbers = self._data, (*self._metaindex, *self._blocks)
        if any(data[self._padding : len(data) - 8]):
            return "the padding of the footer is not zero"
        needed = sum(max(1, -(-number.bit_length() // 7)) for number in numbers)
        if self._padding - (len(data) - FOOTER_SIZE) != needed:
            # A flipped bit in the padding can make a varint longer without changing its value.
            return "a number in the footer takes more bytes than it needs"
        return ""

    def _read_handles(self) -> Iterator[tuple[bytes, int, int]]:
        """Yields for each block a key that is not less than its last one, its offset and size."""
        end = expanded = 0
        for last, value, place in self._block_entries(*self._blocks):
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
            expanded += self._expanded_size(offset, size)
            if expanded:
                self._check_expanded(offset, expanded)
            yield last, offset, size

    def _block(self, offset: int, size: int) -> bytes:
        kind, content = self._kind(offset, size), self._data[offset : offset + size]
        if not self._is_checked:
            stored = unmask(_NUMBER.unpack_from(self._data, offset + size + 1)[0])
            if crc32c(self._data[offset : offset + size + 1]) != stored:
                raise BundleError(self.name, offset, "a block does not match its checksum")
        if kind == _PLAIN:
            return content
        if kind != _SNAPPY:
            problem = f"a block has compression {kind}; expected 0 (none) or 1 (Snappy)"
            raise BundleError(self.name, offset + size, problem)
        self._check_expanded(offset, self._expanded_size(offset, size))
        try:
            return decompress(content)
        except WireError as error:
            raise BundleError(self.name, offset, str(error)) from error

    def _kind(self, offset: int, size: int) -> int:
        """Returns the kind of compression of a block."""
        if offset + size + TRAILER_SIZE > len(self._data) - FOOTER_SIZE:
            raise BundleError(self.name, offset, "a block reaches beyond the end of the file")
        return self._data[offset + size]

    def _expanded_size(self, offset: int, size: int) -> int:
        """Returns how many bytes the compression of a block adds."""
        if self._kind(offset, size) != _SNAPPY:
            return 0
        try:
            return expanded_size(self._data[offset : offset + size])
        except WireError as error:
            raise BundleError(self.name, offset, str(error)) from error

    def _check_expanded(self, offset: int, size: int) -> None:
        limit = max(_ALWAYS_EXPANDED, _MAX_EXPANSION * len(self._data))
        if size > limit:
            problem = f"compressed blocks have more than {limit} bytes"
            raise BundleError(self.name, offset, problem)

    def _lengths(self, block: bytes, position: int, place: int) -> tuple[int, int, int, int]:
        numbers = []
        for _ in range(3):
            try:
                number, following = read_varint(block, position)
            except WireError as error:
                raise BundleError(self.name, place, str(error)) from error
            if following - position > _LONGEST_VARINT32:
                raise BundleError(self.name, place, "a number is too long")
            numbers.append(number)
            position = following
        return numbers[0], numbers[1], numbers[2], position

    def _block_entries(self, offset: int, size: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields keys and values of a block, with the file offset of each value.

        Offsets in a compressed block are that of the block.
        """
        block = self._block(offset, size)
        step = 1 if self._data[offset + size] == _PLAIN else 0
        limit, restarts = self._restarts(block, offset)
        restart = next(restarts, -1)
        key, position, left = b"", 0, _MAX_SHARED * size
        while position < limit:
            begin = position
            # The restart points follow, so there are three more bytes.
            shared, rest, length = block[position], block[position + 1], block[position + 2]
            if shared | rest | length < 0x80:
                # The common case, inlined: three calls would take a third of the total time.
                position += 3
            else:
                place = offset + position * step
                shared, rest, length, position = self._lengths(block, position, place)
            start = position + rest
            end = start + length
            if shared > len(key) or end > limit:
                raise BundleError(self.name, offset + position * step, "an entry is truncated")
            if begin == restart and not shared:
                restart = next(restarts, -1)
            left -= shared
            if left < 0:
                problem = "keys share more bytes than TensorFlow writes"
                raise BundleError(self.name, offset + position * step, problem)
            key = key[:shared] + block[position:start]
            yield key, block[start:end], offset + start * step
            position = end
        if limit and restart != -1:
            raise BundleError(self.name, offset, "a restart point is not at the start of a key")

    def _restarts(self, block: bytes, offset: int) -> tuple[int, Iterator[int]]:
        """Returns where the entries of a block end, and its restart points.

        TensorFlow looks for a key from the restart points on.
        """
        count = _NUMBER.unpack_from(block, len(block) - 4)[0] if len(block) >= 4 else 0
        limit = len(block) - 4 - 4 * count
        if count < 1 or limit < 0:
            problem = f"a block of {len(block)} bytes has {count} restart points"
            raise BundleError(self.name, offset, problem)
        points: tuple[int, ...] = struct.unpack_from(f"<{count}I", block, limit)
        if points[0] != 0:
            raise BundleError(self.name, offset, "the first restart point is not at the first key")
        return limit, iter(points)
