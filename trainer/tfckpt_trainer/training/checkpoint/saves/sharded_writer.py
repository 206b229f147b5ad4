"""Writes the shared state as shards, by one worker or by all, while training goes on.

`tf.train.Checkpoint.write` reads the variables and writes them in one call, in one process. A
background save, or one that several workers write, has to separate the two: the values are
copied between two steps and written later. It also looks at every object anew in each save.
"""

from __future__ import annotations

import stat
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.bundle.index import Index, index_path, read_index, shard_path
from tfckpt_trainer.bundle.object_graph import KEY, Node, read_object_graph, tensors_of
from tfckpt_trainer.bundle.tensors import read_strings
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.catalog.directory.save_directories import move_files, private_directory
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.storage.files import IrregularFileError, facts_of, rename
from tfckpt_trainer.training.state.adapted import counters
from tfckpt_trainer.training.state.comparison import checksum
from tfckpt_trainer.training.state.remote_rows import RemoteRows, is_remote
from tfckpt_trainer.training.state.variables import (
    HOST,
    components,
    exempt,
    has_slots,
    has_value_outside_variables,
    is_read_by_all,
    is_variable,
    live_objects,
    raw_variable,
)


@dataclass(frozen=True)
class TensorSize:
    """Shape and element size of one tensor.

    Attributes:
        shape: Its dimensions.
        element_bytes: Bytes of one element; 0 if that is unknown, as for strings.
    """

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        size = self.element_bytes
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class TensorRows:
    """A tensor, or a range of its rows.

    Attributes:
        key: Key of the tensor.
        begin: First row.
        rows: Number of rows; None is the whole tensor.
    """

    key: str
    begin: int = 0
    rows: int | None = None


Shard = tuple[TensorRows, ...]


def assign_shards(
    sizes: Mapping[str, TensorSize], writers: int, largest: int | None
) -> tuple[tuple[Shard, ...], ...]:
    """Returns the shards of each writer. A pure function, so that all workers agree.

    Args:
        sizes: Sizes of all tensors, in the order in which they are written.
        writers: Number of workers that write; each gets about the same number of bytes.
        largest: Maximum bytes of tensors in a shard; None means no limit. A larger tensor is split
            along its first dimension. A row that is larger still is a shard of its own.
    """
    total = max(1, sum(tensor.size for tensor in sizes.values()))
    keys: list[list[str]] = [[] for _ in range(writers)]
    before = 0
    for key, tensor in sizes.items():
        # By its middle: a tensor goes to the writer whose range contains most of it.
        writer = (2 * before + tensor.size) * writers // (2 * total)
        keys[min(writer, writers - 1)].append(key)
        before += tensor.size
    return tuple(_shards_of(of_writer, sizes, largest) for of_writer in keys)


def _shards_of(
    keys: list[str], sizes: Mapping[str, TensorSize], largest: int | None
) -> tuple[Shard, ...]:
    if largest is None:
        return (tuple(TensorRows(key) for key in keys),) if keys else ()
    shards: list[Shard] = []
    current: list[TensorRows] = []
    filled = 0
    for key in keys:
        size = sizes[key].size
        if size > largest:
            shards += [(rows,) for rows in _split(key, sizes[key], largest)]
            continue
        if current and filled + size > largest:
            shards.append(tuple(current))
            current, filled = [], 0
        current.append(TensorRows(key))
        filled += size
    if current:
        shards.append(tuple(current))
    return tuple(shards)


def _split(key: str, tensor: TensorSize, largest: int) -> list[TensorRows]:
    count = tensor.shape[0] if tensor.shape else 1
    if count < 2:
        return [TensorRows(key)]
    rows = max(1, largest // (tensor.size // count))
    return [TensorRows(key, begin, min(rows, count - begin)) for begin in range(0, count, rows)]


@dataclass(frozen=True)
class Snapshot:
    """The values that one worker writes, at one step; later steps do not change them.

    Attributes:
        graph: The object graph, as TensorFlow stores it.
        values: Values in the memory of this machine or of parameter servers, by key.
    """

    graph: bytes
    values: Mapping[str, npt.NDArray[Any] | RemoteRows]


class CheckpointLayout:
    """Keys and object graph that TensorFlow gives a `tf.train.Checkpoint`.

    Attributes:
        variables: Variables of the checkpoint, by key.
    """

    def __init__(self, root: tf.train.Checkpoint, prefix: Path) -> None:
        """Reads the layout of `root`.

        Args:
            root: The checkpoint.
            prefix: Where TensorFlow wrote it, or a copy of its structure.
        """
        index = read_index(prefix)
        self._graph = read_strings(prefix, index.entries[KEY])[0]
        self.variables = _variables_by_key(root, read_object_graph(prefix, index))

    @classmethod
    def of(cls, root: tf.train.Checkpoint) -> CheckpointLayout:
        """Returns the layout of a checkpoint that is nowhere written.

        To learn it, a copy of the structure is saved, with a number in place of each variable. Its
        object graph is identical to that of the real checkpoint, byte for byte.

        Raises:
            UsageError: It tracks an object other than a variable that has a value.
        """
        _refuse_values_outside_variables(root)
        with tempfile.TemporaryDirectory() as scratch:
            prefix = Path(scratch) / "layout"
            _copy_structure(root).write(str(prefix))
            return cls(root, prefix)

    def snapshot(self, keys: Collection[str]) -> Snapshot:
        """Returns the present values of the variables with these keys.

        On a CPU nothing is copied: TensorFlow copies a variable when the next step changes it
        while its value is still in use. Values on a GPU are copied to main memory. Those on
        parameter servers stay there.

        If a variable is synchronised on read, all workers call this together.
        """
        values: dict[str, npt.NDArray[Any] | RemoteRows] = {}
        with tf.device(HOST):
            for key, variable in self.variables.items():
                if key in keys:
                    values[key] = _copy_of(variable)
                elif is_read_by_all(variable):
                    # A collective: the worker that writes the value waits for this one.
                    _value_of(variable)
        return Snapshot(self._graph, values)

    def describes(self, index: Index) -> bool:
        """Whether these are the variables of a checkpoint, with the values that it has."""
        tensors = tensors_of(index)
        if tensors.keys() != self.variables.keys() or not all(
            map(is_variable, self.variables.values())
        ):
            return False
        values = self.snapshot(tensors).values
        return all(
            isinstance(value := values[key], np.ndarray)
            and (entry.dtype, entry.shape, entry.crc32c)
            == (_dtype_of(self.variables[key]), value.shape, checksum(value))
            for key, entry in tensors.items()
        )


class ShardedWriter:
    """Writes this worker's shards of a checkpoint, and merges those of all workers.

    Attributes:
        shard_count: Number of shards of all workers.
    """

    def __init__(
        self, layout: CheckpointLayout, *, writers: int, writer: int, largest: int | None
    ) -> None:
        """Assigns the variables of a checkpoint to shards.

        Args:
            layout: What is saved.
            writers: Number of workers that write.
            writer: Index of this worker; one beyond the writers writes nothing.
            largest: Maximum bytes of tensors in one file; None means no limit.
        """
        self._layout = layout
        self._sizes = {key: _size_of(variable) for key, variable in self._layout.variables.items()}
        assigned = assign_shards(self._sizes, writers, largest)
        self.shard_count = sum(len(shards) for shards in assigned)
        first = sum(len(shards) for shards in assigned[:writer])
        self._shards = dict(enumerate(assigned[writer] if writer < writers else (), first))
        self._keys = {part.key for shard in self._shards.values() for part in shard}

    @property
    def writes_any(self) -> bool:
        """Whether this worker writes any shard."""
        return bool(self._shards)

    def snapshot(self) -> Snapshot:
        """Returns the present values of what this worker writes.

        If a variable is synchronised on read, all workers call this together.
        """
        return self._layout.snapshot(self._keys)

    def write(
        self, snapshot: Snapshot, prefix: Path, checksums: Mapping[int, int] = MappingProxyType({})
    ) -> list[Path]:
        """Writes this worker's shards of the checkpoint that will be at `prefix`.

        Args:
            snapshot: The values.
            prefix: Path without suffix.
            checksums: CRC32C of values that are known, by the identity of the variable.

        Returns:
            A prefix for each shard; each is a bundle until `merge`.
        """
        written = []
        for number, shard in self._shards.items():
            place = self._shard_prefix(prefix, number)
            self._write_shard(snapshot, shard, place, checksums, with_graph=number == 0)
            written.append(place)
        return written

    def merge(self, prefix: Path) -> dict[str, str]:
        """Merges the shards of all workers to one checkpoint; reads no tensor again.

        Returns:
            The new name of each data file, by its name before.
        """
        shards = [self._shard_prefix(prefix, number) for number in range(self.shard_count)]
        if self.shard_count > 1:
            with private_directory(prefix.parent) as private:
                # TensorFlow opens the indexes of the shards by name too.
                for shard in shards:
                    for path in (shard_path(shard, 0, 1), index_path(shard)):
                        rename(path, private / path.name)
                        _require_regular(private / path.name)
                tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=[str(private / shard.name) for shard in shards],
                    destination_prefix=str(private / prefix.name),
                    delete_old_dirs=False,
                )
                move_files(private, prefix.parent)
        return {
            shard_path(shard, 0, 1).name: shard_path(prefix, number, self.shard_count).name
            for number, shard in enumerate(shards)
        }

    def _shard_prefix(self, prefix: Path, number: int) -> Path:
        if self.shard_count == 1:
            return prefix
        return prefix.with_name(f"{prefix.name}.part-{number:05d}")

    def _write_shard(
        self,
        snapshot: Snapshot,
        shard: Shard,
        prefix: Path,
        checksums: Mapping[int, int],
        *,
        with_graph: bool,
    ) -> None:
        with BundleWriter(prefix) as writer:
            for part in shard:
                value = snapshot.values[part.key]
                shape = value.shape
                dtype = _dtype_of(self._layout.variables[part.key])
                if dtype == "string":
                    writer.add_strings(part.key, _strings_of(value), shape)
                elif part.rows is None:
                    known = checksums.get(id(raw_variable(self._layout.variables[part.key])))
                    chunks = _rows_of(value, 0, shape[0]) if shape else _rows_of(value, 0, 1)
                    writer.add(part.key, dtype, shape, chunks, checksum=known)
                else:
                    chunks = _rows_of(value, part.begin, part.begin + part.rows)
                    writer.add_rows(part.key, dtype, shape, (part.begin, part.rows), chunks)
            if with_graph:
                writer.add_strings(KEY, [snapshot.graph], shape=())
            writer.commit(durable=False)


def _require_regular(path: Path) -> None:
    """Makes sure that TensorFlow waits for nobody when it opens a file.

    Raises:
        IrregularFileError: It is a link, a pipe or a device.
    """
    facts = facts_of(path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        raise IrregularFileError(str(path))


def _variables_by_key(root: tf.train.Checkpoint, nodes: Sequence[Node]) -> dict[str, Any]:
    """Walks live objects and saved nodes in parallel; returns the variables, by key."""
    variables: dict[str, Any] = {}
    view = tf.train.TrackableView(root)
    waiting, seen = deque([(root, 0)]), {0}
    while waiting:
        thing, number = waiting.popleft()
        key = nodes[number].checkpoint_key
        if key is not None:
            variables[key] = thing
            continue
        children = view.children(thing)
        for name, child in nodes[number].children.items():
            if child not in seen and name in children:
                seen.add(child)
                waiting.append((children[name], child))
    return variables


def _dtype_of(variable: Any) -> str:
    return str(raw_variable(variable).dtype.base_dtype.name)


def _copy_of(variable: Any) -> npt.NDArray[Any] | RemoteRows:
    return RemoteRows(variable) if is_remote(variable) else np.asarray(_value_of(variable))


def _rows_of(
    value: npt.NDArray[Any] | RemoteRows, begin: int, end: int
) -> Iterable[npt.NDArray[Any]]:
    """Returns some rows of a value, in pieces; a scalar has one row."""
    if isinstance(value, RemoteRows):
        return value.blocks(begin, end)
    return [value[begin:end] if value.ndim else value]


def _strings_of(value: npt.NDArray[Any] | RemoteRows) -> list[bytes]:
    whole = value.whole() if isinstance(value, RemoteRows) else value
    return [bytes(string) for string in whole.reshape(-1)]


def _size_of(variable: object) -> TensorSize:
    raw = raw_variable(variable)
    # A variable whose shape may change is not split: each save writes what it has then.
    shape = tuple(raw.shape.as_list()) if raw.shape.is_fully_defined() else ()
    return TensorSize(shape, int(raw.dtype.size or 0))


def _value_of(variable: Any) -> tf.Tensor:
    if is_read_by_all(variable):
        return raw_variable(variable).read_value()
    return components(variable)[0].read_value()


def _copy_structure(root: Any) -> tf.train.Checkpoint:
    """Returns the same tree of names, with an empty node for each object."""
    view = tf.train.TrackableView(root)
    top = tf.train.Checkpoint()
    copies: dict[int, Any] = {id(root): top}
    waiting = deque([root])
    while waiting:
        thing = waiting.popleft()
        for name, child in view.children(thing).items():
            if id(child) not in copies:
                copies[id(child)] = _empty_copy(child)
                if not is_variable(child):
                    waiting.append(child)
            copies[id(thing)]._track_trackable(copies[id(child)], name)
    return top


def _empty_copy(thing: Any) -> Any:
    if is_variable(thing):
        name = raw_variable(thing).name.split(":")[0]
        return exempt(tf.Variable(0.0, trainable=False, name=name))
    return tf.train.Checkpoint()


def _refuse_values_outside_variables(root: Any) -> None:
    """Refuses objects whose values would be left out, such as tables and old optimizers.

    A layer that was adapted empties the tables in which it counted tokens.
    """
    objects = list(live_objects(root))
    unused = counters(thing for _, thing in objects)
    for path, thing in objects:
        if is_variable(thing) or (id(thing) in unused and not int(thing.size())):
            continue
        if has_value_outside_variables(thing) or has_slots(thing):
            raise UsageError(
                f"{path} is a {type(thing).__name__}, which keeps its value outside variables. It "
                "can only be saved in the foreground, by one worker: remove `background`, "
                "`spread` and `largest_shard` from SaveOptions."
            )
