"""Writes Keras files with the structure of another one: its groups, attributes and settings."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import (
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, format_tensor
from tfckpt_trainer.bundle.exchange.array_file import (
    ARCHIVE_ERRORS,
    PIECE,
    Array,
    archive_members,
    new_file,
)
from tfckpt_trainer.bundle.exchange.hdf5 import WEIGHTS_MEMBER, Hdf5Reader, is_keras_archive
from tfckpt_trainer.bundle.exchange.whole_tensors import bands
from tfckpt_trainer.errors import DamagedFileError, RefusedError
from tfckpt_trainer.rundir.heartbeats.writer_marks import temporary_path
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.own_links import open_named_file

if TYPE_CHECKING:
    from typing import Any


def write_keras_like(path: Path, template: Path, arrays: Mapping[str, Array]) -> None:
    """Writes a copy of a Keras file with other values.

    Args:
        path: The new file.
        template: A file of Keras, which is not changed.
        arrays: The values by the names of tensors in the template. The others are copied.

    Raises:
        DamagedFileError: The template is damaged.
        RefusedError: The file exists, or a tensor has another shape or type.
        UsageError: h5py is missing.
        OSError: A file cannot be read or written.
    """
    with new_file(path) as temporary:
        if not is_keras_archive(template):
            with open_named_file(template) as old, open(temporary, "xb") as new:
                shutil.copyfileobj(old, new, PIECE)
            _fill(temporary, arrays)
            return
        weights = temporary_path(temporary.with_name(f"{path.name}.h5"))
        try:
            with _archive(template) as old, zipfile.ZipFile(temporary, "x") as new:
                with old.open(WEIGHTS_MEMBER) as source, open(weights, "xb") as target:
                    shutil.copyfileobj(source, target, PIECE)
                _fill(weights, arrays)
                for member in archive_members(old):
                    if member.filename == WEIGHTS_MEMBER:
                        new.write(weights, WEIGHTS_MEMBER)
                    else:
                        with old.open(member) as source, new.open(member.filename, "w") as target:
                            shutil.copyfileobj(source, target, PIECE)
        finally:
            weights.unlink(missing_ok=True)


@contextmanager
def _archive(template: Path) -> Iterator[zipfile.ZipFile]:
    # Refuses links to files outside, and compressed weights.
    with Hdf5Reader(template):
        pass
    with open_named_file(template) as file:
        try:
            archive = zipfile.ZipFile(file)
        except ARCHIVE_ERRORS as error:
            raise DamagedFileError(f"{template} is damaged: {error}.") from error
        with archive:
            yield archive


def _fill(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes values into a new file, in bounded memory."""
    with Hdf5Reader(path, tried=open_plain(path)) as reader:
        for old in reader.arrays:
            new = arrays.get(old.name)
            if new is not None and (new.dtype, new.shape) != (old.dtype, old.shape):
                raise RefusedError(
                    f"{new.name} is {format_tensor(new.dtype, new.shape)}; {old.name} is "
                    f"{format_tensor(old.dtype, old.shape)}. Give --like a file of the same model."
                )
    import h5py

    with h5py.File(path, "r+") as file:
        for name, array in arrays.items():
            _write(file[name], array)


def _write(data: Any, array: Array) -> None:
    import numpy as np

    places = bands(array.shape or (1,), ITEM_SIZES[array.dtype], PIECE)
    rest = np.empty(0, np.uint8)
    chunks = array.chunks()
    for outer, start, end in places:
        place = (*outer, slice(start, end)) if array.shape else ()
        shape = (end - start, *array.shape[len(outer) + 1 :]) if array.shape else ()
        size = int(np.prod(shape)) * ITEM_SIZES[array.dtype]
        parts = [rest]
        while sum(map(len, parts)) < size:
            parts.append(np.ascontiguousarray(next(chunks)).view(np.uint8))
        whole = np.concatenate(parts)
        # Keras stores bfloat16 as elements of two bytes, which NumPy does not know.
        kind = "V2" if array.dtype == "bfloat16" else np.dtype(array.dtype).newbyteorder("<")
        data[place] = whole[:size].view(kind).reshape(shape)
        rest = whole[size:]
    # The last chunk comes before its checksum is compared.
    for _ in chunks:
        pass
