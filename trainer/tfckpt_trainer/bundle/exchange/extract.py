"""Writes tensors of a checkpoint into a file of another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.npz import NPZ_TYPES, write_npy_files, write_npz
from tfckpt_trainer.bundle.exchange.safetensors import SAFETENSORS_TYPES, write_safetensors
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import Index, TensorEntry

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Chunks


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
    types = SAFETENSORS_TYPES if kind is ArrayFormat.SAFETENSORS else NPZ_TYPES

    def chunks_of(entry: TensorEntry) -> Chunks:
        for chunk in row_major_chunks(prefix, index, entry):
            yield chunk
            on_read(chunk.nbytes)

    arrays = [
        Array(name, entry.dtype, entry.shape, partial(chunks_of, entry)).stored_as(
            types.get(entry.dtype, entry.dtype)
        )
        for name, entry in tensors.items()
    ]
    if kind is ArrayFormat.NPY:
        write_npy_files(path, arrays)
    elif kind is ArrayFormat.NPZ:
        write_npz(path, arrays)
    else:
        write_safetensors(path, arrays, {"format": "tf", "checkpoint": prefix.name})
    names = {entry.name: name for name, entry in tensors.items()}
    widened = {one.name: types[one.dtype] for one in tensors.values() if one.dtype in types}
    return Extraction(names, sum(array.size for array in arrays), widened)
