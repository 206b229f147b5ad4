"""NumPy's formats: `npy` for one array, `npz` for several.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import quote

from tfckpt_trainer.bundle.dtypes import numpy_dtype
from tfckpt_trainer.bundle.exchange.array_file import (
    ARCHIVE_ERRORS,
    PIECE,
    PLAIN_TYPES,
    WIDENED,
    Array,
    archive_members,
    move_new,
    new_file,
    refuse_existing,
)
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.heartbeats.writer_marks import temporary_directory
from tfckpt_trainer.rundir.storage.files import create_directory, sync_directory, sync_file
from tfckpt_trainer.rundir.storage.own_links import held_directory, open_named_file
from tfckpt_trainer.words.clean_text import is_utf8

if TYPE_CHECKING:
    import numpy as np

    from tfckpt_trainer.bundle.exchange.array_file import Chunks

_ADVICE = "Give a file that numpy.savez wrote."
_SUFFIX = ".npy"
NPZ_TYPES = WIDENED | {
    "bfloat16": "float32", "float8_e5m2": "float16", "float8_e4m3fn": "float32",
}  # fmt: skip
"""NumPy reads the types of `ml_dtypes` back as raw bytes, so they become wider ones."""


def write_npz(path: Path, arrays: Sequence[Array]) -> None:
    """Writes an uncompressed `npz` file, as `numpy.savez` does.

    Raises:
        UsageError: A name cannot be stored.
        RefusedError: The file exists.
        OSError: The file cannot be written.
    """
    for array in arrays:
        _check_name(array.name)
    with new_file(path) as temporary, zipfile.ZipFile(temporary, "x") as archive:
        for array in arrays:
            member = zipfile.ZipInfo(f"{array.name}{_SUFFIX}")
            with archive.open(member, "w", force_zip64=True) as file:
                _write(file, array)


def write_npy_files(directory: Path, arrays: Sequence[Array]) -> None:
    """Writes one `npy` file for each tensor into a new directory; names become paths in it.

    Nothing is left after an error.

    Raises:
        UsageError: Two names would become the same path.
        RefusedError: The directory exists.
        OSError: A file cannot be written.
    """
    places = _places(arrays)
    refuse_existing(directory)
    with (
        held_directory(directory.parent) as held,
        temporary_directory(held.opened / directory.name) as temporary,
    ):
        new = temporary / directory.name
        create_directory(new)
        for array, place in zip(arrays, places, strict=True):
            path = new / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                _write(file, array)
            sync_file(path)
        for parent in (new, *(path for path in new.rglob("*") if path.is_dir())):
            sync_directory(parent)
        move_new(new, held.opened / directory.name, directory)


def _places(arrays: Sequence[Array]) -> list[Path]:
    """Returns the path of each file; none is a directory of another one."""
    places = []
    for array in arrays:
        *parents, last = [_component(part) for part in array.name.split("/")]
        places.append(Path(*parents, f"{last}{_SUFFIX}"))
    directories = {parent for place in places for parent in place.parents}
    for array, place in zip(arrays, places, strict=True):
        if place in directories:
            raise UsageError(
                f"{place} would be the file of {array.name} and a directory; use --to npz instead."
            )
    return places


class NpzReader:
    """An open `npz` file; arrays are never unpickled.

    Raises:
        DamagedFileError: It is not an `npz` file.
        UsageError: An array has a type that cannot be converted.
        OSError: The file cannot be read.
    """

    checksums = "CRC-32 of each array"

    def __init__(self, path: Path) -> None:
        self._path = path
        with ExitStack() as stack:
            file = stack.enter_context(open_named_file(path))
            try:
                self._archive = stack.enter_context(zipfile.ZipFile(file))
            except ARCHIVE_ERRORS as error:
                is_whole = zipfile.is_zipfile(file)
                problem = str(error) if is_whole else "the end of the archive is missing"
                raise self._incomplete(problem) from error
            try:
                self.arrays = tuple(map(self._array, self._members()))
            except zipfile.BadZipFile as error:
                raise self._incomplete(str(error)) from error
            self._close = stack.pop_all().close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _members(self) -> list[zipfile.ZipInfo]:
        entries = archive_members(self._archive)
        members = [entry for entry in entries if entry.filename.endswith(_SUFFIX)]
        if entries and not members:
            # Files of Keras (`.keras`) and PyTorch are archives too.
            raise DamagedFileError(f"{self._path} is not an npz file: it has no arrays. {_ADVICE}")
        return members

    def _incomplete(self, problem: str) -> DamagedFileError:
        # Without its directory, nothing tells which kind of archive it was.
        return DamagedFileError(
            f"{self._path} is not a complete npz or Keras file: {problem}. Copy or save it again."
        )

    def _array(self, member: zipfile.ZipInfo) -> Array:
        name = member.filename.removesuffix(_SUFFIX)
        try:
            with self._archive.open(member) as file:
                shape, by_columns, dtype = _read_header(file)
                start = member.file_size - file.tell()
        except ARCHIVE_ERRORS as error:
            raise DamagedFileError(f"{self._path}: {name} cannot be read: {error}.") from error
        if dtype.name not in PLAIN_TYPES:
            problem = "cannot be converted; expected numbers"
            if dtype.kind in "SU":
                problem += ". Leave texts out: with --like, those of that checkpoint are kept"
            raise UsageError(f"{self._path}: {name} has the type {dtype}, which {problem}.")
        array = Array(name, dtype.name, shape, lambda: self._chunks(member, dtype, by_columns))
        if array.size != start:
            raise DamagedFileError(
                f"{self._path}: {name} has {start} bytes; expected {array.size} for its shape."
            )
        return array

    def _chunks(self, member: zipfile.ZipInfo, dtype: np.dtype[Any], by_columns: bool) -> Chunks:
        import numpy as np

        plain = numpy_dtype(dtype.name)
        try:
            with self._archive.open(member) as file:
                shape, _, _ = _read_header(file)
                if by_columns:
                    # Rows are scattered over the whole file.
                    values = np.frombuffer(file.read(), dtype).reshape(shape[::-1])
                    yield np.ascontiguousarray(values.T).reshape(-1).astype(plain, copy=False)
                    return
                while data := file.read(PIECE):
                    yield np.frombuffer(data, dtype).astype(plain, copy=False)
        except ARCHIVE_ERRORS as error:
            name = member.filename.removesuffix(_SUFFIX)
            raise DamagedFileError(f"{self._path}: {name} is damaged: {error}.") from error


def _write(file: IO[bytes], array: Array) -> None:
    from numpy.lib import format as npy

    descr = npy.dtype_to_descr(numpy_dtype(array.dtype))
    header = {"descr": descr, "fortran_order": False, "shape": array.shape}
    try:
        npy.write_array_header_1_0(file, header)
    except ValueError:
        # A header of more than 64 kB.
        npy.write_array_header_2_0(file, header)
    for chunk in array.chunks():
        file.write(chunk.data)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise ValueError(f"version {version[0]}.{version[1]} of the npy format is not supported")


def _check_name(name: str) -> None:
    if not is_utf8(name):
        raise UsageError(f"{name} is not UTF-8; an npz file cannot have such a name.")
    if "\0" in name:
        raise UsageError(f"{name!r} has a zero byte; an npz file cannot have such a name.")


def _component(part: str) -> str:
    """Returns a file name for one part of the name of a tensor."""
    if part in {"", ".", ".."}:
        return part.replace(".", "%2E") or "%"
    data = part.encode("utf-8", "surrogateescape")
    return quote(data, safe=" !#$&'()+,;=@[]^_`{}~-.:")
