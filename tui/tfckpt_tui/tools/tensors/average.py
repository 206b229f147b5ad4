"""Averages checkpoints of a run into a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfckpt_trainer.bundle.analysis.contents import Contents, Role, Variable, read_contents
from tfckpt_trainer.bundle.analysis.counterparts import (
    find_counterparts,
    renamed_index,
)
from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.tools.tensors.average import (
    WeightedCheckpoint,
    find_differences,
    is_averaged,
    write_average,
)
from tfckpt_trainer.words.counts import few_of, first_lines
from tfckpt_tui.formats import units
from tfckpt_tui.services.checkpoints.look_up import require_restorable
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.tensors.new_checkpoint import (
    NewName,
    choose_name,
    derive,
)

_MOST_NAMED = 10
"""Differences that a refusal lists."""

_BATCH_STATISTICS = {"moving_mean", "moving_variance"}


@dataclass(frozen=True)
class AveragePlan:
    """An average that can be written.

    Attributes:
        new: The name and step of the new checkpoint.
        checkpoints: The checkpoints, oldest first, with their weights in `sources`.
        averaged: The variables that are averaged.
        from_newest: The variables that are taken from the newest checkpoint.
        batch_statistics: Moving means and variances of batch normalization among them.
    """

    new: NewName
    checkpoints: tuple[Checkpoint, ...]
    sources: tuple[WeightedCheckpoint, ...]
    averaged: tuple[Variable, ...]
    from_newest: tuple[Variable, ...]
    batch_statistics: tuple[Variable, ...]

    @property
    def newest(self) -> Checkpoint:
        """The newest of the checkpoints."""
        return self.checkpoints[-1]

    @property
    def size(self) -> int:
        """Bytes to read."""
        averaged = sum(variable.size for variable in self.averaged)
        return averaged * len(self.sources) + sum(variable.size for variable in self.from_newest)


def normalized_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """Returns weights that add up to 1.

    Raises:
        UsageError: A weight is negative or not finite, or all are 0.
    """
    total = math.fsum(weights)
    if (
        not all(math.isfinite(weight) and weight >= 0 for weight in weights)
        or not 0 < total < math.inf
    ):
        raise UsageError("Weights must be numbers from 0 on, and not all 0.")
    return tuple(weight / total for weight in weights)


def decayed_weights(decay: float, count: int) -> tuple[float, ...]:
    """Returns the weights of an exponential moving average that starts at the oldest value.

    Raises:
        UsageError: The decay is not between 0 and 1.
    """
    if not 0 < decay < 1:
        raise UsageError(f"The decay is {decay}; expected a number between 0 and 1, such as 0.999.")
    later = [(1 - decay) * decay**age for age in range(count - 1)]
    return (decay ** (count - 1), *reversed(later))


def in_order(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Returns checkpoints in the order in which they were saved."""
    return sorted(
        checkpoints,
        # One without a record was saved before all with one; 0 is the place of one made from it.
        key=lambda c: (c.sequence or 0, c.step or 0, c.saved_at),
    )


def plan_average(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    weights: Sequence[float] | None = None,
    *,
    decay: float | None = None,
    name: str | None = None,
) -> AveragePlan:
    """Checks that checkpoints can be averaged; reads only their indexes and object graphs.

    Args:
        run: The run directory.
        checkpoints: The checkpoints.
        weights: A weight for each of them, by default the same.
        decay: Decay of an exponential moving average, in the order in which they were saved.
        name: Name of the new checkpoint; by default one such as `average-500`.

    Raises:
        UsageError: The checkpoints or weights are not usable.
        RefusedError: A checkpoint is damaged, or the variables differ, or the name is taken.
        BundleError: An index is damaged.
        OSError: An index cannot be read.
    """
    names = [checkpoint.name for checkpoint in checkpoints]
    if len(set(names)) != len(names) or len(names) < 2:
        raise UsageError("Name two or more different checkpoints to average.")
    if weights is not None and len(weights) != len(names):
        given = units.count(len(weights), "weight")
        raise UsageError(f"Got {given} for {len(names)} checkpoints; give one for each.")
    for checkpoint in checkpoints:
        require_restorable(checkpoint)
    ordered = in_order(checkpoints)
    if decay is not None:
        chosen = dict(
            zip([c.name for c in ordered], decayed_weights(decay, len(names)), strict=True)
        )
    elif weights is not None:
        chosen = dict(zip(names, normalized_weights(weights), strict=True))
    else:
        chosen = dict.fromkeys(names, 1 / len(names))
    newest = read_contents(*_opened(run, ordered[-1]))
    sources = tuple(
        _source(run, checkpoint, newest, chosen[checkpoint.name]) for checkpoint in ordered
    )
    variables = newest.variables
    _refuse_differences(sources)
    averaged = tuple(variable for variable in variables if is_averaged(variable.entry))
    return AveragePlan(
        new=choose_name(run, "average", ordered[-1], name),
        checkpoints=tuple(ordered),
        sources=sources,
        averaged=averaged,
        from_newest=tuple(variable for variable in variables if not is_averaged(variable.entry)),
        batch_statistics=tuple(variable for variable in averaged if _is_batch_statistic(variable)),
    )


def average(
    run: RunDirectory,
    plan: AveragePlan,
    *,
    through: FrontEnd,
    on_read: Callable[[int], None] = lambda size: None,
    on_verified: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[CheckpointRecord, tuple[str, ...]]:
    """Writes a planned average, verifies it, and adds it to the run.

    Returns:
        The record of the new checkpoint, and warnings: values that are not finite, and about the
        event log.

    Raises:
        RefusedError: The name was taken in the meantime.
        TfckptError: A checkpoint is damaged.
        OSError: A file cannot be read or written.
    """
    names = ", ".join(checkpoint.name for checkpoint in plan.checkpoints)
    broken: list[NonFiniteValues] = []
    record, told = derive(
        run,
        plan.new,
        "average",
        [
            (checkpoint, source.weight)
            for checkpoint, source in zip(plan.checkpoints, plan.sources, strict=True)
        ],
        lambda writer, show: write_average(writer, plan.sources, show),
        variables=[*plan.averaged, *plan.from_newest],
        needed=plan.newest.size,
        message=f"Averaged {names} into {plan.new.name}.",
        through=through,
        on_read=on_read,
        on_verified=on_verified,
        on_not_finite=broken.extend,
    )
    return record, tuple(filter(None, [_not_finite_words(run, record.name, broken), told]))


def _not_finite_words(run: RunDirectory, name: str, tensors: Sequence[NonFiniteValues]) -> str:
    if not tensors:
        return ""
    paths = few_of([tensor.path for tensor in tensors], 1)
    return (
        f"{name} has NaN or infinite values in {paths}. See which checkpoints have "
        f"them with `tfckpt-tui verify {run.shell_word} --finite`."
    )


def _opened(run: RunDirectory, checkpoint: Checkpoint) -> tuple[Path, Index]:
    prefix = run.root / checkpoint.name
    return prefix, read_index(prefix)


def _source(
    run: RunDirectory, checkpoint: Checkpoint, newest: Contents, weight: float
) -> WeightedCheckpoint:
    """Returns a checkpoint with the names that the newest has for the same tensors."""
    own = read_contents(*_opened(run, checkpoint))
    index = renamed_index(own.index, find_counterparts(own, newest))
    return WeightedCheckpoint(own.prefix, index, weight)


def _refuse_differences(sources: Sequence[WeightedCheckpoint]) -> None:
    if not find_differences(sources):
        return
    paths: dict[str, str] = {}
    for source in sources:
        own = read_contents(source.prefix, read_index(source.prefix))
        new = dict(zip(own.index.entries, source.index.entries, strict=True))
        paths |= {new[variable.entry.name]: variable.path for variable in own.variables}
    differences = find_differences(sources, paths)
    lines = first_lines(differences, _MOST_NAMED)
    raise RefusedError(
        "The checkpoints have different variables, so they cannot be averaged:\n"
        + "\n".join(f"  {line}" for line in lines)
    )


def _is_batch_statistic(variable: Variable) -> bool:
    if variable.role is Role.SLOT:
        return False
    return any(
        PurePosixPath(name).name in _BATCH_STATISTICS
        for name in (variable.path, variable.full_name)
    )
