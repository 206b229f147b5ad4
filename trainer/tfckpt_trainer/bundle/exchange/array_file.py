"""What the file formats of this folder have in common: tensors by name, in pieces."""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, cast_floats, is_inexact, numpy_dtype
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.heartbeats.writer_marks import remove_leftovers, temporary_path
from tfckpt_trainer.rundir.storage.files import move, sync_directory, sync_file
from tfckpt_trainer.rundir.storage.own_links import held_directory
from tfckpt_trainer.words.counts import size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Chunks = Iterator[NDArray[Any]]

PIECE = 4 << 20
"""Bytes that are read from a file at a time."""

_UNPACKED_FREELY = 64 << 20
_MOST_UNPACKED = 100
"""Bytes for each byte of an archive; Keras does not compress."""


ARCHIVE_ERRORS = (
    zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error,
    zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What `zipfile` raises for archives that are damaged, encrypted or compressed in unknown ways."""

WIDENED = {
    "qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32",
    "int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8", "float4_e2m1fn": "float32",
    "float8_e4m3fnuz": "float32", "float8_e4m3b11fnuz": "float32", "float8_e5m2fnuz": "float32",
}  # fmt: skip
"""Types that no other format has, and the type that holds the same values in them."""

PLAIN_TYPES = {
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "bool", "complex64", "complex128",
}  # fmt: skip
"""The types that NumPy itself has."""


@dataclass(frozen=True)
class Array:
    """A tensor of an array file.

    Attributes:
        dtype: A name in `ITEM_SIZES`.
        chunks: Returns its elements in row-major order, in pieces.
        owner: The names of the layers or the optimizer that it belongs to, if the file tells, as
            in `sequential/dense`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Chunks]
    owner: str = ""

    @property
    def size(self) -> int:
        """Size in bytes."""
        count = 1
        for length in self.shape:
            count *= length
        return count * ITEM_SIZES[self.dtype]

    def counted(self, on_read: Callable[[int], None]) -> Array:
        """Returns the tensor with a function that is called after each piece with its bytes."""

        def chunks() -> Chunks:
            for chunk in self.chunks():
                yield chunk
                on_read(chunk.nbytes)

        return replace(self, chunks=chunks)

    def stored_as(self, dtype: str) -> Array:
        """Returns the tensor with its values in another type."""
        if dtype == self.dtype:
            return self
        target = numpy_dtype(dtype)

        def converted(chunk: NDArray[Any]) -> NDArray[Any]:
            return cast_floats(chunk, dtype) if is_inexact(self.dtype) else chunk.astype(target)

        return Array(self.name, dtype, self.shape, lambda: map(converted, self.chunks()))


class ArrayReader(Protocol):
    """An open array file."""

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Its tensors, in the order of the file."""

    @property
    def checksums(self) -> str:
        """Which checksums reading compares, as words; empty if the file has none."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def archive_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the members of an archive.

    Raises:
        zipfile.BadZipFile: Its beginning is missing, or it unpacks to far more than its size.
    """
    members = archive.infolist()
    if any(member.header_offset < 0 for member in members):
        raise zipfile.BadZipFile("its beginning is missing")
    unpacked, packed = sum(member.file_size for member in members), archive.start_dir
    # Zeros that numpy.savez_compressed wrote take a thousandth of their size.
    is_npz = all(member.filename.endswith(".npy") for member in members)
    if unpacked > _UNPACKED_FREELY + _MOST_UNPACKED * packed and not is_npz:
        raise zipfile.BadZipFile(f"it has {size(packed)}, and would unpack to {size(unpacked)}")
    return members


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Gives a path to write to, and at the end flushes the file and moves it to `path`.

    Nothing is left after an error, and nothing is replaced.

    Raises:
        RefusedError: `path` exists.
        OSError: Its directory cannot be opened, or a link of another user leads there.
    """
    with held_directory(path.parent) as held:
        refuse_existing(path)
        remove_leftovers(held.opened)
        temporary = temporary_path(held.opened / path.name)
        try:
            yield temporary
            sync_file(temporary)
            move_new(temporary, held.opened / path.name, path)
        finally:
            temporary.unlink(missing_ok=True)


def refuse_existing(path: Path) -> None:
    """Raises a `RefusedError` if `path` exists, and an `OSError` if it cannot."""
    with suppress(FileNotFoundError):
        os.lstat(path)
        raise _existing(path)


def _existing(path: Path) -> RefusedError:
    return RefusedError(f"{path} exists; choose another file with --output.")


def move_new(temporary: Path, target: Path, path: Path) -> None:
    """Renames a file to `target`, which a user named `path`, for good; refuses one that exists."""
    try:
        move(temporary, target)
    except FileExistsError as error:
        raise _existing(path) from error
    sync_directory(target.parent)
