"""Restores a checkpoint in place, on all workers or on none, and proves the restored values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.documents import load_if_exists
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.save_protocol import LOCAL_FAILURES, describe_failure
from tfckpt_trainer.training.checkpoint.state import RandomState, TrainingState, WorkerState
from tfckpt_trainer.training.state.adoption import Adoption, plan_adoption
from tfckpt_trainer.training.state.comparison import Comparison, Match, compare, wrong_values
from tfckpt_trainer.training.state.values_by_path import (
    UNTRACKED,
    compare_values,
    restore_values,
    untracked_variables,
)
from tfckpt_trainer.training.state.variables import Rule, components, raw_variable
from tfckpt_trainer.training.state.walk import Found
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
        record: The record of the checkpoint, if there is one that can be read.
        found: All state of the script.
        matches: Variables of the shared state, with their tensors.
        adoption: Where another program saved them; None if this library did.
        is_partial: Whether only `matches` of the shared state are restored.
        untracked: Variables that are stored beside the shared state, with their tensors.
        tracking: What takes the values of this worker, if there are any.
        worker_matches: Variables of the worker's state, with their tensors.
        random_state: The saved random state, if the worker's state is restored.
        objects: The random state with the objects of the script to restore.
    """

    record: CheckpointRecord | None = None
    found: tuple[Found, ...] = ()
    matches: tuple[Match, ...] = ()
    adoption: Adoption | None = None
    is_partial: bool = False
    untracked: tuple[Match, ...] = ()
    tracking: tf.train.Checkpoint | None = None
    worker_matches: tuple[Match, ...] = ()
    random_state: RandomState | None = None
    objects: RandomState | None = None

    @property
    def own(self) -> set[int]:
        """Identities of the variables that take the values of this worker."""
        taken = {id(match.variable) for match in self.worker_matches}
        return {
            id(raw_variable(one.thing))
            for one in self.found
            if one.rule.is_variable and all(id(part) in taken for part in components(one.thing))
        }


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
        reading = self._read(name, prepared, with_worker_state)
        readings = self._group.all_gather(reading)
        failures = [read.failure for read in readings if read.failure]
        if failures:
            raise TornRestoreError(f"The restore of {name} failed halfway: {'; '.join(failures)}")
        return RestoreOutcome(
            notes=tuple(note for checked in checks for note in checked.notes),
            variables=len(prepared.matches) + len(prepared.untracked),
            record=prepared.record,
            worker_restored=with_worker_state,
            left_out=tuple(checks[0].left_out),
            adopted=prepared.adoption.notes if prepared.adoption is not None else (),
            inputs=tuple(dict.fromkeys(clause for read in readings for clause in read.inputs)),
        )

    def _check(self, name: str, *, partial: bool) -> tuple[_Check, _Prepared]:
        check, prepared = _Check(), _Prepared()
        try:
            damage = _damage(self._run.root / name)
            check.damaged = bool(damage)
            prepared.record = self._record(name)
            prepared.found = self._state.shared.find()
            problems = damage or self._check_shared(name, check, prepared, partial=partial)
            if not problems:
                problems = self._check_untracked(name, check, prepared)
            check.problems += _first(problems, self._worker)
            if not problems:
                self._check_worker_state(name, check, prepared, partial=partial)
                self._check_objects(name, check, prepared)
                check.notes += self._uncompared(prepared)
        except LOCAL_FAILURES as error:
            check.damaged = True
            check.problems.append(f"{self._worker}: {describe_failure(error)}")
        return check, prepared

    def _uncompared(self, prepared: _Prepared) -> list[str]:
        """Returns a sentence for each object that is restored without a proof; on the chief."""
        if not self._group.is_chief:
            return []
        return [
            f"{one.path} ({type(one.thing).__name__}) keeps its value outside variables; it was "
            "restored and not compared."
            for one in prepared.found
            if one.rule is Rule.OTHER
        ]

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
        prepared.is_partial = True
        return []

    def _check_untracked(self, name: str, check: _Check, prepared: _Prepared) -> list[str]:
        """Compares what is stored beside the shared state; returns what is damaged.

        Such variables may be created by the first step, so what does not fit is left out.
        """
        wanted = untracked_variables(prepared.found)
        record = prepared.record
        prefix = self._untracked_prefix(name)
        if not index_path(prefix).exists():
            if record is not None and record.has_file(prefix.name):
                check.damaged = True
                return [f"{prefix.name} of {name} is missing in {prefix.parent}"]
            if record is None or record.per_worker is not None:
                check.left_out += [f"{one.path} is missing in the checkpoint" for one in wanted]
            return []
        damage = _damage(prefix)
        check.damaged = bool(damage)
        if damage:
            return damage
        comparison = compare_values(wanted, prefix)
        prepared.untracked = comparison.matched
        check.left_out += comparison.problems
        return []

    def _check_objects(self, name: str, check: _Check, prepared: _Prepared) -> None:
        """Finds the states of objects of the script: this worker's, or else the chief's."""
        saved = prepared.random_state
        chiefs = WorkerState.random_state_path(self._worker_prefix(name, 0))
        if saved is None and chiefs.exists():
            saved = self._state.worker.load_random_state(self._worker_prefix(name, 0))
        prepared.objects = saved or RandomState(python=[], numpy=[])
        check.left_out += [
            f"extra[{one!r}] is missing in the checkpoint"
            for one in self._state.worker.missing_objects(prepared.objects)
        ]

    def _check_worker_state(
        self, name: str, check: _Check, prepared: _Prepared, *, partial: bool
    ) -> None:
        anew = f"{self._worker}: input position and random state start anew"
        other = self._other_topology(prepared.record)
        if other:
            check.notes.append(f"{anew} because {name} {other}")
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
        problems = damage
        late: list[str] = []
        comparison = None
        if not damage:
            saved = self._state.worker.load_random_state(prefix)
            tracking = self._tracking(prefix, prepared, saved.per_worker)
            comparison = compare(tracking, prefix)
            problems, late = _without_late(comparison)
        check.worker_state_fits = not problems
        if partial and problems and not damage:
            check.notes.append(f"{anew} because those of {name} do not fit: {problems[0]}.")
            return
        check.problems += _first(problems, self._worker)
        if comparison is not None and not problems:
            prepared.tracking = tracking
            prepared.worker_matches = comparison.matched
            prepared.random_state = saved
            check.left_out += [*late, *_unsaved(prepared, saved.per_worker)]

    def _other_topology(self, record: CheckpointRecord | None) -> str:
        """Returns why the states of workers do not belong to these workers; empty if they do."""
        if record is None:
            return "has none."
        topology = self._group.topology
        if all(record.world.get(key) == topology[key] for key in ("workers", "replicas")):
            return ""
        saved = "was saved with another number of workers or replicas."
        if not record.per_worker:
            return saved
        count = len(record.per_worker)
        return f"{saved} {count} values differed between replicas and start from the shared value."

    def _tracking(
        self, prefix: Path, prepared: _Prepared, per_worker: list[str] | None
    ) -> tf.train.Checkpoint:
        worker = self._state.worker
        if per_worker is None:
            return worker.tracking_of_earlier_version(prefix, self._state.shared.model)
        return worker.tracking(prepared.found, per_worker)

    def _read(self, name: str, prepared: _Prepared, with_worker_state: bool) -> _Reading:
        """Restores what was checked, and proves the values of variables."""
        prefix, worker_prefix = self._run.root / name, self._worker_prefix(name)
        untracked_prefix = self._untracked_prefix(name)
        shared, worker = self._state.shared, self._state.worker
        own: set[int] = set()
        reading = _Reading()
        try:
            if prepared.is_partial:
                shared.restore_variables(prefix, prepared.matches)
            elif prepared.adoption is not None:
                prepared.adoption.restore(prefix)
            else:
                shared.restore(prefix)
            if prepared.adoption is not None:
                shared.set_step(prepared.adoption.step)
            restore_values(untracked_prefix, prepared.untracked)
            if with_worker_state and prepared.tracking and prepared.random_state:
                own = prepared.own
                reading.inputs = worker.restore(
                    worker_prefix, prepared.tracking, prepared.random_state
                )
            wrong = wrong_values(prepared.matches, prefix, own)
            if prepared.untracked:
                wrong += wrong_values(prepared.untracked, untracked_prefix, own)
            if own:
                wrong += wrong_values(prepared.worker_matches, worker_prefix)
        except (*LOCAL_FAILURES, AssertionError) as error:
            return _Reading(f"{self._worker}: {describe_failure(error)}")
        if wrong:
            return _Reading(f"{self._worker}: {wrong[0]} differs from the saved value")
        if prepared.objects is not None:
            worker.restore_objects(prepared.objects)
        return reading

    def _worker_prefix(self, name: str, index: int | None = None) -> Path:
        index = self._group.index if index is None else index
        return self._run.worker_state_directory(name) / f"worker-{index}"

    def _untracked_prefix(self, name: str) -> Path:
        return self._run.worker_state_directory(name) / UNTRACKED

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


def _unsaved(prepared: _Prepared, per_worker: list[str] | None) -> list[str]:
    """Returns a sentence for each untracked value that neither file of the checkpoint has.

    Those are objects that could not be saved, and variables that earlier versions did not save.
    """
    untracked = [one for one in prepared.found if not one.tracked]
    if per_worker is not None:
        unsaved = [o for o in untracked if not o.rule.is_variable and o.path not in per_worker]
    else:
        own = prepared.own
        unsaved = [o for o in untracked if id(raw_variable(o.thing)) not in own]
    return [f"{one.path} is missing in the checkpoint" for one in unsaved]


def _without_late(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Divides what does not fit: problems, and values of variables that do not exist yet."""
    late = [key for key in comparison.extra if key.startswith("replica_values/")]
    fitting = replace(comparison, extra=tuple(k for k in comparison.extra if k not in late))
    return fitting.problems, [f"{key} is in the checkpoint and not in the model" for key in late]


def _first(problems: list[str], worker: str) -> list[str]:
    shown = [f"{worker}: {problem}" for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return [*shown, f"{worker}: and {more} more"] if more > 0 else shown
