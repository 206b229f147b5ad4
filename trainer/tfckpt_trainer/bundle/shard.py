"""Reads a data file by position.

Files are not memory-mapped: a truncated mapping would kill the process with SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tfckpt_trainer.bundle.links import open_descriptor_inside
from tfckpt_trainer.errors import BundleError, DamagedFileError

CHUNK = 1 << 20
"""Bytes per read of a large tensor, small enough to stay in the CPU cache."""

_WINDOW = 1 << 20
_SMALL = 64 << 10


class Shard:
    """An open data file of a checkpoint.

    Adjacent small tensors are served from one read.

    Raises:
        FileNotFoundError: The file does not exist.
        BundleError: The path is not a regular file.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self._descriptor, self.size = open_descriptor_inside(path)
        except DamagedFileError as error:
            raise BundleError(path.name, None, "is not a regular file") from error
        self._window = b""
        self._window_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Returns exactly `size` bytes at `offset`.

        Raises:
            BundleError: The file is too short.
        """
        start = offset - self._window_at
        if start >= 0 and 0 <= size <= len(self._window) - start:
            return self._window[start : start + size]
        self.check(offset, size)
        if size > _SMALL:
            return self._pread(offset, size)
        if start < 0 or start + size > len(self._window):
            self._window = self._pread(offset, min(_WINDOW, self.size - offset))
            self._window_at, start = offset, 0
        return self._window[start : start + size]

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yields `size` bytes at `offset`, at most `CHUNK` at a time.

        Drop each chunk before you ask for the next one: reusing its memory doubles throughput.

        Raises:
            BundleError: The file is too short; nothing was read.
        """
        self.check(offset, size)
        end = offset + size
        while offset < end:
            count = min(CHUNK, end - offset)
            yield self.read(offset, count)
            offset += count

    def check(self, offset: int, size: int) -> None:
        """Checks that the file has `size` bytes at `offset`; reads nothing.

        Raises:
            BundleError: The file is too short.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise BundleError(
                self.name, offset, f"ends at byte {self.size}; expected at least {offset + size}"
            )

    def _pread(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                raise BundleError(self.name, offset + len(data), "was truncated while being read")
            data += more
        return data
