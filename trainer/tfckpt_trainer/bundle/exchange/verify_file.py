"""Verifies files of other formats: reads all of them, and compares what has a checksum."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.bundle.dtypes import is_inexact
from tfckpt_trainer.bundle.exchange.array_file import (
    ARCHIVE_ERRORS,
    PIECE,
    Array,
    archive_members,
)
from tfckpt_trainer.bundle.exchange.convert import open_array_file
from tfckpt_trainer.bundle.exchange.hdf5 import OtherHdf5Error
from tfckpt_trainer.bundle.tensors import to_double
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.storage.own_links import open_named_file
from tfckpt_trainer.words.counts import count


class FileResult(NamedTuple):
    """What reading a whole file found.

    Attributes:
        checked: Which checksums were compared, as words; empty if the file has none.
        problem: Why it is damaged; empty if all could be read.
        not_finite: The names of tensors with NaN or infinite values.
    """

    checked: str = ""
    problem: str = ""
    not_finite: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """`corrupt`; `sound`, by its checksums; or `readable`, without any."""
        return "corrupt" if self.problem else "sound" if self.checked else "readable"

    @property
    def reason(self) -> str:
        """What that is known from, as words."""
        return self.problem or self.checked or "all values were read; it has no checksums"


def verify_array_file(path: Path, on_read: Callable[[int], None] = lambda size: None) -> FileResult:
    """Reads a file that `open_array_file` opens, in bounded memory.

    Args:
        path: The file.
        on_read: Called after each piece with its size in bytes.

    Raises:
        UsageError: A tensor has a type that is not supported, h5py is missing, or the file has what
            Keras never writes.
        OSError: The file cannot be read.
    """
    try:
        checked = _check_archive(path)
        with open_array_file(path) as reader:
            bad = [array.name for array in reader.arrays if not _is_finite(array, on_read)]
            return FileResult(checked or reader.checksums, not_finite=tuple(bad))
    except OtherHdf5Error as error:
        raise UsageError(str(error)) from error
    except DamagedFileError as error:
        return FileResult(problem=str(error))


def _is_finite(array: Array, on_read: Callable[[int], None]) -> bool:
    import numpy as np

    finite = True
    for chunk in array.chunks():
        # All is read, also after the first value that is not finite.
        finite &= not is_inexact(array.dtype) or bool(np.isfinite(to_double(chunk)).all())
        on_read(chunk.nbytes)
    return finite


def _check_archive(path: Path) -> str:
    """Returns which checksums were compared; empty if the file is no archive."""
    try:
        with open_named_file(path) as opened:
            if not zipfile.is_zipfile(opened):
                return ""
            archive = zipfile.ZipFile(opened)
            members = archive_members(archive)
            for member in members:
                with archive.open(member) as file:
                    while file.read(PIECE):
                        pass
    except ARCHIVE_ERRORS as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
    return f"CRC-32 of {count(len(members), 'file')} in it"
