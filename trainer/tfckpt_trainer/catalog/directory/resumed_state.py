"""Which state a restore brings back, read from the files of a checkpoint alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.tensors import read_integer
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.exactness import (
    CheckSummary,
    ExactnessLevel,
    InputPosition,
    PipelineFacts,
    with_check,
)
from tfckpt_trainer.words.counts import count

_SEEDS = frozenset({"seeds", "unsynchronised variables and seeds"})
"""Contents of a record that say that seeds of the script were stored."""


@dataclass(frozen=True)
class ResumedState:
    """One kind of state that training needs to resume exactly.

    Attributes:
        name: The kind of state.
        restored: Whether a restore brings it back; None if the files do not say.
        detail: Where it is stored, or what happens without it.
    """

    name: str
    restored: bool | None
    detail: str


def find_resumed_state(
    prefix: Path,
    variables: Sequence[Variable],
    record: CheckpointRecord | None,
    *,
    lost: str = "",
    check: CheckSummary | None = None,
) -> tuple[ResumedState, ...]:
    """Returns each kind of state, and whether a restore brings it back.

    Args:
        prefix: The path of the checkpoint without suffix.
        variables: Its variables.
        record: Its record; None if this library did not save it.
        lost: The part that cannot be read, without which a restore may fail; empty if there is
            none.
        check: The last check of the run, if there was one.
    """
    states = (
        _weights(variables),
        _slots(variables),
        _step(prefix, variables, record),
        _schedule(variables),
        _input(variables, record),
        _random(variables, record),
        _callbacks(variables, record),
        *_script_state(record),
        *_exactness(record, check),
    )
    if not lost:
        return states
    unknown = f"unknown: the {lost} cannot be read"
    return tuple(ResumedState(state.name, None, unknown) for state in states)


def _of(variables: Sequence[Variable], *roles: Role) -> list[Variable]:
    return [variable for variable in variables if variable.role in roles]


def _count(variables: Sequence[Variable]) -> str:
    return count(len(variables), "variable")


def _weights(variables: Sequence[Variable]) -> ResumedState:
    weights = _of(variables, Role.WEIGHT)
    return ResumedState(
        "weights", bool(weights), _count(weights) if weights else "it has no weights"
    )


def _slots(variables: Sequence[Variable]) -> ResumedState:
    name = "slot variables"
    slots = _of(variables, Role.SLOT)
    if slots:
        names = sorted({variable.slot_name for variable in slots})
        return ResumedState(name, True, f"{_count(slots)}: {', '.join(names)}")
    if _of(variables, Role.OPTIMIZER):
        return ResumedState(name, None, "none so far, or this optimizer has none")
    return ResumedState(name, False, "it has no optimizer state: momentum starts from zero")


def step_counter(prefix: Path, variables: Sequence[Variable]) -> tuple[str, int] | None:
    """Returns the path and value of the variable that counts steps; None if there is none."""
    iterations = [v for v in _of(variables, Role.OPTIMIZER) if _is_iterations(v)]
    for variable in (*_of(variables, Role.STEP), *iterations):
        value = _value(prefix, variable)
        if value is not None:
            return variable.path, value
    return None


def _step(
    prefix: Path, variables: Sequence[Variable], record: CheckpointRecord | None
) -> ResumedState:
    counter = step_counter(prefix, variables)
    if counter is not None:
        path, value = counter
        said = parse_checkpoint_name(prefix.name)
        has_world = record is not None and record.world
        differs = not has_world and said is not None and said.step != value
        name = f"; the name says {said.step:,}" if said is not None and differs else ""
        return ResumedState("step", True, f"{path} = {value:,}{name}")
    if record is not None:
        return ResumedState("step", True, f"{record.step:,}, from its record")
    return ResumedState("step", False, "it has no step counter: the step starts at 0")


def _schedule(variables: Sequence[Variable]) -> ResumedState:
    name = "learning-rate schedule"
    optimizer = _of(variables, Role.OPTIMIZER)
    rates = [v for v in optimizer if "learning_rate" in f"{v.path} {v.full_name}"]
    if rates:
        many = "the rates are the variables" if len(rates) > 1 else "the rate is the variable"
        return ResumedState(name, True, f"{many} {', '.join(rate.path for rate in rates)}")
    if any(_is_iterations(variable) for variable in optimizer):
        return ResumedState(name, True, "computed from the iterations, which it has")
    return ResumedState(name, False, "it has neither the rate nor the iterations")


def _input(variables: Sequence[Variable], record: CheckpointRecord | None) -> ResumedState:
    name = "position in the input"
    iterators = _of(variables, Role.INPUT)
    if iterators:
        return ResumedState(name, True, f"the iterator {iterators[0].path}")
    limited = [
        pipeline for pipeline in _pipelines(record) if pipeline.position is not InputPosition.EXACT
    ]
    if limited:
        back = all(
            pipeline.position is InputPosition.POSITION or pipeline.skips for pipeline in limited
        )
        return ResumedState(name, back, "; ".join(pipeline.restored for pipeline in limited))
    if "input position" in _contents(record):
        return ResumedState(name, True, "one file per worker, beside the checkpoint")
    return ResumedState(name, False, "it has no iterator state: the input starts over")


def _random(variables: Sequence[Variable], record: CheckpointRecord | None) -> ResumedState:
    name = "random states"
    generators = _of(variables, Role.RANDOM)
    contents = _contents(record)
    if "random state" in contents:
        place = "one file per worker, beside the checkpoint"
        if not (contents & _SEEDS or generators):
            return ResumedState(name, True, f"those of Python and NumPy alone: {place}")
        without = any(
            pipeline.position is not InputPosition.EXACT for pipeline in _pipelines(record)
        )
        return ResumedState(name, True, place + (", without those of the input" if without else ""))
    if generators:
        return ResumedState(name, True, f"{_count(generators)}; not those of Python and NumPy")
    return ResumedState(name, False, "it has no generator state: generators start over")


def _callbacks(variables: Sequence[Variable], record: CheckpointRecord | None) -> ResumedState:
    name = "callbacks' best so far"
    if record is not None and "callbacks" in record.state:
        return ResumedState(name, True, "the state of Keras callbacks, saved by fit")
    best = [v for v in _of(variables, Role.OTHER) if "best" in v.path.lower()]
    if best:
        return ResumedState(name, True, f"the variable {best[0].path}")
    # A loop without Keras callbacks loses nothing.
    return ResumedState(name, None, "not saved: Keras callbacks, if any, start over")


def _script_state(record: CheckpointRecord | None) -> list[ResumedState]:
    """Returns what the script saves itself, if it does."""
    if record is None:
        return []
    shared = sorted(name for name in record.state if name != "callbacks")
    own = sorted({name for worker in record.workers for name in worker.state})
    words = [f"run.state: {', '.join(shared)}"] if shared else []
    words += [f"run.worker_state: {', '.join(own)}"] if own else []
    return [ResumedState("the script's own values", True, "; ".join(words))] if words else []


def _exactness(record: CheckpointRecord | None, check: CheckSummary | None) -> list[ResumedState]:
    """Returns whether resuming is exact, if the trainer or a check tells."""
    exactness = with_check(record.exactness if record is not None else None, check)
    if exactness is None:
        return []
    restored = {
        ExactnessLevel.CHECKED: True,
        ExactnessLevel.EXPECTED: None,
        ExactnessLevel.UNKNOWN: None,
        ExactnessLevel.NOT_POSSIBLE: False,
    }
    unproven = ": nothing is known to be missing, nothing was compared"
    detail = (
        f"{exactness.explained}{unproven if exactness.level is ExactnessLevel.EXPECTED else ''}"
    )
    return [ResumedState("exact resume", restored[exactness.level], detail)]


def _contents(record: CheckpointRecord | None) -> frozenset[str]:
    return frozenset(record.contents) if record is not None else frozenset()


def _pipelines(record: CheckpointRecord | None) -> list[PipelineFacts]:
    """Returns the input pipelines; none if training with this library did not save it."""
    return record.exactness.inputs if record is not None and record.exactness is not None else []


def _is_iterations(variable: Variable) -> bool:
    name = variable.path.rpartition("/")[2].strip("_")
    return name in {"iterations", "iter"} or variable.full_name.endswith("/iteration")


def _value(prefix: Path, variable: Variable) -> int | None:
    try:
        return read_integer(prefix, variable.entry)
    except (BundleError, OSError):
        # What cannot be read cannot be restored; `verify` reports the damage.
        return None
