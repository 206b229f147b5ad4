"""Extracts tensors of a checkpoint into a file, and converts such a file into a checkpoint."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Variable, read_contents
from tfckpt_trainer.bundle.analysis.keras_counterparts import find_keras_counterparts
from tfckpt_trainer.bundle.analysis.tensor_names import (
    find_tensors,
    match_tensors,
    unknown_tensor,
)
from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.convert import open_array_file, write_arrays
from tfckpt_trainer.bundle.exchange.extract import (
    ArrayFormat,
    Extraction,
    extract_tensors,
    write_arrays_as,
)
from tfckpt_trainer.bundle.exchange.write_keras import write_keras_like
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import end_of_name, format_of
from tfckpt_trainer.catalog.directory.resumed_state import step_counter
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation
from tfckpt_trainer.rundir.storage.files import delete_if_empty, make_directory
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.rundir.storage.own_links import resolve_named
from tfckpt_trainer.rundir.storage.parent_directory import without_links
from tfckpt_trainer.tools.tensors.convert_like import LikeConversion, write_arrays_like
from tfckpt_trainer.tools.tensors.derived import add_derived_checkpoint, require_free_name
from tfckpt_trainer.tools.tensors.edit import EditSource
from tfckpt_tui.services.checkpoints.inspect import Inspection, errors_by_path
from tfckpt_tui.services.checkpoints.tensor_files import TensorSource
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.tensors.new_checkpoint import explain_write_errors, log_derived, source_facts


@dataclass(frozen=True)
class TensorChoice:
    """The tensors to extract.

    Attributes:
        variables: Those that can be extracted.
        left_out: Those whose elements are not numbers.
    """

    variables: tuple[Variable, ...]
    left_out: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Bytes of the tensors to extract."""
        return sum(variable.size for variable in self.variables)


def choose_tensors(
    run: RunDirectory, inspection: Inspection, wanted: Sequence[str]
) -> TensorChoice:
    """Returns the tensors with these names, paths or patterns such as `model/*`; or all.

    Raises:
        UsageError: There is none, one that was named is not numeric, or the index of the
            checkpoint cannot be read.
    """
    _index_of(inspection)
    if not wanted:
        numeric = tuple(v for v in inspection.variables if is_numeric(v.entry))
        return TensorChoice(
            numeric, tuple(v for v in inspection.variables if not is_numeric(v.entry))
        )
    chosen: dict[str, Variable] = {}
    left_out: dict[str, Variable] = {}
    for text in wanted:
        exact = find_tensors(inspection.variables, text)
        matched = exact or match_tensors(inspection.variables, text)
        if not matched:
            raise unknown_tensor(run.root / inspection.checkpoint.name, inspection.variables, text)
        for variable in matched:
            if is_numeric(variable.entry):
                chosen[variable.entry.name] = variable
            elif exact:
                raise UsageError(
                    f"{variable.path} is {variable.entry.dtype}; only numeric tensors can be "
                    "extracted."
                )
            else:
                left_out[variable.entry.name] = variable
    return TensorChoice(tuple(chosen.values()), tuple(left_out.values()))


def extract(
    run: RunDirectory,
    inspection: Inspection,
    choice: TensorChoice,
    path: Path,
    kind: ArrayFormat,
    on_read: Callable[[int], None] = lambda size: None,
) -> Extraction:
    """Writes the chosen tensors; see `extract_tensors`.

    Raises:
        UsageError: No tensor was chosen, or the index of the checkpoint cannot be read.
        TfckptError: A tensor is damaged, or the file cannot be written.
    """
    name = inspection.checkpoint.name
    index = _index_of(inspection)
    if not choice.variables:
        raise UsageError(f"{name} has no numeric tensors.")
    _check_output(path)
    tensors = {variable.path: variable.entry for variable in choice.variables}
    with (
        explain_write_errors(
            path.parent,
            choice.size,
            if_full="Choose another place with --output, or name fewer tensors.",
            if_read_only="Choose another place with --output.",
        ),
        errors_by_path(choice.variables),
    ):
        return extract_tensors(run.root / name, index, tensors, path, kind, on_read)


def _index_of(inspection: Inspection) -> Index:
    if inspection.index is None:
        problem = inspection.problem.rstrip(".")
        raise UsageError(f"{inspection.checkpoint.name} cannot be extracted: {problem}.")
    return inspection.index


def extract_file(
    source: TensorSource,
    arrays: Sequence[Array],
    path: Path,
    kind: ArrayFormat,
    on_read: Callable[[int], None] = lambda size: None,
) -> Extraction:
    """Writes tensors of a file into a new file of another format; see `write_arrays_as`.

    Raises:
        UsageError: The file has no tensors.
        TfckptError: A tensor is damaged, or the file cannot be written.
    """
    if not arrays:
        raise UsageError(f"{source.name} has no numeric tensors.")
    _check_output(path)
    with explain_write_errors(
        path.parent,
        sum(array.size for array in arrays),
        if_full="Choose another place with --output, or name fewer tensors.",
        if_read_only="Choose another place with --output.",
    ):
        return write_arrays_as(
            [array.counted(on_read) for array in arrays], path, kind, source.name
        )


@dataclass(frozen=True)
class KerasExtraction:
    """What was written into a Keras file.

    Attributes:
        names: The names in the file, by the names of the tensors.
        bytes: Size of these tensors.
        taken: Tensors of the file that have the values of the other file.
        left_out: Tensors that the file has no place for.
    """

    names: dict[str, str]
    bytes: int
    taken: tuple[str, ...]
    left_out: tuple[str, ...]


def extract_like(source: TensorSource, template: Path, path: Path) -> KerasExtraction:
    """Writes the tensors of a checkpoint or a file into a Keras file like another one.

    Raises:
        UsageError: The other file is none of Keras, or h5py is missing.
        RefusedError: No tensor has a place in it, or one has another shape or type.
        TfckptError: A file is damaged, or cannot be written.
    """
    _check_output(path)
    form = format_of(template.name)
    if form is None or form.name == "safetensors" or not template.is_file():
        raise UsageError(f"{template} is no file of Keras; give --like one such as w.weights.h5.")
    if end_of_name(path.name) != end_of_name(template.name):
        raise UsageError(f"{path.name} has to end in {end_of_name(template.name)}, as --like does.")
    with open_array_file(template) as reader:
        targets = reader.arrays
    own = {array.name: array for array in source.arrays}
    places = {array.name: array.name for array in targets if array.name in own}
    if source.contents is not None:
        places = find_keras_counterparts(targets, source.contents)
    arrays = {name: own[place] for name, place in places.items()}
    if not arrays:
        raise RefusedError(f"{template.name} and {source.name} have no tensor in common.")
    with explain_write_errors(
        path.parent,
        template.stat().st_size,
        if_full="Choose another place with --output.",
        if_read_only="Choose another place with --output.",
    ):
        write_keras_like(path, template, arrays)
    return KerasExtraction(
        {array.name: name for name, array in arrays.items()},
        sum(array.size for array in arrays.values()),
        tuple(array.name for array in targets if array.name not in arrays),
        tuple(name for name in own if name not in places.values()),
    )


@dataclass(frozen=True)
class LikeCheckpoint:
    """A checkpoint from which a conversion takes names, types, object graph and missing tensors."""

    run: RunDirectory
    checkpoint: Checkpoint
    source: EditSource


def convert(
    directory: Path,
    name: str,
    source: Path,
    like: LikeCheckpoint | None = None,
    *,
    by_name: bool = False,
    shard_size: int | None = None,
    through: FrontEnd,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[CheckpointRecord, LikeConversion, str]:
    """Writes checkpoint `name` from an array file; creates its directory if it is missing.

    With `like`, the checkpoint has the names, types and object graph of that one.

    Returns:
        The record of the new checkpoint, what was written, and a sentence if the event log could
        not be.

    Raises:
        UsageError: The name is no file name, or a tensor cannot be stored.
        RefusedError: The name is taken, or the file does not match the other checkpoint.
        TfckptError: The file or the other checkpoint is damaged.
        OSError: A file cannot be read or written.
    """
    conversion: LikeConversion | None = None

    def write(writer: BundleWriter, touch: Callable[[], None]) -> None:
        nonlocal conversion

        def show(done: int, total: int) -> None:
            touch()
            on_progress(done, total)

        if like is not None:
            conversion = write_arrays_like(writer, source, like.source, on_progress=show)
        else:
            written = write_arrays(writer, source, by_name=by_name, on_progress=show)
            conversion = LikeConversion(written, (), {})

    variables = like.source.variables if like is not None else ()
    with _new_checkpoint(directory, name, source) as run, errors_by_path(variables):
        record = _record_of(run, name, source, like)
        stored = add_derived_checkpoint(run, record, write, shard_size=shard_size)
        assert conversion is not None, "it was written"
    message = f"Converted {source.name} into {name}."
    return stored, conversion, log_derived(run, stored, message, through)


def _record_of(
    run: RunDirectory, name: str, source: Path, like: LikeCheckpoint | None
) -> CheckpointRecord:
    """Returns the record of a converted checkpoint: no training led to it."""
    said = parse_checkpoint_name(name)
    other = like.checkpoint if like is not None else None
    step = said.step if said is not None else other.step if other is not None else None
    is_here = like is not None and like.run.root == run.root
    return CheckpointRecord(
        name=name,
        step=step or 0,
        branch=said.branch if said is not None else 0,
        sequence=0,
        saved_at=time.time(),
        trigger="convert",
        derived=Derivation(
            operation="convert",
            sources=[source_facts(run, like.checkpoint)] if like is not None and is_here else [],
            changes=[f"Tensors of {source.name}."],
        ),
    )


def step_words(prefix: Path) -> str:
    """Returns a sentence if a checkpoint counts other steps than its name says; else empty.

    Raises:
        BundleError: Its index is damaged.
        OSError: It cannot be read.
    """
    said = parse_checkpoint_name(prefix.name)
    counter = step_counter(prefix, read_contents(prefix, read_index(prefix)).variables)
    if said is None or counter is None or counter[1] == said.step:
        return ""
    path, value = counter
    return (
        f"Its name says step {said.step:,}, but {path} is {value:,}: training goes on from step "
        f"{value:,}."
    )


def _check_output(path: Path) -> None:
    """Raises a `UsageError` if nothing can be written at `path`."""
    refuse_url(path, "an output file")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path.parent} is not a directory; make it with "
            f"`mkdir -p {shlex.quote(str(path.parent))}`, or choose another place with --output."
        )


@contextmanager
def _new_checkpoint(directory: Path, name: str, source: Path) -> Iterator[RunDirectory]:
    """Gives the directory of a new checkpoint; one that was made for it goes if that fails."""
    root = resolve_named(expand_user(directory))
    parent = next(place for place in (root, *root.parents) if os.path.lexists(place))
    if not parent.is_dir():
        raise UsageError(f"{parent} is not a directory; name the directory of the new checkpoint.")
    require_free_name(RunDirectory(root), name)
    if not source.is_file():
        raise UsageError(f"{source} is not a file; name an npz, a safetensors or a Keras file.")
    made = [place for place in (root, *root.parents) if not place.exists()]
    try:
        with (
            explain_write_errors(
                parent,
                source.stat().st_size,
                if_full="Name a directory on another disk.",
                if_read_only="Name another directory.",
            ),
            without_links(root),
        ):
            make_directory(root)
            yield RunDirectory(root)
    except BaseException:
        for place in made:
            if not delete_if_empty(place):
                break
        raise
