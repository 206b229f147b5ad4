"""Writes a checkpoint like another one, with tensors of an array file in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.analysis.contents import Variable, read_contents
from tfckpt_trainer.bundle.analysis.keras_counterparts import find_keras_counterparts
from tfckpt_trainer.bundle.analysis.tensor_names import tensors_by_name
from tfckpt_trainer.bundle.dtypes import format_tensor, numpy_dtype
from tfckpt_trainer.bundle.exchange.convert import Conversion, open_array_file
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_trainer.bundle.object_graph import KEY, tensors_of
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.tools.tensors.casting import CastLoss, can_be_cast, cast_chunks
from tfckpt_trainer.tools.tensors.edit import EditSource
from tfckpt_trainer.words.counts import few_of

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Array


@dataclass(frozen=True)
class LikeConversion:
    """What was written.

    Attributes:
        taken: The tensors that come from the other checkpoint, because the file lacks them.
        losses: What tensors lost in a smaller type, by the types in the file and the checkpoint.
    """

    written: Conversion
    taken: tuple[Variable, ...]
    losses: Mapping[tuple[str, str], CastLoss]


def write_arrays_like(
    writer: BundleWriter,
    file: Path,
    like: EditSource,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> LikeConversion:
    """Writes a new checkpoint with the names, types and object graph of another one.

    Args:
        writer: The new checkpoint.
        file: A file that `open_array_file` opens, with tensors by path or name.
        like: The other checkpoint. Tensors that are not in the file are copied from it.
        on_progress: Called with the bytes done and in total, after each chunk.

    Raises:
        DamagedFileError: The array file is damaged.
        BundleError: A tensor of the other checkpoint is damaged.
        RefusedError: The file has a tensor that the checkpoint lacks, or one of another shape or
            kind.
        OSError: A file cannot be read or written.
    """
    with open_array_file(file) as reader:
        arrays = _arrays_by_tensor(_as_in_checkpoint(reader.arrays, like), like)
        entries = tensors_of(like.index).values()
        taken = {entry.name for entry in entries} - arrays.keys()
        variables = tuple(variable for variable in like.variables if variable.entry.name in taken)
        total = sum(array.size for array in arrays.values()) + sum(
            variable.size for variable in variables
        )
        done = 0
        losses: dict[tuple[str, str], CastLoss] = {}

        def show(size: int) -> None:
            nonlocal done
            done += size
            on_progress(done, total)

        def note(types: tuple[str, str], loss: CastLoss) -> None:
            if any(loss):
                losses[types] = losses.get(types, CastLoss()).plus(loss)

        for entry in entries:
            array = arrays.get(entry.name)
            if array is None:
                writer.copy(like.prefix, like.index, entry, on_chunk=show)
            else:
                lost = partial(note, (array.dtype, entry.dtype))
                chunks = cast_chunks(array.name, array.chunks(), entry.dtype, show, lost)
                writer.add(entry.name, entry.dtype, entry.shape, chunks)
        size = writer.size
        if KEY in like.index.entries:
            writer.copy(like.prefix, like.index, like.index.entries[KEY])
        return LikeConversion(Conversion(len(entries), size), variables, losses)


def _as_in_checkpoint(arrays: Sequence[Array], like: EditSource) -> list[Array]:
    """Returns the arrays, those of Keras with the paths of their variables."""
    by_name = tensors_by_name(like.variables)
    unknown = [array for array in arrays if array.name not in by_name]
    if not unknown:
        return list(arrays)
    paths = find_keras_counterparts(unknown, read_contents(like.prefix, like.index))
    return [replace(array, name=paths.get(array.name, array.name)) for array in arrays]


def _arrays_by_tensor(arrays: Sequence[Array], like: EditSource) -> dict[str, Array]:
    """Returns the arrays by the names of the tensors whose places they take."""
    by_name = tensors_by_name(like.variables)
    unknown = [array.name for array in arrays if array.name not in by_name]
    if unknown:
        raise RefusedError(
            f"{like.prefix.name} does not have these tensors of the file: {few_of(unknown)}."
        )
    problems: list[str] = []
    by_tensor: dict[str, Array] = {}
    for array in arrays:
        entry = by_name[array.name].entry
        if entry.name in by_tensor:
            problems.append(f"{array.name} and {by_tensor[entry.name].name} are the same tensor")
        elif not _fits(array, entry):
            sides = format_tensor(array.dtype, array.shape), format_tensor(entry.dtype, entry.shape)
            problems.append(f"{array.name} is {sides[0]}, expected {sides[1]}")
        by_tensor[entry.name] = array
    if problems:
        raise RefusedError(
            f"The file does not match {like.prefix.name}: {few_of(problems, separator='; ')}."
        )
    return by_tensor


def _fits(array: Array, entry: TensorEntry) -> bool:
    if array.shape != entry.shape or not is_numeric(entry):
        return False
    same = numpy_dtype(array.dtype) == numpy_dtype(entry.dtype)
    return same or can_be_cast(array.dtype, entry.dtype)
