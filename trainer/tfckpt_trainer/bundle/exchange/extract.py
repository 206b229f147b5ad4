"""Writes tensors of a checkpoint into a file of another format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tfckpt_trainer.bundle.writing.object_graph_builder import variable_path

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
    entries: Sequence[TensorEntry],
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
        entries: The tensors.
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
    names = _names_in_file(entries)

    def chunks_of(entry: TensorEntry) -> Chunks:
        for chunk in row_major_chunks(prefix, index, entry):
            yield chunk
            on_read(chunk.nbytes)

    arrays = [
        Array(names[entry.name], entry.dtype, entry.shape, partial(chunks_of, entry)).stored_as(
            types.get(entry.dtype, entry.dtype)
        )
        for entry in entries
    ]
    if kind is ArrayFormat.NPY:
        write_npy_files(path, arrays)
    elif kind is ArrayFormat.NPZ:
        write_npz(path, arrays)
    else:
        write_safetensors(path, arrays, {"format": "tf", "checkpoint": prefix.name})
    widened = {entry.name: types[entry.dtype] for entry in entries if entry.dtype in types}
    return Extraction(names, sum(array.size for array in arrays), widened)


def _names_in_file(entries: Sequence[TensorEntry]) -> dict[str, str]:
    """Returns the path of each variable; the name of its tensor if another one has that name."""
    taken = {entry.name for entry in entries}
    names = {}
    for entry in entries:
        path = variable_path(entry.name)
        names[entry.name] = path if path and path not in taken else entry.name
    return names
