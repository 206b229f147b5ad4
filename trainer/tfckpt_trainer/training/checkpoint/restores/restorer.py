"""Restores a checkpoint in place, on all workers or on none, and proves the restored values."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.errors import DamagedFileError, TornRestoreError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.scripts.script_errors import describe_script_error
from tfckpt_trainer.training.checkpoint.restores.restore_check import (
    Prepared,
    Reading,
    RestoreCheck,
    find_damage,
    merge_problems,
    sound_index,
)
from tfckpt_trainer.training.checkpoint.restores.worker_restore import WorkerRestore
from tfckpt_trainer.training.checkpoint.saves.save_protocol import LOCAL_FAILURES, describe_failure
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.state.adapted import counters
from tfckpt_trainer.training.state.adoption import plan_adoption
from tfckpt_trainer.training.state.comparison import (
    StateComparison,
    assign_values,
    stored_values,
    wrong_values,
)
from tfckpt_trainer.training.state.variables import ReplicaRule
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


@contextmanager
def changing_state(name: str) -> Iterator[None]:
    """Turns an error that leaves the state half restored into `TornRestoreError`.

    An error of the script, such as in its `load_state_dict`, is raised as it is: it ends training.

    Args:
        name: The checkpoint that is restored.
    """
    try:
        yield
    except tf.errors.OpError:
        raise
    except Exception as error:
        if describe_script_error(error).line is not None:
            raise
        what = str(error) if isinstance(error, TornRestoreError) else describe_script_error(error)
        traceback.print_exc()
        raise TornRestoreError(f"The restore of {name} failed halfway: {what}") from error


@dataclass(frozen=True)
class RestoreOutcome:
    """The result of a restore; equal on all workers.

    Attributes:
        problems: Why it was refused, with the workers if not all; empty if it was not.
        damaged: Whether it was refused because of damaged files and not because of the model. An
            older checkpoint may work then.
        notes: What was not restored, and why that is acceptable, by worker.
        variables: Number of variables that were restored and proven equal on every worker.
        seconds: How long the restore took.
        record: The record of the checkpoint, if there is one.
        worker_restored: Whether the state of each worker was restored too.
        left_out: What a partial restore did not restore, and why.
        adopted: What was taken from where in a checkpoint that another program saved.
        inputs: What was done with each input pipeline that is not at its exact position, as a
            clause.
        input_starts_over: Whether an input pipeline is not at the position that was saved.
    """

    problems: tuple[str, ...] = ()
    damaged: bool = False
    notes: tuple[tuple[str, ...], ...] = ()
    variables: int = 0
    seconds: float = 0.0
    record: CheckpointRecord | None = None
    worker_restored: bool = False
    left_out: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    input_starts_over: bool = False

    @property
    def input_words(self) -> str:
        """Sentences about input pipelines that are not at their exact position, or nothing."""
        return "".join(f" The input pipeline {clause}." for clause in self.inputs)

    @property
    def notes_with_workers(self) -> list[str]:
        """What was not restored, with the worker."""
        return [f"worker {index}: {note}" for index, of in enumerate(self.notes) for note in of]

    @property
    def note_words(self) -> str:
        """Sentences about what was not restored, the same of several workers once, or nothing."""
        return "".join(f" {note}" for note in dict.fromkeys(chain(*self.notes)))


class Restorer:
    """Restores checkpoints of one run. All workers call `restore` together."""

    def __init__(self, run: RunDirectory, group: WorkerGroup, state: TrainingState) -> None:
        self._run = run
        self._group = group
        self._state = state
        self._workers = WorkerRestore(run, group, state)
        self._worker = f"worker {group.index}"

    def restore(self, name: str, *, partial: bool = False) -> RestoreOutcome:
        """Restores checkpoint `name` on all workers, or changes none of them.

        First, every worker compares the checkpoint with its live objects, and reads the values
        with their checksums, or verifies the files. If a worker finds a problem, nothing is
        changed. Then all workers assign or read the values. Each compares every variable in
        memory, on every replica, with the checksums in the index. On GPUs, checksums compare the
        other replicas with the first.

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
        problems = merge_problems(checks)
        if problems:
            damaged = any(checked.damaged for checked in checks)
            return RestoreOutcome(problems=tuple(problems), damaged=damaged)
        # The state of the workers is all or nothing too: if half of them went back to their input
        # position, some examples would be repeated and others skipped.
        with_worker_state = all(checked.worker_state_fits for checked in checks)
        with changing_state(name):
            reading = self._read(name, prepared, with_worker_state)
            readings = self._group.all_gather(reading)
            failures = [read.failure for read in readings if read.failure]
            if failures:
                raise TornRestoreError("; ".join(failures))
            # A position that one worker lacks would have the others repeat or skip its examples.
            unfit = {name for read in readings for name in read.inputs.unfit}
            self._workers.start_over(sorted(unfit - set(reading.inputs.unfit)), prepared)
        return RestoreOutcome(
            notes=tuple(tuple(checked.notes) for checked in checks),
            variables=len(prepared.matches) + len(prepared.untracked),
            record=prepared.record,
            worker_restored=with_worker_state,
            left_out=tuple(checks[0].left_out),
            adopted=prepared.adoption.notes if prepared.adoption is not None else (),
            inputs=tuple(dict.fromkeys(clause for read in readings for clause in read.inputs.done)),
            input_starts_over=not with_worker_state
            or any(read.inputs.starts_over for read in readings),
        )

    def _check(self, name: str, *, partial: bool) -> tuple[RestoreCheck, Prepared]:
        check, prepared = RestoreCheck(), Prepared()
        try:
            prefix = self._run.root / name
            prepared.record, prepared.is_foreign = self._record(name)
            prepared.found = self._state.shared.find()
            if not (partial or prepared.is_foreign):
                prepared.index = sound_index(prefix)
            damage = find_damage(prefix) if prepared.index is None else []
            problems = damage or self._check_shared(name, check, prepared, partial=partial)
            if prepared.index is not None:
                damage = self._read_ahead(prefix, prepared, fits=not problems)
            check.damaged = bool(damage)
            problems = damage or problems
            if not problems:
                problems = self._workers.check_untracked(name, check, prepared)
            check.problems += problems
            if not problems:
                self._workers.check_worker_state(name, check, prepared, partial=partial)
                self._workers.check_objects(name, check, prepared)
                self._workers.check_adapted(name, check, prepared, partial=partial)
                check.notes += self._uncompared(prepared)
        except LOCAL_FAILURES as error:
            check.damaged = True
            check.problems.append(describe_failure(error))
        return check, prepared

    def _read_ahead(self, prefix: Path, prepared: Prepared, *, fits: bool) -> list[str]:
        """Reads all values before any is changed, if that is all that the checkpoint holds.

        TensorFlow compares their checksums. Otherwise the files are verified, and read later.

        Returns:
            What is damaged.
        """
        if fits and prepared.is_whole and not self._group.has_parameter_servers:
            with suppress(*LOCAL_FAILURES):
                prepared.values = stored_values(prefix, prepared.matches)
                return []
        return find_damage(prefix)

    def _uncompared(self, prepared: Prepared) -> list[str]:
        """Returns a sentence for each object that is restored without a proof; on the chief."""
        if not self._group.is_chief:
            return []
        unused = counters(one.thing for one in prepared.found.adapted)
        return [
            f"{state.path} ({type(state.thing).__name__}) keeps its value outside variables; it "
            "was restored and not compared."
            for state in prepared.found
            if state.rule is ReplicaRule.OTHER and id(state.thing) not in unused
        ]

    def _check_shared(
        self, name: str, check: RestoreCheck, prepared: Prepared, *, partial: bool
    ) -> list[str]:
        """Compares the shared state; returns what does not fit and may not be left out."""
        prefix = self._run.root / name
        shared = self._state.shared
        if prepared.is_foreign:
            prepared.adoption = plan_adoption(shared.checkpoint, prefix)
            comparison = prepared.adoption.comparison
        else:
            comparison = shared.compare(prefix, prepared.index)
            # Objects that keep their values elsewhere are restored by TensorFlow alone.
            prepared.is_whole = comparison.is_whole and all(
                state.rule.is_variable for state in prepared.found if state.tracked
            )
        prepared.matches = comparison.matched
        if not comparison.problems or not partial:
            check.notes += self._changed_optimizers(comparison)
            return comparison.summary
        if not comparison.matched:
            return [f"nothing in {name} fits this model", *comparison.summary]
        check.left_out += comparison.problems
        prepared.is_partial = True
        return []

    def _changed_optimizers(self, comparison: StateComparison) -> list[str]:
        """Returns a note for each optimizer that takes over the state of another; on the chief."""
        changes = comparison.optimizers if self._group.is_chief else ()
        return [f"{_capitalized(change.words)}, and takes over its state." for change in changes]

    def _read(self, name: str, prepared: Prepared, with_worker_state: bool) -> Reading:
        """Restores what was checked, and proves the values of variables."""
        prefix, shared = self._run.root / name, self._state.shared
        reading = Reading()
        try:
            if prepared.values is not None:
                assign_values(prepared.matches, prepared.values)
            elif prepared.is_partial:
                shared.restore_variables(prefix, prepared.matches)
            elif prepared.adoption is not None:
                # By name: what the script makes later is read then.
                prepared.adoption.restore(prefix)
            else:
                shared.restore(prefix, by_name=self._group.has_parameter_servers)
            if prepared.adoption is not None:
                shared.set_step(prepared.adoption.step)
            reading.inputs, own = self._workers.restore(
                name, prepared, with_worker_state=with_worker_state
            )
            wrong = wrong_values(
                prepared.matches, prefix, own, index=prepared.index, values=prepared.values
            )
            wrong += self._workers.wrong_values(name, prepared, own)
        except (*LOCAL_FAILURES, AssertionError) as error:
            return Reading(f"{self._worker}: {describe_failure(error)}")
        if wrong:
            return Reading(f"{self._worker}: {wrong[0]} differs from the saved value")
        self._workers.restore_objects(prepared)
        return reading

    def _record(self, name: str) -> tuple[CheckpointRecord | None, bool]:
        """Returns the record of a checkpoint, and whether another program saved its values."""
        try:
            record = load_if_exists(self._run.record(name), CheckpointRecord)
        except DamagedFileError:
            return None, False
        if record is None:
            return None, not self._run.record_copy(name).exists()
        # One that was made from those of another program has no world, and values alone.
        is_foreign = record.derived is not None and not record.world
        return None if is_foreign else record, is_foreign


def _capitalized(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}"
