"""What is in a checkpoint, and what resuming from it brings back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.contents import Variable, describe
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.bundle.object_graph import KEY, read_object_graph
from tfckpt_trainer.bundle.statistics import Statistics, statistics
from tfckpt_trainer.bundle.values import is_numeric
from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.resuming import Returning, returning
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.rundir.paths import RunDirectory

GROUPS = ("model", "optimizer", "rest")


@dataclass(frozen=True)
class Total:
    """How many tensors, elements and bytes a part of a checkpoint has."""

    group: str
    tensors: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """What is in a checkpoint.

    Attributes:
        by_name: Whether it was saved by name, as TensorFlow 1 does: it has no object graph.
        returning: What resuming from it brings back and what not.
        problem: Why its object graph cannot be read; empty if it can.
    """

    checkpoint: Checkpoint
    index: Index
    variables: tuple[Variable, ...]
    by_name: bool
    returning: tuple[Returning, ...]
    problem: str = ""

    @property
    def totals(self) -> tuple[Total, ...]:
        """Sums for the model, the optimizer and the rest."""
        return tuple(_total(group, self.variables) for group in GROUPS)


def inspect(run: RunDirectory, checkpoint: Checkpoint) -> Inspection:
    """Reads what is in a checkpoint, without its tensors.

    Raises:
        BundleError: Its index is damaged.
        FileNotFoundError: It has no index.
    """
    prefix = run.root / checkpoint.name
    index = read_index(prefix)
    variables, problem = _variables(prefix, index)
    back = returning(prefix, variables, checkpoint.record)
    return Inspection(checkpoint, index, variables, KEY not in index.entries, back, problem)


def variables_of(prefix: Path, index: Index) -> tuple[Variable, ...]:
    """Says of each tensor what it is for, as far as the object graph can be read."""
    return _variables(prefix, index)[0]


def _variables(prefix: Path, index: Index) -> tuple[tuple[Variable, ...], str]:
    """Returns them, and why the object graph cannot be read; empty if it can."""
    if KEY not in index.entries:
        return describe(index, None), ""
    try:
        return describe(index, read_object_graph(prefix, index)), ""
    except (BundleError, OSError) as error:
        return describe(index, None), str(error)


def statistics_of(run: RunDirectory, found: Inspection, variable: Variable) -> Statistics | None:
    """Reads a tensor and returns its figures; None where its elements are no numbers.

    Raises:
        BundleError: It is not where it should be.
        FileNotFoundError: A data file is missing.
    """
    if not is_numeric(variable.entry):
        return None
    return statistics(run.root / found.checkpoint.name, found.index, variable.entry)


def _total(group: str, variables: Sequence[Variable]) -> Total:
    own = [variable for variable in variables if variable.group == group]
    return Total(group, len(own), sum(variable.size for variable in own))


def in_families(variables: Sequence[Variable]) -> list[Variable]:
    """Returns the variables with the slot variables of each right behind it."""
    paths = {variable.path for variable in variables}
    slots: dict[str, list[Variable]] = {}
    for variable in variables:
        if variable.slot_of in paths:
            slots.setdefault(variable.slot_of, []).append(variable)
    ordered = []
    for variable in variables:
        if variable.slot_of not in paths:
            ordered.append(variable)
            ordered += slots.get(variable.path, [])
    return ordered


def matching(variables: Sequence[Variable], text: str) -> list[Variable]:
    """Returns the variables with `text` in their path, their name or that of their owner."""
    wanted = text.casefold()
    return [
        variable
        for variable in variables
        if any(
            wanted in name.casefold()
            for name in (variable.path, variable.entry.name, variable.slot_of)
        )
    ]
