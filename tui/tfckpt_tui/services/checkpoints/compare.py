"""Compares two checkpoints tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.compare import (
    TensorChange,
    TensorComparison,
    TensorDifference,
    compare,
    measure_change,
)
from tfckpt_trainer.bundle.analysis.contents import Role, Variable, read_contents
from tfckpt_trainer.bundle.analysis.counterparts import (
    find_counterparts,
    renamed_index,
)
from tfckpt_trainer.bundle.analysis.statistics import Statistics, difference_statistics
from tfckpt_trainer.bundle.analysis.tensor_names import (
    find_tensors,
    match_tensors,
    unknown_tensor,
)
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import BundleError, TfckptError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.checkpoints.inspect import describe_damage, errors_by_path


@dataclass(frozen=True)
class Comparison:
    """Two checkpoints and the difference of each tensor.

    Attributes:
        tensors: The tensors by their names in the second, or in the first if it alone has them.
        indexes: Their indexes, with these names.
        variables: The tensors with their paths, by name; those of the second, if it has them.
        damage: The known damage of tensors on either side, by name.
    """

    before: Checkpoint
    after: Checkpoint
    tensors: tuple[TensorComparison, ...]
    indexes: tuple[Index, Index]
    variables: Mapping[str, Variable]
    damage: Mapping[str, str]

    @property
    def titles(self) -> dict[str, str]:
        """Names for display, by tensor name."""
        return {name: variable.title for name, variable in self.variables.items()}

    def path(self, name: str) -> str:
        """Returns the path of a tensor, as `inspect` shows it."""
        variable = self.variables.get(name)
        return name if variable is None else variable.path

    @property
    def problems(self) -> tuple[str, ...]:
        """Which of the two cannot be restored, and why."""
        return tuple(
            f"{checkpoint.name} is {checkpoint.state.value}: {checkpoint.problem}"
            for checkpoint in (self.before, self.after)
            if not checkpoint.state.restorable
        )

    @property
    def hyperparameters(self) -> dict[str, tuple[float | None, float | None]]:
        """Hyperparameters that differ, by name: before and after; None if one records none."""
        before, after = (
            {name: one.value for name, one in checkpoint.hyperparameters.items()}
            for checkpoint in (self.before, self.after)
        )
        values = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
        return {name: pair for name, pair in values.items() if pair[0] != pair[1]}

    def count(self, difference: TensorDifference) -> int:
        """Returns how many tensors have this difference."""
        return sum(tensor.difference is difference for tensor in self.tensors)


@dataclass(frozen=True)
class Measured:
    """How much a tensor changed.

    Attributes:
        change: None if it has no numbers or could not be read.
        problem: Why it could not be read; empty if it could.
    """

    name: str
    change: TensorChange | None
    problem: str = ""


@dataclass(frozen=True)
class MeasuredDifference:
    """The difference of a tensor.

    Attributes:
        statistics: Of the second minus the first; None if it could not be read.
        problem: Why it could not be read; empty if it could.
    """

    name: str
    statistics: Statistics | None
    problem: str = ""


def compare_checkpoints(
    run: RunDirectory, before: Checkpoint, after: Checkpoint, *, as_restored: bool = False
) -> Comparison:
    """Compares two checkpoints; reads only their indexes and object graphs.

    Args:
        run: The run directory.
        before: The first checkpoint.
        after: The second checkpoint.
        as_restored: Whether a variable counts as the same only if TensorFlow restores it.

    Raises:
        BundleError: An index is damaged.
        TfckptError: An index is missing.
        OSError: It cannot be read.
    """
    sides = [
        read_contents(run.root / checkpoint.name, _index(run, checkpoint))
        for checkpoint in (before, after)
    ]
    names = find_counterparts(sides[0], sides[1], as_restored=as_restored)
    indexes = renamed_index(sides[0].index, names), sides[1].index
    # Renaming keeps the order.
    new = dict(zip(sides[0].index.entries, indexes[0].entries, strict=True))
    variables: dict[str, Variable] = {}
    damage: dict[str, str] = {}
    for checkpoint, side in zip((before, after), sides, strict=True):
        is_first = side is sides[0]
        for variable in side.variables:
            name = new[variable.entry.name] if is_first else variable.entry.name
            # If one object graph cannot be read, the other one still has the paths.
            if variable.role is not Role.UNKNOWN or name not in variables:
                entry = indexes[0].entries[name] if is_first else variable.entry
                variables[name] = replace(variable, entry=entry)
        for name, what in describe_damage(run, checkpoint.name, side.index, side.variables).items():
            damage[new.get(name, name) if is_first else name] = what
    return Comparison(before, after, compare(*indexes), indexes, variables, damage)


def _index(run: RunDirectory, checkpoint: Checkpoint) -> Index:
    try:
        return read_index(run.root / checkpoint.name)
    except FileNotFoundError as error:
        raise TfckptError(
            f"{checkpoint.name} cannot be compared: {checkpoint.name}.index is missing."
        ) from error


def measure(run: RunDirectory, compared: Comparison) -> Iterator[Measured]:
    """Reads the changed tensors, and yields by how much each one changed."""
    prefixes = run.root / compared.before.name, run.root / compared.after.name
    for tensor in compared.tensors:
        if tensor.difference is TensorDifference.CHANGED:
            try:
                with errors_by_path(compared.variables.values()):
                    change = measure_change(prefixes, compared.indexes, tensor)
                yield Measured(tensor.name, change)
            except (BundleError, OSError) as error:
                yield Measured(tensor.name, None, describe_error(error))


def difference_of_each(
    run: RunDirectory, compared: Comparison, names: Sequence[str]
) -> Iterator[MeasuredDifference]:
    """Reads tensors from `find_differing`, and yields statistics of their differences."""
    prefixes = run.root / compared.before.name, run.root / compared.after.name
    for name in names:
        try:
            with errors_by_path(compared.variables.values()):
                figures = difference_statistics(prefixes, compared.indexes, name)
            yield MeasuredDifference(name, figures)
        except (BundleError, OSError) as error:
            yield MeasuredDifference(name, None, describe_error(error))


def find_differing(run: RunDirectory, compared: Comparison, pattern: str) -> list[str]:
    """Returns the names of tensors with numbers and one shape that match and differ.

    Args:
        run: The run directory.
        compared: The comparison.
        pattern: The tensors, by path or name, as in `model/*`. Equal ones are left out unless
            they are named.

    Raises:
        UsageError: There is none.
    """
    variables = compared.variables.values()
    named = {tensor.entry.name for tensor in find_tensors(variables, pattern)}
    wanted = named or {tensor.entry.name for tensor in match_tensors(variables, pattern)}
    if not wanted and compared.variables:
        raise unknown_tensor(run.root / compared.after.name, variables, pattern)
    names = []
    for tensor in compared.tensors:
        before, after = tensor.before, tensor.after
        if before is None or after is None or before.shape != after.shape:
            continue
        differs = tensor.difference is not TensorDifference.EQUAL or tensor.name in named
        if is_numeric(before) and is_numeric(after) and differs and tensor.name in wanted:
            names.append(tensor.name)
    if not names:
        raise UsageError(
            f"No tensor that matches {pattern!r} differs and has numbers of the same shape in both."
        )
    return names


def worst_first(
    damage: Mapping[str, str], changes: Mapping[str, TensorChange], compared: TensorComparison
) -> tuple[bool, bool, bool, float]:
    """Returns a sort key: damaged tensors first, then not finite ones, then the most changed."""
    change = changes.get(compared.name)
    not_finite, relative = change.rank if change is not None else (False, 0.0)
    return compared.name not in damage, not not_finite, change is None, -relative
