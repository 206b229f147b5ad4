"""What resuming from a checkpoint brings back and what not, read from its files alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.tensors import read_integer
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord


@dataclass(frozen=True)
class Returning:
    """One thing that a person expects back.

    Attributes:
        what: The thing.
        comes_back: None where the files cannot tell.
        how: Where it is, or what happens instead.
    """

    what: str
    comes_back: bool | None
    how: str


def returning(
    prefix: Path,
    variables: Sequence[Variable],
    record: CheckpointRecord | None,
    *,
    lost: str = "",
) -> tuple[Returning, ...]:
    """Tells what resuming from the checkpoint at `prefix` would bring back.

    Args:
        prefix: The checkpoint.
        variables: What is in it.
        record: What our library recorded of it, if it saved it.
        lost: What of the checkpoint cannot be read, so that nobody knows what the variables are
            for; empty if it is known.
    """
    contents = frozenset(record.contents) if record is not None else frozenset()
    found = (
        _weights(variables),
        _slots(variables),
        _step(prefix, variables, record),
        _schedule(variables),
        _input(variables, contents),
        _random(variables, contents),
        _callbacks(variables, record),
        *_kept(record),
    )
    if not lost:
        return found
    unknown = f"unknown: its {lost} cannot be read"
    return tuple(one if one.comes_back else Returning(one.what, None, unknown) for one in found)


def _of(variables: Sequence[Variable], *roles: Role) -> list[Variable]:
    return [variable for variable in variables if variable.role in roles]


def _count(variables: Sequence[Variable]) -> str:
    return f"{len(variables):,} variable{'' if len(variables) == 1 else 's'}"


def _weights(variables: Sequence[Variable]) -> Returning:
    found = _of(variables, Role.WEIGHT)
    return Returning("weights", bool(found), _count(found) if found else "no weights are in it")


def _slots(variables: Sequence[Variable]) -> Returning:
    what = "slot variables"
    found = _of(variables, Role.SLOT)
    if found:
        names = sorted({variable.slot_name for variable in found})
        return Returning(what, True, f"{_count(found)}: {', '.join(names)}")
    if _of(variables, Role.OPTIMIZER):
        return Returning(what, None, "none yet, or this optimizer has none")
    return Returning(what, False, "no optimizer is in it: momentum starts anew")


def _step(
    prefix: Path, variables: Sequence[Variable], record: CheckpointRecord | None
) -> Returning:
    named = _of(variables, Role.STEP)
    iterations = [v for v in _of(variables, Role.OPTIMIZER) if _is_iterations(v)]
    for variable in (*named, *iterations):
        value = _value(prefix, variable)
        if value is not None:
            return Returning("step", True, f"{variable.path} = {value:,}")
    if record is not None:
        return Returning("step", True, f"{record.step:,}, from its record")
    return Returning("step", False, "no counter is in it: counting starts anew")


def _schedule(variables: Sequence[Variable]) -> Returning:
    what = "learning-rate schedule"
    optimizer = _of(variables, Role.OPTIMIZER)
    rates = [v for v in optimizer if "learning_rate" in f"{v.path} {v.full_name}"]
    if rates:
        return Returning(what, True, f"the rate is the variable {rates[0].path}")
    if any(_is_iterations(variable) for variable in optimizer):
        return Returning(what, True, "it follows from the iterations, which are in it")
    return Returning(what, False, "neither the rate nor the iterations are in it")


def _input(variables: Sequence[Variable], contents: frozenset[str]) -> Returning:
    what = "position in the input"
    found = _of(variables, Role.INPUT)
    if found:
        return Returning(what, True, f"the iterator {found[0].path}")
    if "input position" in contents:
        return Returning(what, True, "of each worker, in files beside it")
    return Returning(what, False, "no iterator is in it: the input starts anew")


def _random(variables: Sequence[Variable], contents: frozenset[str]) -> Returning:
    what = "random states"
    found = _of(variables, Role.RANDOM)
    if "random state" in contents:
        return Returning(what, True, "of each worker, in files beside it")
    if found:
        return Returning(what, True, f"{_count(found)}; not those of Python and NumPy")
    return Returning(what, False, "no generator is in it: they start anew")


def _callbacks(variables: Sequence[Variable], record: CheckpointRecord | None) -> Returning:
    what = "callbacks' best so far"
    if record is not None and "callbacks" in record.state:
        return Returning(what, True, "what Keras's callbacks count, as fit keeps it")
    found = [v for v in _of(variables, Role.OTHER) if "best" in v.path.lower()]
    if found:
        return Returning(what, True, f"the variable {found[0].path}")
    return Returning(what, False, "no checkpoint has Keras callbacks: they start anew")


def _kept(record: CheckpointRecord | None) -> list[Returning]:
    """Returns what a script keeps of its own, where it keeps something."""
    if record is None:
        return []
    shared = sorted(name for name in record.state if name != "callbacks")
    own = sorted({name for worker in record.workers for name in worker.state})
    words = [f"run.state: {', '.join(shared)}"] if shared else []
    words += [f"run.worker_state: {', '.join(own)}"] if own else []
    return [Returning("the script's own values", True, "; ".join(words))] if words else []


def _is_iterations(variable: Variable) -> bool:
    name = variable.path.rpartition("/")[2].strip("_")
    return name in {"iterations", "iter"} or variable.full_name.endswith("/iteration")


def _value(prefix: Path, variable: Variable) -> int | None:
    try:
        return read_integer(prefix, variable.entry)
    except (BundleError, OSError):
        # What cannot be read cannot come back; that it is damaged is for verifying to say.
        return None
