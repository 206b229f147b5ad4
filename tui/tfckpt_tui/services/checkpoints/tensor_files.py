"""Files of other formats, such as those of Keras, read as checkpoints are: tensors by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from tfckpt_trainer.bundle.analysis.compare import ArrayComparison, compare_arrays
from tfckpt_trainer.bundle.analysis.contents import Contents, read_contents
from tfckpt_trainer.bundle.analysis.keras_counterparts import find_keras_counterparts
from tfckpt_trainer.bundle.analysis.statistics import Statistics, chunk_statistics
from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.convert import open_array_file
from tfckpt_trainer.bundle.exchange.verify_file import FileResult
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import index_lies_at, read_index
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, find_other_file, format_of
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats import units
from tfckpt_tui.formats.variable_tree import Tensor, tensors_of_file
from tfckpt_tui.services.checkpoints.look_up import look_up


@dataclass(frozen=True)
class TensorSource:
    """An open file, or a checkpoint, with its numeric tensors.

    Attributes:
        contents: The objects of a checkpoint; None for a file.
    """

    name: str
    arrays: tuple[Array, ...]
    contents: Contents | None = None


def find_file(run: RunDirectory, name: str | None) -> OtherFile | None:
    """Returns the file of another format with this name; None if it means a checkpoint."""
    if name is None or format_of(name) is None or index_lies_at(run.root / name):
        return None
    return find_other_file(run.root, name)


@contextmanager
def opened_file(run: RunDirectory, file: OtherFile) -> Iterator[TensorSource]:
    """Opens a file of another format.

    Raises:
        DamagedFileError: It is damaged.
        UsageError: A tensor has a type that is not supported, or h5py is missing.
        OSError: It cannot be read.
    """
    with open_array_file(run.root / file.name) as reader:
        yield TensorSource(file.name, reader.arrays)


@contextmanager
def opened(run: RunDirectory, text: str) -> Iterator[TensorSource]:
    """Opens a file of another format, or a checkpoint, by its name or step; see `opened_file`."""
    file = find_file(run, text)
    if file is not None:
        with opened_file(run, file) as source:
            yield source
        return
    name = look_up(run, text).name
    prefix = run.root / name
    contents = read_contents(prefix, read_index(prefix))
    arrays = tuple(
        Array(variable.path, variable.entry.dtype, variable.entry.shape, chunks)
        for variable in contents.variables
        if is_numeric(variable.entry)
        for chunks in [partial(row_major_chunks, prefix, contents.index, variable.entry)]
    )
    yield TensorSource(name, arrays, contents)


def compare_sources(before: TensorSource, after: TensorSource) -> Iterator[ArrayComparison]:
    """Reads and compares two files, or a file and a checkpoint, by the paths in the checkpoint."""
    if before.contents is not None:
        sides = _by_name(before, {}), _by_name(after, _counterparts(after, before))
    else:
        sides = _by_name(before, _counterparts(before, after)), _by_name(after, {})
    return compare_arrays(*sides)


def _counterparts(file: TensorSource, checkpoint: TensorSource) -> Mapping[str, str]:
    if checkpoint.contents is None:
        return {}
    return find_keras_counterparts(file.arrays, checkpoint.contents)


def _by_name(source: TensorSource, names: Mapping[str, str]) -> dict[str, Array]:
    return {names.get(array.name, array.name): array for array in source.arrays}


def tensors_in(run: RunDirectory, file: OtherFile) -> list[Tensor]:
    """Reads names, types and shapes of the tensors of a file; see `opened_file`."""
    with opened_file(run, file) as source:
        return tensors_of_file(source.arrays)


def file_statistics(run: RunDirectory, file: OtherFile, name: str) -> Statistics:
    """Reads a tensor of a file and returns its statistics; see `opened_file`."""
    with opened_file(run, file) as source:
        (array,) = choose_arrays(source, [name])
        return chunk_statistics(array.dtype, array.chunks)


def not_finite_words(result: FileResult) -> str:
    """Returns how many tensors have values that are not finite."""
    count = units.count(len(result.not_finite), "tensor")
    return f"{count} with NaN or infinite values, the first is {result.not_finite[0]}"


def choose_arrays(source: TensorSource, wanted: Sequence[str]) -> list[Array]:
    """Returns the tensors with these names or patterns such as `layers/*`; by default all.

    Raises:
        UsageError: There is none.
    """
    if not wanted:
        return list(source.arrays)
    chosen: dict[str, Array] = {}
    for text in wanted:
        matched = [array for array in source.arrays if array.name == text] or [
            array for array in source.arrays if fnmatchcase(array.name, text)
        ]
        if not matched:
            raise UsageError(f"{source.name} has no tensor {text!r}.")
        chosen |= {array.name: array for array in matched}
    return list(chosen.values())
