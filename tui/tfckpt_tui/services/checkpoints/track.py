"""Follows one tensor over the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import astuple, replace

from tfckpt_trainer.bundle.analysis.contents import Contents, Variable, read_contents
from tfckpt_trainer.bundle.analysis.counterparts import (
    find_counterparts,
    has_same_graph,
    renamed_index,
)
from tfckpt_trainer.bundle.analysis.statistics import (
    Statistics,
    difference_statistics,
    statistics,
)
from tfckpt_trainer.bundle.analysis.tensor_names import find_tensors, nearest_path
from tfckpt_trainer.bundle.index import Index, TensorEntry, read_index
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState, is_trained
from tfckpt_trainer.catalog.scan.lineage import lineage_of
from tfckpt_trainer.errors import BundleError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.advice import only_command
from tfckpt_tui.formats.text import csv_line
from tfckpt_tui.formats.units import finite
from tfckpt_tui.reports.tensors import TrackedCheckpoint
from tfckpt_tui.services.checkpoints.inspect import errors_by_path

_NO_CHECKPOINTS = {CheckpointState.WRITING, CheckpointState.ORPHANED, CheckpointState.TRASHED}
"""States of files that are no checkpoint yet, or no longer."""


@dataclass(frozen=True)
class TrackedPoint:
    """A tensor in one checkpoint.

    Attributes:
        statistics: None if it cannot be read.
        before: The nearest ancestor that has the tensor with the same shape; None if there is none.
        update: Norm of the difference to that ancestor.
        norm_before: Norm of the tensor there.
        problem: Why it cannot be read; empty if it can.
    """

    checkpoint: Checkpoint
    statistics: Statistics | None = None
    before: Checkpoint | None = None
    update: float | None = None
    norm_before: float | None = None
    problem: str = ""

    @property
    def update_ratio(self) -> float | None:
        """The update divided by the norm before it; None if that is zero or unknown."""
        if self.update is None or not self.norm_before:
            return None
        return finite(self.update / self.norm_before)

    @property
    def not_finite(self) -> int:
        """The number of elements that are NaN or infinite."""
        figures = self.statistics
        return figures.nan + figures.infinite if figures is not None else 0


@dataclass(frozen=True)
class _Seen:
    """What was read of a checkpoint that later ones may be compared with."""

    checkpoint: Checkpoint
    index: Index
    entry: TensorEntry
    norm: float


def find_tensor(
    run: RunDirectory, checkpoints: Sequence[Checkpoint], text: str
) -> tuple[Checkpoint, Variable]:
    """Returns the tensor that a text means, and the newest checkpoint that has it.

    Args:
        run: The run directory.
        checkpoints: All checkpoints, newest first.
        text: A name or path, as `inspect` shows it.

    Raises:
        UsageError: No checkpoint has it, or it is not numeric.
    """
    newest: tuple[Path, tuple[Variable, ...]] | None = None
    for checkpoint in checkpoints:
        if not checkpoint.state.restorable:
            continue
        prefix = run.root / checkpoint.name
        try:
            variables = read_contents(prefix, read_index(prefix)).variables
        except (BundleError, OSError):
            continue
        newest = newest or (prefix, variables)
        tensors = find_tensors(variables, text)
        if tensors and not is_numeric(tensors[0].entry):
            raise UsageError(
                f"{text} is {tensors[0].entry.dtype}; only numeric tensors are tracked."
            )
        if tensors:
            return checkpoint, tensors[0]
    if newest is None:
        raise UsageError(f"No checkpoint of {run.root} can be read, so {text!r} cannot be found.")
    prefix, variables = newest
    near = nearest_path(variables, text)
    raise UsageError(
        f"No checkpoint has a tensor {text!r}.{f' Did you mean {near}?' if near else ''}",
        only_command("List those of one with ", "inspect", run.root, prefix.name),
    )


def tracked_checkpoints(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Returns the checkpoints that `track` reads, oldest first.

    Args:
        checkpoints: All checkpoints, newest first.
    """
    return [c for c in reversed(checkpoints) if is_trained(c) and c.state not in _NO_CHECKPOINTS]


def track(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    source: Checkpoint,
    tensor: Variable,
    *,
    histogram: bool = False,
) -> Iterator[TrackedPoint]:
    """Reads a tensor from each checkpoint, oldest first.

    Checkpoints made from others, such as averages, are left out: training did not pass them. So
    are those that are being written, and symbolic links.

    Args:
        run: The run directory.
        checkpoints: All checkpoints, newest first.
        source: The checkpoint that the tensor is from.
        tensor: The tensor. Others may have the same variable under another name.
        histogram: Whether the statistics have a histogram, which takes a second read.

    Raises:
        BundleError: The index of `source` is damaged.
        OSError: It cannot be read.
    """
    prefix = run.root / source.name
    wanted = read_contents(prefix, read_index(prefix))
    seen: dict[str, _Seen] = {}
    for checkpoint in tracked_checkpoints(checkpoints):
        if not checkpoint.state.restorable:
            reason = checkpoint.problem or f"It is {checkpoint.state.value}."
            yield TrackedPoint(checkpoint, problem=reason)
            continue
        try:
            index = _read_index_of(run.root / checkpoint.name, wanted, tensor)
            entry = index.entries.get(tensor.entry.name)
            if entry is None or not is_numeric(entry):
                yield TrackedPoint(checkpoint, problem=f"It has no numeric tensor {tensor.path}.")
                continue
            with errors_by_path([tensor]):
                prefix = run.root / checkpoint.name
                figures = statistics(prefix, index, entry, histogram=histogram)
                before = _before(checkpoints, checkpoint, seen, entry)
                update = None if before is None else _update(run, before, checkpoint, index, entry)
        except (BundleError, OSError) as error:
            yield TrackedPoint(checkpoint, problem=describe_error(error))
            continue
        seen[checkpoint.name] = _Seen(checkpoint, index, entry, figures.norm)
        if before is None:
            yield TrackedPoint(checkpoint, figures)
        else:
            yield TrackedPoint(checkpoint, figures, before.checkpoint, update, before.norm)


def _read_index_of(prefix: Path, wanted: Contents, tensor: Variable) -> Index:
    """Returns the index of one tensor under its name in `wanted`; empty if it is missing.

    The indexes of thousands of checkpoints are large.
    """
    index, new = read_index(prefix), tensor.entry.name
    old: str | None = new
    if not has_same_graph(index, wanted.index):
        names = find_counterparts(read_contents(prefix, index), wanted)
        old = next((original for original, name in names.items() if name == new), None)
    if old is None or old not in index.entries:
        return replace(index, entries={}, parts={})
    parts = {key: part for key, part in index.parts.items() if key[0] == old}
    own_index = replace(index, entries={old: index.entries[old]}, parts=parts)
    return renamed_index(own_index, {old: new})


def _update(
    run: RunDirectory, before: _Seen, checkpoint: Checkpoint, index: Index, entry: TensorEntry
) -> float:
    prefixes = run.root / before.checkpoint.name, run.root / checkpoint.name
    indexes = before.index, index
    return difference_statistics(prefixes, indexes, entry.name, histogram=False).norm


def _before(
    checkpoints: Sequence[Checkpoint],
    checkpoint: Checkpoint,
    seen: Mapping[str, _Seen],
    entry: TensorEntry,
) -> _Seen | None:
    """Returns the nearest ancestor that has the tensor with the same shape."""
    parent = seen.get(checkpoint.parent) if checkpoint.parent is not None else None
    if parent is not None and parent.entry.shape == entry.shape:
        return parent
    names = lineage_of(checkpoints, checkpoint.name).names[1:]
    ancestors = (seen[name] for name in names if name in seen)
    return next((ancestor for ancestor in ancestors if ancestor.entry.shape == entry.shape), None)


def point_report(point: TrackedPoint) -> TrackedCheckpoint:
    """Returns one entry of what `track --json` prints."""
    checkpoint, figures = point.checkpoint, point.statistics
    return TrackedCheckpoint(
        name=checkpoint.name,
        step=checkpoint.step,
        branch=checkpoint.branch,
        compared_with=point.before.name if point.before is not None else None,
        mean=None if figures is None else figures.mean,
        deviation=None if figures is None else finite(figures.deviation),
        norm=None if figures is None else finite(figures.norm),
        minimum=None if figures is None else figures.minimum,
        maximum=None if figures is None else figures.maximum,
        not_finite=None if figures is None else point.not_finite,
        update=finite(point.update),
        update_ratio=point.update_ratio,
        problem=point.problem,
    )


def csv_lines(points: Sequence[TrackedPoint]) -> Iterator[str]:
    """Yields the lines that `track --csv` prints: the names of the fields, then the points."""
    if points:
        yield csv_line(TrackedCheckpoint.__struct_fields__)
    for point in points:
        row = astuple(point_report(point))
        yield csv_line(["" if value is None else str(value) for value in row])
