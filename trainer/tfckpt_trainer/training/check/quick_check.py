"""Checks in a run that trains whether its next steps repeat exactly after a restore in place.

The run saves in a directory of its own, trains a few steps, restores, and trains them again. The
first time, nothing of these steps is recorded, so that the run goes on as if it had trained them
once. Otherwise the check is like that of a script: the same records, compared by the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tfckpt_trainer.catalog.directory.save_directories import delete_checkpoint_of_check
from tfckpt_trainer.exactness.likely_causes import Cause, likely_cause
from tfckpt_trainer.exactness.step_differences import (
    StepDifference,
    describe_difference,
    first_difference,
    urgency,
)
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.check import CheckedStep, Pass
from tfckpt_trainer.rundir.records.exactness import NOT_COVERED, CheckSummary
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.training.check.causes import collect_facts
from tfckpt_trainer.training.check.digests import StateDigests, digest_of_batch, digits
from tfckpt_trainer.training.check.script_names import ScriptNames
from tfckpt_trainer.training.checkpoint.restores.restorer import Restorer
from tfckpt_trainer.training.checkpoint.saves.save_protocol import begin_record
from tfckpt_trainer.training.checkpoint.saves.saver import Saver
from tfckpt_trainer.training.checkpoint.state import Position, TrainingState
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import count


@dataclass(frozen=True)
class CheckOutcome:
    """How a quick check ended; equal on all workers.

    Attributes:
        summary: What it found; None if it could not compare.
        cause: The likely cause of a difference.
        problem: Why it could not compare, as a sentence.
    """

    summary: CheckSummary | None = None
    cause: Cause | None = None
    problem: str = ""


@dataclass(frozen=True)
class WorkerCheck:
    """What one worker found."""

    difference: StepDifference | None


OnOutcome = Callable[[CheckOutcome], None]
OnProgress = Callable[[str], object]


class QuickCheck:
    """Repeats a few steps of a run. All workers call every method together.

    Attributes:
        epoch_steps: Steps of an epoch, whose last one is not repeated; None without epochs.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        state: TrainingState,
        telemetry: Telemetry,
        saver: Saver,
    ) -> None:
        self._place = RunDirectory(run.check_directory)
        self._group = group
        self._state = state
        self._telemetry = telemetry
        self._saver = saver
        self._digests = StateDigests(state, is_chief=group.is_chief)
        self._steps = 0
        self._on_outcome: OnOutcome | None = None
        self._on_progress: OnProgress | None = None
        self._phase: Pass | None = None
        self._start = Position()
        self._saves = 0
        self._last = 0
        self._batch = ""
        self._trace: dict[tuple[Pass, int], CheckedStep] = {}
        self.epoch_steps: int | None = None

    @property
    def is_first_pass(self) -> bool:
        """Whether the present steps will be trained again, so that nothing of them counts."""
        return self._phase is Pass.FIRST

    def request(self, steps: int, on_outcome: OnOutcome, on_progress: OnProgress) -> str:
        """Asks for a check, which begins as soon as enough steps of an epoch are left.

        Args:
            steps: Steps to repeat.
            on_outcome: Called when it has ended.
            on_progress: Called with a sentence about each step.

        Returns:
            Why it is refused, as a sentence; empty if it is not.
        """
        if self._on_outcome is not None:
            return "Another check is in progress. Wait for its result."
        of_workers = self._group.all_gather(self._state.exactness)
        reasons = dict.fromkeys(
            of.reason for exactness in of_workers for of in exactness.inputs if of.reason
        )
        if reasons:
            return (
                f"Nothing was checked: resuming is known not to be exact, because "
                f"{'; '.join(reasons)}. The restore of a check would change the input."
            )
        if self.epoch_steps == 1:
            return "An epoch has one step, and a check does not repeat the end of an epoch."
        self._steps = min(steps, (self.epoch_steps or steps + 1) - 1)
        self._on_outcome, self._on_progress = on_outcome, on_progress
        return ""

    def begin_if_due(self, total_steps: int | None) -> None:
        """Saves and begins the first pass, if a check waits and enough steps follow.

        Args:
            total_steps: The step at which the run ends; None if it has no end.
        """
        if self._on_outcome is None or self._phase is not None:
            return
        self._group.join()
        step = self._state.position.step
        steps = self._steps if total_steps is None else min(self._steps, total_steps - step)
        if steps < 1:
            self._end(CheckOutcome(problem="The run is at its last step."))
        elif self.epoch_steps is None or self.epoch_steps - step % self.epoch_steps > steps:
            self._begin(step + steps)

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` it has to act after; None if no check runs."""
        if self._phase is None:
            return None
        # The first step after a restore says most about what is missing.
        return 1 if step == self._start.step else self._last - step

    def take_batch(self, batch: Any) -> None:
        """Records the input of the next call."""
        if self._phase is not None:
            self._batch = digest_of_batch(batch)

    def step_done(self, metrics: Mapping[str, float]) -> None:
        """Records the step of a call; then restores or compares if that is due.

        Args:
            metrics: What its last step reported.
        """
        if self._phase is None:
            return
        self._group.join()
        step = self._state.position.step
        self._record(metrics, self._telemetry.metrics.earlier)
        self._tell_progress(step)
        if step >= self._last:
            self.end_pass()

    def end_pass(self) -> None:
        """Ends the present pass: restores after the first, compares after the second.

        If the data ends in the first pass, it is shorter.
        """
        self._last = self._state.position.step
        if self._phase is not Pass.FIRST:
            self._compare()
            return
        with self._telemetry.heartbeat.doing(Activity.RESTORING, "for a check"):
            name = checkpoint_name(self._start.step, self._start.branch)
            outcome = Restorer(self._place, self._group, self._state).restore(name)
        if outcome.problems:
            problem = f"The restore in place was refused: {'; '.join(outcome.problems)}."
            self._end(CheckOutcome(problem=f"{problem} Training goes on."))
            return
        self._state.shared.set_saves(self._saves)
        self._state.position.go_back_to(self._start)
        self._state.user.restore(
            outcome.record, self._start.step, worker_restored=outcome.worker_restored
        )
        self._phase = Pass.IN_PLACE
        self._record({})

    def cancel(self, why: str) -> None:
        """Ends a check that cannot go on.

        Args:
            why: Why, as a sentence.
        """
        if self._on_outcome is not None:
            self._end(CheckOutcome(problem=why))

    def abandon(self) -> None:
        """Ends a check without an answer, after an error."""
        self._on_outcome = None
        self._end(CheckOutcome())

    def _tell_progress(self, step: int) -> None:
        if self._on_progress is not None:
            which = "first" if self._phase is Pass.FIRST else "second"
            done, all_ = step - self._start.step, self._last - self._start.step
            self._on_progress(f"Trained step {done} of {all_} for the {which} time.")

    def _begin(self, last: int) -> None:
        shared, position = self._state.shared, self._state.position
        self._start = position.copy()
        self._saves, self._last = shared.saves, last
        values, facts = self._state.user.collect(position.step, self._telemetry.heartbeat.facts())
        record = begin_record(self._start, "check", **values)
        if self._group.is_chief:
            with suppress(OSError):
                delete_checkpoint_of_check(self._place.root)
        with self._telemetry.heartbeat.doing(Activity.SAVING, "for a check"):
            outcome = self._saver.in_directory(self._place).save(record, facts)
        # It is no save of the run, whose next one has the number that it would have had.
        shared.set_saves(self._saves)
        if outcome.name is None:
            problem = f"No checkpoint can be saved: {outcome.problem.rstrip('.')}."
            self._end(CheckOutcome(problem=f"{problem} Training goes on."))
            return
        self._trace = {}
        self._phase = Pass.FIRST
        self._digests.find(ScriptNames())
        self._record({})
        steps = last - position.step
        self._telemetry.metrics.background = f"Checks {count(steps, 'step')}, trained twice."

    def _record(
        self, metrics: Mapping[str, float], before: Sequence[Mapping[str, float]] = ()
    ) -> None:
        phase, step = self._phase, self._state.position.step
        assert phase is not None
        for number, earlier in enumerate(before, start=step - len(before)):
            self._trace[phase, number] = CheckedStep(
                phase=phase, step=number, metrics=digits(earlier)
            )
        near = step <= self._start.step + 1
        reported = {str(value) for value in self._telemetry.metrics.newest.values()}
        values = ScriptNames().values if near else {}
        self._trace[phase, step] = CheckedStep(
            phase=phase,
            step=step,
            metrics=digits(metrics),
            batch=self._batch if metrics or step > self._start.step else "",
            state=self._digests.digest(),
            values={name: text for name, text in values.items() if text not in reported},
        )

    def _compare(self) -> None:
        """Compares the passes on each worker, and ends with the first difference of all."""
        mine = first_difference({self._group.index: self._trace}, Pass.IN_PLACE)
        if mine is not None:
            facts = collect_facts(
                self._group.topology,
                has_dataset=bool(self._batch),
                iterators=self._digests.iterators,
                inputs=self._state.worker.inputs.facts,
            )
            mine = replace(mine, facts=facts)
        of_workers = self._group.all_gather(WorkerCheck(mine))
        differences = [
            compared.difference for compared in of_workers if compared.difference is not None
        ]
        first = min(
            differences, key=lambda difference: (difference.step, urgency(difference)), default=None
        )
        summary = CheckSummary(
            at=time.time(),
            steps=self._last - self._start.step,
            difference=describe_difference(first).rstrip(".") if first is not None else "",
            workers=self._group.size,
            not_covered=list(NOT_COVERED),
        )
        self._end(CheckOutcome(summary, likely_cause(first) if first is not None else None))

    def _end(self, outcome: CheckOutcome) -> None:
        on_outcome, self._on_outcome, self._phase = self._on_outcome, None, None
        self._trace, self._batch = {}, ""
        self._telemetry.metrics.background = ""
        if self._group.is_chief:
            with suppress(OSError):
                delete_checkpoint_of_check(self._place.root)
        if on_outcome is not None:
            on_outcome(outcome)
