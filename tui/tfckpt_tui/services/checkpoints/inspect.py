"""Reads the content of a checkpoint, and what a resume from it brings back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import (
    Variable,
    read_contents,
)
from tfckpt_trainer.bundle.analysis.statistics import Statistics, statistics
from tfckpt_trainer.bundle.index import Index, read_index, shard_path
from tfckpt_trainer.bundle.links import NotFetchedError, check_fetched, stat_inside
from tfckpt_trainer.bundle.object_graph import KEY
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.resumed_state import ResumedState, find_resumed_state
from tfckpt_trainer.errors import BundleError, DamagedFileError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.exactness import CheckSummary
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_tui.formats.variable_tree import has_text
from tfckpt_tui.services.checkpoints.verify import cached_result
from tfckpt_tui.services.exactness.stored_checks import with_stored_check

GROUPS = ("model", "optimizer", "rest")


@dataclass(frozen=True)
class Total:
    """The number of tensors and bytes in one part of a checkpoint."""

    group: str
    tensors: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """The content of a checkpoint, as far as it can be read.

    Attributes:
        index: None if it cannot be read; then nothing is known about the tensors.
        has_graph: Whether it has an object graph; name-based checkpoints of TensorFlow 1 have
            none. None if that is unknown.
        resumed: Each kind of state, and whether a restore brings it back.
        damage: The known damage of tensors, by name.
        problem: Why its index or its object graph cannot be read; empty if both can.
    """

    checkpoint: Checkpoint
    index: Index | None
    variables: tuple[Variable, ...]
    has_graph: bool | None
    resumed: tuple[ResumedState, ...]
    damage: Mapping[str, str]
    problem: str = ""

    @property
    def totals(self) -> tuple[Total, ...]:
        """Totals of the model, the optimizer and the rest; none if the index cannot be read."""
        if self.index is None:
            return ()
        return tuple(_total(group, self.variables) for group in GROUPS)


def inspect(run: RunDirectory, checkpoint: Checkpoint) -> Inspection:
    """Reads the content of a checkpoint, without its tensors."""
    prefix = run.root / checkpoint.name
    check = _last_check(run)
    try:
        index = read_index(prefix)
    except (BundleError, OSError) as error:
        back = find_resumed_state(prefix, (), checkpoint.record, lost="index", check=check)
        return Inspection(checkpoint, None, (), None, back, {}, describe_error(error))
    contents = read_contents(prefix, index)
    variables, problem = contents.variables, contents.problem
    back = find_resumed_state(
        prefix,
        variables,
        checkpoint.record,
        lost="object graph" if problem else "",
        check=check,
    )
    has_graph = None if problem else KEY in index.entries
    damage = describe_damage(run, checkpoint.name, index, variables)
    return Inspection(checkpoint, index, variables, has_graph, back, damage, problem)


def _last_check(run: RunDirectory) -> CheckSummary | None:
    try:
        info = load_if_exists(run.run_file, RunInfo)
    except (DamagedFileError, OSError):
        return None
    return with_stored_check(info, run).check if info is not None else None


def describe_damage(
    run: RunDirectory, name: str, index: Index, variables: Iterable[Variable]
) -> dict[str, str]:
    """Returns what is known to be wrong with single tensors, by their names.

    It comes from a valid verification result, and from tensors beyond the end of a data file.
    """
    result = cached_result(run, name)
    findings = result.record.findings if result is not None else ()
    damage = {
        finding.tensor: finding.message
        for finding in findings
        if finding.tensor and finding.severity == "error"
    }
    paths = {variable.entry.name: variable.path for variable in variables}
    sizes = _shard_sizes(run.root / name, index.shard_count)
    for entry in index.stored():
        shard, size = sizes[entry.shard]
        if size is None:
            damage.setdefault(entry.name, f"{shard} is missing")
        elif entry.offset + entry.size > size:
            path = paths.get(entry.name, entry.name)
            damage.setdefault(entry.name, f"{path} reaches beyond the end of {shard}")
    return damage


@contextmanager
def errors_by_path(variables: Iterable[Variable]) -> Iterator[None]:
    """Names a damaged tensor by its path, as `inspect` shows it.

    Args:
        variables: The tensors that are read.

    Raises:
        BundleError: One of them is damaged.
    """
    try:
        yield
    except BundleError as error:
        named = [variable for variable in variables if variable.entry.name in error.problem]
        if not named:
            raise
        # The name of a tensor may end in that of another.
        meant = max(named, key=lambda variable: len(variable.entry.name))
        problem = error.problem.replace(meant.entry.name, meant.path)
        raise BundleError(error.file, error.offset, problem) from error


def _shard_sizes(prefix: Path, count: int) -> list[tuple[str, int | None]]:
    """Returns the names of the data files with their sizes, None for missing files."""
    sizes = []
    for number in range(count):
        path = shard_path(prefix, number, count)
        try:
            check_fetched(path)
            size: int | None = stat_inside(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            size = None
        except NotFetchedError:
            # Nothing is known about its tensors.
            size = sys.maxsize
        sizes.append((path.name, size))
    return sizes


def statistics_of(
    run: RunDirectory,
    inspection: Inspection,
    variable: Variable,
    on_read: Callable[[int], None] = lambda size: None,
) -> Statistics | None:
    """Reads a tensor and returns its statistics; None if its elements are not numbers.

    Args:
        run: The run directory.
        inspection: The inspected checkpoint.
        variable: One of its variables.
        on_read: Called with the bytes that are done since the last call.

    Raises:
        BundleError: It is missing or damaged.
        FileNotFoundError: A data file is missing.
    """
    if inspection.index is None or not is_numeric(variable.entry):
        return None
    with errors_by_path([variable]):
        return statistics(
            run.root / inspection.checkpoint.name, inspection.index, variable.entry, on_read
        )


def _total(group: str, variables: Sequence[Variable]) -> Total:
    own = [variable for variable in variables if variable.group == group]
    return Total(group, len(own), sum(variable.size for variable in own))


def in_families(variables: Sequence[Variable]) -> list[Variable]:
    """Returns the variables, each followed by its slot variables."""
    paths = {variable.path for variable in variables if not variable.slot_of}
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
    return [
        variable
        for variable in variables
        if has_text(text, variable.path, variable.entry.name, variable.slot_of)
    ]
