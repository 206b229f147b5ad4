"""Restores what is in the workers' directory of a checkpoint, beside the shared state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.restores.restore_check import (
    Prepared,
    RestoreCheck,
    find_damage,
)
from tfckpt_trainer.training.checkpoint.state import RandomState, SavedWorkerState, TrainingState
from tfckpt_trainer.training.pipelines.input_state import RestoredInputs
from tfckpt_trainer.training.state.adapted import compare_adapted
from tfckpt_trainer.training.state.comparison import StateComparison, compare, wrong_values
from tfckpt_trainer.training.state.values_by_path import (
    UNTRACKED,
    compare_values,
    restore_values,
    untracked_variables,
)
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import count, noun


class WorkerRestore:
    """Compares and restores the files in the workers' directory of a checkpoint.

    Those are the state of each worker, and variables that a `tf.train.Checkpoint` does not track.
    """

    def __init__(self, run: RunDirectory, group: WorkerGroup, state: TrainingState) -> None:
        self._run = run
        self._group = group
        self._state = state

    def check_untracked(self, name: str, check: RestoreCheck, prepared: Prepared) -> list[str]:
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
            check.left_out += [f"{state.path} is missing in the checkpoint" for state in wanted]
            return []
        damage = find_damage(prefix, name)
        check.damaged = bool(damage)
        if damage:
            return damage
        comparison = compare_values(wanted, prefix)
        prepared.untracked = comparison.matched
        check.left_out += comparison.problems
        return []

    def check_worker_state(
        self, name: str, check: RestoreCheck, prepared: Prepared, *, partial: bool
    ) -> None:
        """Compares the state of this worker; says why if it starts over."""
        starting_over = "Input position and random state start over"
        other = self._other_topology(prepared.record)
        if other:
            check.notes.append(f"{starting_over} because {name} {other}")
            return
        prefix = self._worker_prefix(name)
        if not index_path(prefix).exists():
            check.damaged = True
            check.problems.append(
                f"the state {prefix.name} of {name} is missing in {prefix.parent}"
            )
            return
        damage = find_damage(prefix, name)
        check.damaged = bool(damage)
        problems = damage
        late: list[str] = []
        comparison = None
        if not damage:
            saved = self._state.worker.load_random_state(prefix)
            tracking = self._state.worker.tracking(prepared.found, saved.per_worker)
            comparison = compare(tracking, prefix)
            problems, late = _without_late(comparison)
        check.worker_state_fits = not problems
        if partial and problems and not damage:
            check.notes.append(
                f"{starting_over} because those of {name} do not fit: {problems[0]}."
            )
            return
        check.problems += problems
        if comparison is not None and not problems:
            prepared.tracking = tracking
            prepared.worker_matches = comparison.matched
            prepared.random_state = saved
            check.left_out += [*late, *_unsaved(prepared, saved.per_worker)]

    def check_adapted(
        self, name: str, check: RestoreCheck, prepared: Prepared, *, partial: bool
    ) -> None:
        """Compares what was adapted before training with what this worker had."""
        saved = prepared.random_state
        prefix = self._untracked_prefix(name)
        comparison = compare_adapted(
            self._state.adapted(prepared.found),
            saved.adapted if saved is not None else {},
            prefix if index_path(prefix).exists() else None,
        )
        prepared.adapted = comparison.changed
        check.left_out += [f"{path} is missing in the checkpoint" for path in comparison.missing]
        if partial:
            check.left_out += comparison.problems
        else:
            check.problems += comparison.problems
        if self._group.is_chief:
            check.notes += [
                f"{one.path} was adapted to other data, and has the saved values again."
                for one, _ in comparison.changed
            ]

    def check_objects(self, name: str, check: RestoreCheck, prepared: Prepared) -> None:
        """Finds the states of objects of the script: this worker's, or else the chief's."""
        saved = prepared.random_state
        chiefs = SavedWorkerState.random_state_path(self._worker_prefix(name, 0))
        if saved is None and chiefs.exists():
            saved = self._state.worker.load_random_state(self._worker_prefix(name, 0))
        prepared.objects = saved or RandomState(python=[], numpy=[])
        check.left_out += [
            f"extra[{key!r}] is missing in the checkpoint"
            for key in self._state.worker.missing_objects(prepared.objects)
        ]

    def restore(
        self, name: str, prepared: Prepared, *, with_worker_state: bool
    ) -> tuple[RestoredInputs, set[int]]:
        """Restores what was checked, but for the objects of the script.

        Returns:
            What was done with the input pipelines, and the identities of the variables that took
            the values of this worker.
        """
        restore_values(self._untracked_prefix(name), prepared.untracked)
        for one, contents in prepared.adapted:
            one.assign(contents)
        if not (with_worker_state and prepared.tracking and prepared.random_state):
            return RestoredInputs(), set()
        restored = self._state.worker.restore(
            self._worker_prefix(name), prepared.tracking, prepared.random_state
        )
        return restored, prepared.own

    def start_over(self, names: Collection[str], prepared: Prepared) -> None:
        """Starts input pipelines over, because their positions did not fit on another worker."""
        if names and prepared.random_state is not None:
            inputs = self._state.worker.inputs
            inputs.start_over(names, prepared.random_state.elements_read)

    def wrong_values(self, name: str, prepared: Prepared, own: set[int]) -> list[str]:
        """Returns the names of restored variables that differ from the saved value."""
        wrong = []
        if prepared.untracked:
            wrong += wrong_values(prepared.untracked, self._untracked_prefix(name), own)
        if own:
            wrong += wrong_values(prepared.worker_matches, self._worker_prefix(name))
        return wrong

    def restore_objects(self, prepared: Prepared) -> None:
        """Restores the objects of the script that save and restore themselves."""
        if prepared.objects is not None:
            self._state.worker.restore_objects(prepared.objects)

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
        differed = len(record.per_worker)
        starts = f"{noun(differed, 'starts', 'start')} from the shared value"
        return f"{saved} {count(differed, 'value')} differed between replicas and {starts}."

    def _worker_prefix(self, name: str, index: int | None = None) -> Path:
        index = self._group.index if index is None else index
        return self._run.worker_state_directory(name) / f"worker-{index}"

    def _untracked_prefix(self, name: str) -> Path:
        return self._run.worker_state_directory(name) / UNTRACKED


def _unsaved(prepared: Prepared, per_worker: Collection[str]) -> list[str]:
    """Returns a sentence for each untracked object that could not be saved."""
    return [
        f"{state.path} is missing in the checkpoint"
        for state in prepared.found
        if not (state.tracked or state.rule.is_variable or state.path in per_worker)
    ]


def _without_late(comparison: StateComparison) -> tuple[list[str], list[str]]:
    """Divides what does not fit: problems, and values of variables that do not exist yet."""
    late = [key for key in comparison.extra if key.startswith("replica_values/")]
    fitting = replace(comparison, extra=tuple(k for k in comparison.extra if k not in late))
    return fitting.summary, [f"{key} is in the checkpoint and not in the model" for key in late]
