"""Writes a checkpoint that TensorFlow reads, without TensorFlow."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from msgspec.structs import replace

from tfckpt_trainer.bundle.checksum import crc32c, mask
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, format_tensor
from tfckpt_trainer.bundle.index import Index, TensorEntry, index_path, shard_path
from tfckpt_trainer.bundle.object_graph import KEY, SIZE_LIMIT, Node
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.slices import WHOLE, Slice, slice_key
from tfckpt_trainer.bundle.tensor_checksums import checksum_of_strings, compute_checksum
from tfckpt_trainer.bundle.wire import encode_varint
from tfckpt_trainer.bundle.writing.encoding import (
    encode_entry,
    encode_header,
    encode_object_graph,
)
from tfckpt_trainer.bundle.writing.table_builder import TableBuilder
from tfckpt_trainer.errors import BundleError, RefusedError, UsageError
from tfckpt_trainer.rundir.storage.files import (
    create_file,
    delete_file,
    delete_tree,
    make_directory,
    move,
    start_flush,
    sync_directory,
    sync_file,
)

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Chunk = bytes | NDArray[Any]

_BUFFER = 64 << 10
_PIECE = 256 << 10
"""Larger than the buffer, so that it is written without a copy."""

_STRETCH = 8 << 20
"""Bytes after which the disk begins to write them, while the next ones are prepared."""


class BundleWriter:
    """Writes a new checkpoint: tensor after tensor into data files, the index at the end.

    The files are written into `NAME_temp`, as TensorFlow does. `commit` flushes them and renames
    them, the index last. Without a commit, leaving the context removes them:

        with BundleWriter(directory / "ckpt-5") as writer:
            writer.add("w", "float32", (2, 3), [values.tobytes()])
            writer.copy(source, index, index.entries["b"])
            writer.commit()

    Memory does not depend on the sizes of the tensors.
    """

    def __init__(self, prefix: Path, *, shard_size: int | None = None) -> None:
        """Prepares the checkpoint; its directory must exist.

        Args:
            prefix: Path of the checkpoint without suffix.
            shard_size: Bytes after which the next tensor begins a new data file. By default,
                there is one data file.

        Raises:
            RefusedError: There are files of this name.
            OSError: The directory cannot be written to.
        """
        self._prefix = prefix
        self._shard_size = shard_size
        self._temporary = prefix.with_name(f"{prefix.name}_temp")
        self._refuse_existing()
        if os.path.lexists(self._temporary):
            raise RefusedError(
                f"{self._temporary} exists: a save of this name is under way or was cut off. "
                "Choose another name."
            )
        make_directory(self._temporary)
        self._entries: dict[bytes, TensorEntry] = {}
        self._files: list[BinaryIO] = []
        self._offset = self._flushing = 0
        self._placed: list[Path] = []
        self._is_committed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            # What could not be written, because the disk is full, is not needed any more.
            with suppress(OSError):
                file.close()
        if not self._is_committed:
            for path in self._placed:
                delete_file(path)
            self._remove_temporary()

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors so far."""
        whole = (entry.name for key, entry in self._entries.items() if key[0] != 0)
        return frozenset(whole)

    @property
    def size(self) -> int:
        """Bytes written to data files so far."""
        return sum(entry.size for entry in self._entries.values())

    def add(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        chunks: Iterable[Chunk],
        *,
        checksum: int | None = None,
    ) -> None:
        """Writes a tensor of numbers.

        Args:
            name: The name of the tensor.
            dtype: A name in `ITEM_SIZES`.
            shape: Sizes of its dimensions.
            chunks: Its elements in row-major order, in pieces of any size: little-endian bytes or
                little-endian arrays.
            checksum: Their CRC32C, if it is known.

        Raises:
            UsageError: The type is not one of numbers, there is a tensor of this name, or the
                chunks have another size than the shape.
            OSError: The data file cannot be written.
        """
        self._add(_key(name), name, dtype, tuple(shape), chunks, checksum)

    def add_rows(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        rows: tuple[int, int],
        chunks: Iterable[Chunk],
    ) -> None:
        """Writes some rows of a tensor of numbers, as TensorFlow stores a part of a tensor.

        Args:
            name: The name of the tensor.
            dtype: A name in `ITEM_SIZES`.
            shape: Sizes of the dimensions of the whole tensor.
            rows: The first row, and their number.
            chunks: Their elements, as `add` takes them.

        Raises:
            UsageError: The type is not one of numbers, the rows were written before, or the chunks
                have another size.
            OSError: The data file cannot be written.
        """
        rest = ((0, WHOLE),) * (len(shape) - 1)
        part = Slice((rows, *rest))
        self._add(slice_key(name, part), name, dtype, (rows[1], *shape[1:]), chunks)
        whole = self._entries.get(_key(name))
        slices = (*whole.slices, part) if whole is not None else (part,)
        self._entries[_key(name)] = TensorEntry(name, dtype, tuple(shape), 0, 0, 0, 0, 0, slices)

    def _add(
        self,
        key: bytes,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        chunks: Iterable[Chunk],
        known: int | None = None,
    ) -> None:
        if dtype not in ITEM_SIZES:
            raise UsageError(f"{name} is {dtype}; expected a numeric type.")
        entry = self._begun(key, name, dtype, shape)
        checksum = 0
        for chunk in chunks:
            for data in _pieces(_as_bytes(chunk)):
                if known is None:
                    checksum = crc32c(data, checksum)
                self._write(data)
        entry = replace(
            entry,
            size=self._offset - entry.offset,
            crc32c=checksum if known is None else known,
        )
        expected = ITEM_SIZES[dtype] * entry.element_count
        if entry.size != expected:
            what = format_tensor(dtype, entry.shape)
            raise UsageError(f"{name} has {entry.size} bytes; expected {expected} for {what}.")
        self._entries[key] = entry

    def add_strings(
        self, name: str, strings: Sequence[bytes], shape: Sequence[int] | None = None
    ) -> None:
        """Writes a tensor of strings; it is a vector unless `shape` says otherwise.

        Raises:
            UsageError: There is a tensor of this name, or the shape has another number of
                elements.
            OSError: The data file cannot be written.
        """
        shape = (len(strings),) if shape is None else tuple(shape)
        entry = self._begun(_key(name), name, "string", shape)
        if entry.element_count != len(strings):
            raise UsageError(
                f"{name} has {len(strings)} strings; expected {entry.element_count} for its shape."
            )
        lengths = [len(string) for string in strings]
        self._write(b"".join(map(encode_varint, lengths)))
        packed = b"".join(struct.pack("<I" if n < 1 << 32 else "<Q", n) for n in lengths)
        self._write(struct.pack("<I", mask(crc32c(packed))))
        for string in strings:
            self._write(string)
        size, checksum = self._offset - entry.offset, checksum_of_strings(strings)
        self._entries[_key(name)] = replace(entry, size=size, crc32c=checksum)

    def add_object_graph(self, nodes: Sequence[Node]) -> None:
        """Writes an object graph, by which TensorFlow finds the tensors of each object.

        Raises:
            UsageError: There is one already, or it is too large to be read.
            OSError: The data file cannot be written.
        """
        data = encode_object_graph(nodes)
        if len(data) > SIZE_LIMIT:
            raise UsageError(
                f"The object graph has {len(data)} bytes; at most {SIZE_LIMIT} are read."
            )
        self.add_strings(KEY, [data], shape=())

    def copy(
        self,
        source: Path,
        index: Index,
        entry: TensorEntry,
        *,
        name: str | None = None,
        on_chunk: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Copies a tensor of any type from another checkpoint, with the parts that it has.

        Args:
            source: Path of the other checkpoint without suffix.
            index: The index of the other checkpoint.
            entry: A tensor in `index.entries`.
            name: The name of the copy; by default that of the tensor.
            on_chunk: Called with the number of bytes after each chunk.

        Raises:
            BundleError: The tensor is damaged, or a part is missing.
            UsageError: There is a tensor of this name.
            FileNotFoundError: A data file is missing.
            OSError: A data file cannot be read or written.
        """
        name = entry.name if name is None else name
        if not entry.slices:
            self._copy(source, entry, name, None, on_chunk)
            return
        self._check_new(_key(name), name)
        for part in entry.slices:
            stored = index.parts.get((entry.name, part))
            if stored is None:
                problem = f"{entry.name}: a part is missing"
                raise BundleError(index_path(source).name, None, problem)
            self._copy(source, stored, name, part, on_chunk)
        self._entries[_key(name)] = replace(entry, name=name)

    def commit(self, *, durable: bool = True) -> tuple[Path, ...]:
        """Writes the index and moves all files into place; from then on the checkpoint exists.

        Args:
            durable: Whether to flush the files and their directory to disk before the index is in
                place. If not, the caller does before anything relies on the checkpoint.

        Returns:
            The paths of the data files and of the index, the index last.

        Raises:
            RefusedError: Files of this name appeared in the meantime.
            OSError: A file cannot be written.
        """
        if not self._files:
            self._open_file()
        for file in self._files:
            file.close()
        index = self._temporary / "index"
        with create_file(index) as file:
            self._write_index(file)
        count = len(self._files)
        written = [Path(file.name) for file in self._files]
        if durable:
            for path in (*written, index):
                sync_file(path)
        self._refuse_existing()
        places = [shard_path(self._prefix, number, count) for number in range(count)]
        for path, place in zip(written, places, strict=True):
            move(path, place)
            self._placed.append(place)
        if durable:
            sync_directory(self._prefix.parent)
        # A checkpoint is complete with its index, so all data has to be in place before.
        move(index, index_path(self._prefix))
        self._is_committed = True
        if durable:
            sync_directory(self._prefix.parent)
        self._remove_temporary()
        return (*places, index_path(self._prefix))

    def _remove_temporary(self) -> None:
        with suppress(OSError):
            delete_tree(self._temporary)

    def _refuse_existing(self) -> None:
        start = f"{self._prefix.name}."
        for name in os.listdir(self._prefix.parent):
            if name == f"{start}index" or name.startswith(f"{start}data-"):
                raise RefusedError(f"{self._prefix.parent / name} exists; choose another name.")

    def _begun(self, key: bytes, name: str, dtype: str, shape: tuple[int, ...]) -> TensorEntry:
        """Returns the entry of a new tensor, whose bytes follow."""
        self._check_new(key, name)
        shard = self._current_shard()
        return TensorEntry(name, dtype, shape, shard, 0, self._offset, 0, 0)

    def _copy(
        self,
        source: Path,
        entry: TensorEntry,
        name: str,
        part: Slice | None,
        on_chunk: Callable[[int], None],
    ) -> None:
        key = _key(name) if part is None else slice_key(name, part)
        self._check_new(key, name)
        number = self._current_shard()
        offset = self._offset

        def write(chunk: bytes) -> None:
            self._write(chunk)
            on_chunk(len(chunk))

        path = shard_path(source, entry.shard, entry.shard_count)
        with Shard(path) as shard:
            if compute_checksum(shard, entry, write) != entry.crc32c:
                problem = f"{entry.name} does not match its checksum"
                raise BundleError(path.name, entry.offset, problem)
        self._entries[key] = replace(entry, name=name, shard=number, offset=offset)

    def _check_new(self, key: bytes, name: str) -> None:
        if not name or name.startswith("\0"):
            raise UsageError(f"{name!r} cannot be the name of a tensor.")
        if key in self._entries:
            raise UsageError(f"There are two tensors with the name {name}.")

    def _current_shard(self) -> int:
        """Returns the number of the data file for the next tensor."""
        is_full = self._shard_size is not None and self._offset >= self._shard_size
        if not self._files or is_full:
            self._open_file()
        return len(self._files) - 1

    def _open_file(self) -> None:
        if self._files:
            self._files[-1].flush()
        path = self._temporary / f"data-{len(self._files):05d}"
        self._files.append(create_file(path, _BUFFER))
        self._offset = self._flushing = 0

    def _write(self, data: Chunk) -> None:
        file = self._files[-1]
        file.write(data if isinstance(data, bytes) else data.data)
        self._offset += len(data)
        if self._offset - self._flushing >= _STRETCH:
            # Up to here alone: the page at the end is written again by the next piece.
            end = self._offset - self._offset % _STRETCH
            start_flush(file.fileno(), self._flushing, end - self._flushing)
            self._flushing = end

    def _write_index(self, file: BinaryIO) -> None:
        table = TableBuilder(file)
        table.add(b"", encode_header(len(self._files)))
        for key, entry in sorted(self._entries.items(), key=lambda item: item[0]):
            table.add(key, encode_entry(entry))
        table.finish()


def _as_bytes(chunk: Chunk) -> Chunk:
    """Returns the bytes of a chunk; those of an array without a copy if it is contiguous."""
    if isinstance(chunk, bytes):
        return chunk
    import numpy as np

    return np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)


def _pieces(data: Chunk) -> Iterator[Chunk]:
    """Yields pieces that stay in the processor's cache from the checksum to the write."""
    return (data[begin : begin + _PIECE] for begin in range(0, len(data), _PIECE))


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
