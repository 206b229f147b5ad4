"""Opens array files, and writes checkpoints from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfckpt_trainer.bundle.exchange.hdf5 import Hdf5Reader, is_keras_archive
from tfckpt_trainer.bundle.exchange.npz import NpzReader
from tfckpt_trainer.bundle.exchange.safetensors import SafetensorsReader
from tfckpt_trainer.bundle.links import LFS_LIMIT, check_content
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.bundle.writing.object_graph_builder import build_object_graph, tensor_name
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.storage.own_links import open_named_file

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Array, ArrayReader, Chunks

_ZIP = b"PK"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEAD_SIZE = 9
"""In a safetensors file, the size of the header and its first character."""

_NAMED = {".npz", ".safetensors", ".keras", ".h5", ".hdf5"}
"""Endings of the names of these files."""

_NUMPY = "Write its arrays with `numpy.savez(PATH, **arrays)`, and convert that file."


class Conversion(NamedTuple):
    """What was written.

    Attributes:
        tensors: Number of tensors, without the object graph.
        bytes: Size of the tensors.
    """

    tensors: int
    bytes: int


def open_array_file(path: Path) -> ArrayReader:
    """Opens a file of NumPy (`npz`), safetensors or Keras, whatever its name is.

    Raises:
        DamagedFileError: It is none of them, or damaged.
        UsageError: A tensor has a type that cannot be converted, or h5py is missing.
        OSError: The file cannot be read, or is a pointer of Git LFS.
    """
    with open_named_file(path) as file:
        start = file.read(LFS_LIMIT)
    head = start[:_HEAD_SIZE]
    if head.startswith(_HDF5) or (head.startswith(_ZIP) and is_keras_archive(path)):
        return Hdf5Reader(path)
    if head.startswith(_ZIP):
        return NpzReader(path)
    if head[_HEAD_SIZE - 1 :] == b"{":
        return SafetensorsReader(path)
    check_content(path, start)
    advice = "" if path.suffix in _NAMED else f" {_NUMPY}"
    raise DamagedFileError(f"{path} is neither an npz, a safetensors nor a Keras file.{advice}")


def write_arrays(
    writer: BundleWriter,
    source: Path,
    *,
    by_name: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Conversion:
    """Writes all tensors of an array file into a new checkpoint.

    Args:
        writer: The new checkpoint.
        source: A file that `open_array_file` opens.
        by_name: Whether to store the tensors under their names alone, as TensorFlow 1 does.
            Otherwise the names are paths of objects: the checkpoint has an object graph.
        on_progress: Called with the bytes done and in total, after each chunk.

    Raises:
        DamagedFileError: The array file is damaged.
        UsageError: A tensor cannot be stored.
        OSError: A file cannot be read or written.
    """
    with open_array_file(source) as reader:
        if not reader.arrays:
            raise UsageError(f"{source} has no arrays, so there is nothing to store.")
        total, done = sum(array.size for array in reader.arrays), 0

        def chunks_of(array: Array) -> Chunks:
            nonlocal done
            for chunk in array.chunks():
                yield chunk
                done += chunk.nbytes
                on_progress(done, total)

        names = list(_names(reader, by_name))
        for name, array in zip(names, reader.arrays, strict=True):
            writer.add(name, array.dtype, array.shape, chunks_of(array))
        size = writer.size
        if not by_name:
            writer.add_object_graph(build_object_graph(names))
        return Conversion(len(names), size)


def _names(reader: ArrayReader, by_name: bool) -> Iterator[str]:
    for array in reader.arrays:
        yield array.name if by_name else tensor_name(array.name)
