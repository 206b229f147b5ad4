"""One checkpoint in Python: its tensors as arrays, by the paths that `inspect` shows."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfckpt_trainer.bundle.analysis.contents import Variable, read_contents
from tfckpt_trainer.bundle.analysis.tensor_names import tensors_by_name, unknown_tensor
from tfckpt_trainer.bundle.dtypes import format_shape, numpy_dtype
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import TensorEntry, index_path, read_index, shard_path
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.tensors import is_numeric, read_strings, stored_entries
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.errors import BundleError, DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.identity import identity_of
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_tui.formats import units
from tfckpt_tui.reading.notebook import html_table
from tfckpt_tui.services.checkpoints.inspect import errors_by_path

_SHOWN = 100
"""Tensors that a notebook shows."""


@dataclass(frozen=True)
class TensorInfo:
    """What the index says about one tensor.

    Attributes:
        path: Its name, as `inspect` shows it.
        name: Its name in TensorFlow.
        dtype: Its type, as TensorFlow names it: `float32`, `bfloat16`, `string`.
        shape: Its dimensions.
        bytes: Its size.
        role: What it is for: `weight`, `slot variable`, `optimizer`, `step`, `input position`,
            `random state`, `other`; `unknown` if the object graph cannot be read.
    """

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    role: str


class UnknownTensorError(UsageError, KeyError):
    """A checkpoint has no tensor of this name."""

    def __str__(self) -> str:
        # A KeyError would show the message in quotes.
        return str(self.args[0])


def open_checkpoint(path: str | os.PathLike[str]) -> CheckpointReader:
    """Opens a checkpoint of TensorFlow. Reads its index and its object graph, and no tensor.

    Args:
        path: As `tf.train.load_checkpoint` takes it: `RUN/ckpt-500`. `.index` may follow.

    Raises:
        UsageError: There is no checkpoint at this path.
        BundleError: Its index is damaged.
        OSError: Its index cannot be read.
    """
    refuse_url(os.fspath(path), "a checkpoint")
    given = Path(os.path.abspath(expand_user(path)))
    if not given.name or (given.is_dir() and not index_path(given).exists()):
        raise UsageError(
            f"{given} is a directory. Open one of its checkpoints, such as {given / 'ckpt-500'}, "
            f"or the newest: open_run({str(given)!r}).open()."
        )
    return CheckpointReader(given.with_name(given.name.removesuffix(".index")))


class CheckpointReader:
    """A checkpoint. `reader[path]` is a tensor as an array.

    Tensors have the paths that `inspect` shows. TensorFlow's names are accepted too. Iteration is
    over the paths.

    Attributes:
        path: The checkpoint, without the suffix of its files.
        tensors: What the index says about each tensor, by path.
        objects: The object graph, whose node 0 is the root; None if there is none, as in
            TensorFlow 1, or if it cannot be read.
        problem: Why the object graph cannot be read; empty if it can, or if there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = identity_of(index_path(path))
        try:
            self._index = read_index(path)
        except FileNotFoundError:
            message = f"There is no checkpoint {path}: {index_path(path).name} does not exist."
            raise UsageError(message) from None
        contents = read_contents(path, self._index)
        self.objects, self.problem = contents.nodes, contents.problem
        self.tensors = {variable.path: _info(variable) for variable in contents.variables}
        self._variables = contents.variables
        self._by_name = tensors_by_name(contents.variables)
        self._maps: dict[int, mmap.mmap] = {}
        # A server that fails would end the process that has a file of it mapped.
        self._may_map = not is_network_file_system(path.parent)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns a tensor as a read-only array, memory-mapped if possible.

        A mapped tensor is not checked against its checksum. These are read and checked at once:
        tensors that were saved in parts, strings, and all tensors on network disks.

        Args:
            name: Path of the tensor.

        Raises:
            KeyError: There is no such tensor; also a `UsageError`.
            UsageError: No array can hold it.
            BundleError: It is damaged.
            RefusedError: The checkpoint was saved again since it was opened.
            OSError: A data file is missing or cannot be read.
        """
        array = self._mapped(self._find(name).entry)
        if array is None:
            array = self.read(name)
            array.flags.writeable = False
        return array

    def read(self, name: str) -> NDArray[Any]:
        """Returns a tensor as an array in memory, checked against its checksums.

        Args:
            name: Path of the tensor.

        Raises:
            KeyError: There is no such tensor; also a `UsageError`.
            UsageError: No array can hold it.
            BundleError: It is damaged.
            OSError: A data file is missing or cannot be read.
        """
        variable = self._find(name)
        with errors_by_path([variable]):
            return self._read(variable)

    def verify(self, *, finite: bool = False) -> Verified:
        """Reads every byte and compares it with the checksums, as the command `verify`.

        Args:
            finite: Whether to look for NaN and infinite values too.

        Raises:
            RefusedError: The checkpoint changed each time it was read: it is being written.
        """
        run, name = RunDirectory(self.path.parent), self.path.name
        verified = verify_checkpoint(run, name, finite=finite)
        assert verified is not None, "only a caller with `cancelled` gets None"
        return verified

    def keys(self) -> list[str]:
        """Returns the paths of all tensors: model first, then optimizer, then the rest."""
        return list(self.tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"<CheckpointReader {str(self.path)!r}: {units.count(len(self), 'tensor')}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                tensor.path,
                tensor.dtype,
                format_shape(tensor.shape),
                units.size(tensor.bytes),
                tensor.role,
            )
            for tensor in self.tensors.values()
        ]
        size = units.size(sum(tensor.bytes for tensor in self.tensors.values()))
        caption = f"{self.path.name}: {units.count(len(rows), 'tensor')}, {size}"
        return html_table(caption, ("path", "dtype", "shape", "size", "role"), rows, _SHOWN)

    def _find(self, name: str) -> Variable:
        if name not in self._by_name:
            error = unknown_tensor(self.path, self._variables, name)
            raise UnknownTensorError(error.found, error.advice)
        return self._by_name[name]

    def _mapped(self, entry: TensorEntry) -> NDArray[Any] | None:
        """Returns a tensor as a view of its file; None if it has to be read."""
        if not (self._may_map and is_numeric(entry) and entry.size) or entry.slices:
            return None
        dtype = numpy_dtype(entry.dtype)
        content = self._map_of(entry.shard)
        if content is None or entry.offset + entry.size > len(content):
            return None
        if entry.size != entry.element_count * dtype.itemsize:
            return None
        flat = np.frombuffer(content, dtype, entry.element_count, entry.offset)
        return flat.reshape(entry.shape)

    def _map_of(self, shard: int) -> mmap.mmap | None:
        if shard not in self._maps:
            try:
                with open_inside(shard_path(self.path, shard, self._index.shard_count)) as file:
                    self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError, DamagedFileError):
                # Reading the tensor reports the reason.
                return None
            if identity_of(index_path(self.path)) != self._identity:
                del self._maps[shard]
                raise RefusedError(
                    f"{self.path} was saved again or removed since it was opened. Open it again."
                )
        return self._maps[shard]

    def _read(self, variable: Variable) -> NDArray[Any]:
        entry = variable.entry
        if entry.dtype == "string":
            texts = read_strings(self.path, entry)
            return np.array(texts, dtype=object).reshape(entry.shape)
        if not is_numeric(entry):
            raise UsageError(f"{variable.path} is a {entry.dtype}, which no array can hold.")
        dtype, size = numpy_dtype(entry.dtype), 0
        # An index may claim any size: nothing is allocated before the files have it.
        for part in stored_entries(self.path, self._index, entry):
            with Shard(shard_path(self.path, part.shard, part.shard_count)) as shard:
                shard.check(part.offset, part.size)
            size += part.size
        expected = entry.element_count * dtype.itemsize
        if size != expected:
            problem = f"{entry.name} has {size} bytes; expected {expected}"
            raise BundleError(index_path(self.path).name, None, problem)
        array, place = np.empty(entry.element_count, dtype), 0
        for chunk in row_major_chunks(self.path, self._index, entry):
            array[place : place + len(chunk)] = chunk
            place += len(chunk)
        return array.reshape(entry.shape)


def _info(variable: Variable) -> TensorInfo:
    entry = variable.entry
    return TensorInfo(
        path=variable.path,
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        bytes=variable.size,
        role=variable.role.value,
    )
