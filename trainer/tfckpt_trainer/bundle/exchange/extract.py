"""Writes tensors of a checkpoint into a file of another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.npz import NPZ_TYPES, write_npy_files, write_npz
from tfckpt_trainer.bundle.exchange.safetensors import SAFETENSORS_TYPES, write_safetensors
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import Index, TensorEntry


class ArrayFormat(StrEnum):
    """The formats that tensors are written in."""

    NPY = "npy"
    NPZ = "npz"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True)
class Extraction:
    """What was written.

    Attributes:
        names: The names in the file, by tensor name.
        bytes: Size of all tensors in the file.
        widened: The types in the file of tensors whose type the format does not have, by name.
            The values are the same.
    """

    names: dict[str, str]
    bytes: int
    widened: dict[str, str]


def extract_tensors(
    prefix: Path,
    index: Index,
    tensors: Mapping[str, TensorEntry],
    path: Path,
    kind: ArrayFormat,
    on_read: Callable[[int], None] = lambda size: None,
) -> Extraction:
    """Writes numeric tensors into a new file, or for `npy` into a new directory.

    Memory does not depend on the sizes of the tensors. Every tensor is checked against its
    checksum.

    Args:
        prefix: The checkpoint.
        index: Its index.
        tensors: The tensors, by the names that they get in the file.
        path: The file or directory.
        kind: The format.
        on_read: Called after each chunk with its size in bytes.

    Raises:
        BundleError: A tensor is damaged or not numeric. No file is left.
        UsageError: The format cannot store a name or a type.
        RefusedError: The file exists.
        OSError: A file cannot be read or written.
    """
    arrays = [
        Array(
            name, entry.dtype, entry.shape, partial(row_major_chunks, prefix, index, entry)
        ).counted(on_read)
        for name, entry in tensors.items()
    ]
    written = write_arrays_as(arrays, path, kind, prefix.name)
    by_path = {name: entry.name for name, entry in tensors.items()}
    return replace(
        written,
        names={by_path[name]: stored for name, stored in written.names.items()},
        widened={by_path[name]: dtype for name, dtype in written.widened.items()},
    )


def write_arrays_as(
    arrays: Sequence[Array], path: Path, kind: ArrayFormat, source: str
) -> Extraction:
    """Writes tensors into a new file, or for `npy` into a new directory.

    Args:
        arrays: The tensors.
        path: The file or directory.
        kind: The format.
        source: The name of what they come from.

    Raises:
        UsageError: The format cannot store a name or a type.
        RefusedError: The file exists.
        OSError: A file cannot be read or written.
    """
    types = SAFETENSORS_TYPES if kind is ArrayFormat.SAFETENSORS else NPZ_TYPES
    stored = [array.stored_as(types.get(array.dtype, array.dtype)) for array in arrays]
    if kind is ArrayFormat.NPY:
        write_npy_files(path, stored)
    elif kind is ArrayFormat.NPZ:
        write_npz(path, stored)
    else:
        write_safetensors(path, stored, {"format": "tf", "checkpoint": source})
    widened = {array.name: types[array.dtype] for array in arrays if array.dtype in types}
    return Extraction(
        {array.name: array.name for array in arrays}, sum(array.size for array in stored), widened
    )
