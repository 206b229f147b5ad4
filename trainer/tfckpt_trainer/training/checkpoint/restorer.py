"""Restores a checkpoint in place, on all workers or on none, and proves the restored values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.documents import load_if_exists
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.adoption import Adoption, plan_adoption
from tfckpt_trainer.training.checkpoint.comparison import Match, wrong_values
from tfckpt_trainer.training.checkpoint.save_protocol import LOCAL_FAILURES, describe_failure
from tfckpt_trainer.training.checkpoint.state import RandomState, TrainingState
from tfckpt_trainer.training.worker_group import WorkerGroup

SHOWN_PROBLEMS = 5
"""How many problems of one worker are shown; a wrong model has hundreds."""


class TornRestoreError(Exception):
    """A restore failed halfway, so the states of the workers differ: restart all of them."""


@dataclass(frozen=True)
class RestoreOutcome:
    """The result of a restore; equal on all workers.

    Attributes:
        problems: Why it was refused, with the index of the worker; empty if it was not.
        damaged: Whether it was refused because of damaged files and not because of the model. An
            older checkpoint may work then.
        notes: What was not restored, and why that is acceptable.
        variables: Number of variables that were restored and proven equal on every worker.
        seconds: How long the restore took.
        record: The record of the checkpoint, if there is one.
        worker_restored: Whether the state of each worker was restored too.
        left_out: What a partial restore did not restore, and why.
        adopted: What was taken from where in a checkpoint that another program saved.
        inputs: What was done with each input pipeline that is not at its exact position, as a
            clause.
    """

    problems: tuple[str, ...] = ()
    damaged: bool = False
    notes: tuple[str, ...] = ()
    variables: int = 0
    seconds: float = 0.0
    record: CheckpointRecord | None = None
    worker_restored: bool = False
    left_out: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def input_words(self) -> str:
        """Sentences about input pipelines that are not at their exact position, or nothing."""
        return "".join(f" The input pipeline {clause}." for clause in self.inputs)


@dataclass
class _Check:
    """What one worker found before anything was changed."""

    problems: list[str] = field(default_factory=list)
    damaged: bool = False
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    worker_state_fits: bool = False


@dataclass
class _Reading:
    """What one worker did after all agreed to restore.

    Attributes:
        failure: What went wrong; empty if nothing did.
        inputs: See `RestoreOutcome.inputs`.
    """

    failure: str = ""
    inputs: list[str] = field(default_factory=list)


@dataclass
class _Prepared:
    """What one worker needs to restore what it checked.

    Attributes:
        matches: Variables of the shared state, with their tensors.
        adoption: Where another program saved them; None if this library did.
        worker_matches: Variables of the worker's state, with their tensors.
        random_state: The saved random state, if the worker's state is restored.
    """

    matches: tuple[Match, ...] = ()
    adoption: Adoption | None = None
    worker_matches: tuple[Match, ...] = ()
    random_state: RandomState | None = None


class Restorer:
    """Restores checkpoints of one run. All workers call `restore` together."""

    def __init__(self, run: RunDirectory, group: WorkerGroup, state: TrainingState) -> None:
        self._run = run
        self._group = group
        self._state = state
        self._worker = f"worker {group.index}"

    def restore(self, name: str, *, partial: bool = False) -> RestoreOutcome:
        """Restores checkpoint `name` on all workers, or changes none of them.

        First, every worker verifies the files that it would read and compares them with its live
        objects. If a worker finds a problem, nothing is changed. Then all workers read. Each
        compares the checksum of every variable in memory, on every replica, with the index.

        Args:
            name: Name of the checkpoint.
            partial: Whether to restore what fits, and leave the rest unchanged. Damage is
                refused all the same.

        Raises:
            TornRestoreError: A worker failed after all had agreed to restore.
            tf.errors.OpError: Another worker is gone.
        """
        check, prepared = self._check(name, partial=partial)
        checks = self._group.all_gather(check)
        problems = [problem for checked in checks for problem in checked.problems]
        if problems:
            damaged = any(checked.damaged for checked in checks)
            return RestoreOutcome(problems=tuple(problems), damaged=damaged)
        # The state of the workers is all or nothing too: if half of them went back to their input
        # position, some examples would be repeated and others skipped.
        with_worker_state = all(checked.worker_state_fits for checked in checks)
        left_out = checks[0].left_out
        reading = self._read(name, prepared, with_worker_state, bool(left_out))
        readings = self._group.all_gather(reading)
        failures = [read.failure for read in readings if read.failure]
        if failures:
            raise TornRestoreError(f"The restore of {name} failed halfway: {'; '.join(failures)}")
        return RestoreOutcome(
            notes=tuple(note for checked in checks for note in checked.notes),
            variables=len(prepared.matches),
            record=self._record(name),
            worker_restored=with_worker_state,
            left_out=tuple(left_out),
            adopted=prepared.adoption.notes if prepared.adoption is not None else (),
            inputs=tuple(dict.fromkeys(clause for read in readings for clause in read.inputs)),
        )

    def _check(self, name: str, *, partial: bool) -> tuple[_Check, _Prepared]:
        check, prepared = _Check(), _Prepared()
        try:
            damage = _damage(self._run.root / name)
            check.damaged = bool(damage)
            problems = damage or self._check_shared(name, check, prepared, partial=partial)
            check.problems += _first(problems, self._worker)
            if not problems:
                self._check_worker_state(name, check, prepared, partial=partial)
        except LOCAL_FAILURES as error:
            check.damaged = True
            check.problems.append(f"{self._worker}: {describe_failure(error)}")
        return check, prepared

    def _check_shared(
        self, name: str, check: _Check, prepared: _Prepared, *, partial: bool
    ) -> list[str]:
        """Compares the shared state; returns what does not fit and may not be left out."""
        prefix = self._run.root / name
        shared = self._state.shared
        if self._was_saved_by_another_program(name):
            prepared.adoption = plan_adoption(shared.checkpoint, prefix)
            comparison = prepared.adoption.comparison
        else:
            comparison = shared.compare(prefix)
        prepared.matches = comparison.matched
        if not comparison.problems or not partial:
            return comparison.problems
        if not comparison.matched:
            return [f"nothing in {name} fits this model", *comparison.problems]
        check.left_out += comparison.problems
        return []

    def _check_worker_state(
        self, name: str, check: _Check, prepared: _Prepared, *, partial: bool
    ) -> None:
        record = self._record(name)
        topology = self._group.topology
        same_topology = record is not None and all(
            record.world.get(key) == topology[key] for key in ("workers", "replicas")
        )
        anew = f"{self._worker}: input position and random state start anew"
        if not same_topology:
            check.notes.append(
                f"{anew} because {name} "
                + (
                    "has none."
                    if record is None
                    else "was saved with another number of workers or replicas."
                )
            )
            return
        prefix = self._worker_prefix(name)
        if not index_path(prefix).exists():
            check.damaged = True
            check.problems.append(
                f"{self._worker}: its state {prefix.name} of {name} is missing in {prefix.parent}"
            )
            return
        damage = _damage(prefix)
        check.damaged = bool(damage)
        comparison = None if damage else self._state.worker.compare(prefix)
        problems = damage if comparison is None else comparison.problems
        check.worker_state_fits = not problems
        if partial and problems and not damage:
            check.notes.append(f"{anew} because those of {name} do not fit: {problems[0]}.")
            return
        check.problems += _first(problems, self._worker)
        if comparison is not None and not problems:
            prepared.worker_matches = comparison.matched
            prepared.random_state = self._state.worker.load_random_state(prefix)

    def _read(
        self, name: str, prepared: _Prepared, with_worker_state: bool, partial: bool
    ) -> _Reading:
        """Restores what was checked, and proves the values of variables."""
        prefix, worker_prefix = self._run.root / name, self._worker_prefix(name)
        shared, worker = self._state.shared, self._state.worker
        reading = _Reading()
        try:
            if partial:
                shared.restore_variables(prefix, prepared.matches)
            elif prepared.adoption is not None:
                prepared.adoption.restore(prefix)
            else:
                shared.restore(prefix)
            if prepared.adoption is not None:
                shared.set_step(prepared.adoption.step)
            if with_worker_state and prepared.random_state is not None:
                reading.inputs = worker.restore(worker_prefix, prepared.random_state)
            ignored = worker.variable_ids if with_worker_state else set()
            wrong = wrong_values(prepared.matches, prefix, ignored)
            if with_worker_state:
                wrong += wrong_values(prepared.worker_matches, worker_prefix)
        except (*LOCAL_FAILURES, AssertionError) as error:
            return _Reading(f"{self._worker}: {describe_failure(error)}")
        if wrong:
            return _Reading(f"{self._worker}: {wrong[0]} differs from the saved value")
        return reading

    def _worker_prefix(self, name: str) -> Path:
        return self._run.worker_state_directory(name) / f"worker-{self._group.index}"

    def _was_saved_by_another_program(self, name: str) -> bool:
        return not (self._run.record(name).exists() or self._run.record_copy(name).exists())

    def _record(self, name: str) -> CheckpointRecord | None:
        try:
            return load_if_exists(self._run.record(name), CheckpointRecord)
        except DamagedFileError:
            return None


def _damage(prefix: Path) -> list[str]:
    """Verifies the files at `prefix`; returns what is wrong with them."""
    try:
        found = verify(prefix).findings
    except (BundleError, FileNotFoundError) as error:
        return [f"{prefix.name} is damaged or missing: {error}"]
    return [
        f"{prefix.name} is damaged: {finding.message}"
        for finding in found
        if finding.severity == "error"
    ]


def _first(problems: list[str], worker: str) -> list[str]:
    shown = [f"{worker}: {problem}" for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return [*shown, f"{worker}: and {more} more"] if more > 0 else shown
