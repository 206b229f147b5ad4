"""What changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfckpt_trainer.bundle.analysis.compare import (
    Difference,
    TensorChange,
    TensorComparison,
    compare,
    measure_change,
)
from tfckpt_trainer.bundle.analysis.contents import Role
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import BundleError, TfckptError, in_words
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.inspect import describe_damage, variables_of


@dataclass(frozen=True)
class Comparison:
    """Two checkpoints and how each of their tensors differs.

    Attributes:
        titles: What tensors are in the program that saved them, by their names.
        damage: What is known to be wrong with single tensors on either side, by their names.
    """

    before: Checkpoint
    after: Checkpoint
    tensors: tuple[TensorComparison, ...]
    indexes: tuple[Index, Index]
    titles: Mapping[str, str]
    damage: Mapping[str, str]

    @property
    def problems(self) -> tuple[str, ...]:
        """Says which of the two cannot be restored, and why."""
        return tuple(
            f"{one.name} is {one.state.value}: {one.problem}"
            for one in (self.before, self.after)
            if not one.state.restorable
        )

    def count(self, difference: Difference) -> int:
        """Returns how many tensors differ in this way."""
        return sum(one.difference is difference for one in self.tensors)


@dataclass(frozen=True)
class Measured:
    """How far a tensor moved.

    Attributes:
        change: None where it has no numbers, or could not be read.
        problem: Why it could not be read; empty if it could.
    """

    name: str
    change: TensorChange | None
    problem: str = ""


def compare_checkpoints(run: RunDirectory, before: Checkpoint, after: Checkpoint) -> Comparison:
    """Compares two checkpoints by their indexes; beside them only object graphs are read.

    Raises:
        BundleError: An index is damaged.
        TfckptError: There is none.
        OSError: It cannot be read.
    """
    indexes = _index(run, before), _index(run, after)
    titles: dict[str, str] = {}
    damage: dict[str, str] = {}
    for checkpoint, index in zip((before, after), indexes, strict=True):
        for variable in variables_of(run.root / checkpoint.name, index):
            # Where one object graph cannot be read, the other still tells what the tensors are.
            if variable.role is not Role.UNKNOWN:
                titles[variable.entry.name] = variable.title
        damage |= describe_damage(run, checkpoint.name, index)
    return Comparison(before, after, compare(*indexes), indexes, titles, damage)


def _index(run: RunDirectory, checkpoint: Checkpoint) -> Index:
    try:
        return read_index(run.root / checkpoint.name)
    except FileNotFoundError as error:
        raise TfckptError(
            f"{checkpoint.name} cannot be compared: {checkpoint.name}.index is missing."
        ) from error


def measure(run: RunDirectory, compared: Comparison) -> Iterator[Measured]:
    """Reads what changed and says by how much, tensor by tensor."""
    prefixes = run.root / compared.before.name, run.root / compared.after.name
    for one in compared.tensors:
        if one.difference is Difference.CHANGED:
            try:
                yield Measured(one.name, measure_change(prefixes, compared.indexes, one))
            except (BundleError, OSError) as error:
                yield Measured(one.name, None, in_words(error))


def worst_first(
    damage: Mapping[str, str], changes: Mapping[str, TensorChange], compared: TensorComparison
) -> tuple[bool, bool, bool, float]:
    """Returns what to sort tensors by: damaged, then not finite, then by how far they moved."""
    change = changes.get(compared.name)
    not_finite, relative = change.rank if change is not None else (False, 0.0)
    return compared.name not in damage, not not_finite, change is None, -relative
