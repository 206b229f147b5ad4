"""What a run does between two calls of its step function."""

from __future__ import annotations

from functools import partial
from typing import Any

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import PlannedSkip
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.training.check.quick_check import QuickCheck
from tfckpt_trainer.training.check.session import CheckSession
from tfckpt_trainer.training.checkpoint.saves.default_saves import (
    AT_END_OF_EPOCH,
    EVERY_TEN_MINUTES,
)
from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveOutcome
from tfckpt_trainer.training.checkpoint.saves_and_restores import SavesAndRestores
from tfckpt_trainer.training.commands.handler import Trainer
from tfckpt_trainer.training.commands.handlers import CommandHandlers
from tfckpt_trainer.training.commands.pause import stay_paused
from tfckpt_trainer.training.guards.guards_in_force import GuardsInForce
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.coordinator import Coordinator
from tfckpt_trainer.training.loop.run_options import RunOptions
from tfckpt_trainer.training.loop.run_state import LiveRunState
from tfckpt_trainer.training.loop.save_schedule import (
    EverySteps,
    Improvement,
    OwnTrigger,
    SaveSchedule,
    Trigger,
    steps_to_multiple,
)
from tfckpt_trainer.training.steps.dataset_end import DatasetEnd
from tfckpt_trainer.training.steps.step_functions import CallLength
from tfckpt_trainer.training.telemetry.step_metrics import Call
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import count


class BetweenCalls:
    """Reads the input of calls and counts their steps; saves, checks and obeys when that is due.

    All workers call every method together, unless it says otherwise.

    Attributes:
        total_steps: The step after which training ends; None without an end.
        has_stepped: Whether this process has done a step.
        coordinator: Takes requests of all workers.
        poller: Takes commands.
        guards: Rules that act without a person.
        quick_check: Repeats a few steps of this run on request.
        check: Records what this process trains, if a check started it.
        length: Decides how many steps the next call runs.
        dataset_end: Agrees on the end of the data; None without a dataset.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        state: LiveRunState,
        checkpoints: SavesAndRestores,
        options: RunOptions,
    ) -> None:
        saved, saves, restores = state.saved, checkpoints.saves, checkpoints.restores
        self._group = group
        self._telemetry = telemetry
        self._inputs = state.inputs
        self._saves = saves
        self._position = saved.position
        self._skips = saved.user.skips
        self.total_steps = options.total_steps
        self.has_stepped = False
        words = EVERY_TEN_MINUTES if options.by_default is not None else ""
        schedule = SaveSchedule(self._triggers(options), options.save_every_seconds, words)
        telemetry.metrics.saves.set_intervals(options.save_every_steps, options.save_every_seconds)
        self.poller = CommandPoller(run, telemetry)
        self.guards = GuardsInForce(
            run,
            group,
            telemetry,
            options.guards,
            saved.user.hyperparameters,
            (lambda: saved.worker.inputs.elements) if state.inputs is not None else None,
        )
        self.quick_check = QuickCheck(run, group, saved, telemetry, checkpoints.saver)
        self._commands = CommandHandlers(
            Trainer(
                run,
                group,
                telemetry,
                saves,
                restores,
                self.quick_check,
                saved.user.hyperparameters,
                saved.user.skips,
                reads_input=state.inputs is not None,
                guards=self.guards,
                total_steps=lambda: self.total_steps,
            )
        )
        self.coordinator = Coordinator(
            group, telemetry, saves, schedule, self.poller, self._commands
        )
        self.check = (
            CheckSession(options.order, group, saved, telemetry, saves, restores)
            if options.order is not None
            else None
        )
        self.length = CallLength(
            [
                lambda _: None if self.has_stepped else 1,
                lambda step: self.total_steps and self.total_steps - step,
                lambda step: steps_to_multiple(step, self.quick_check.epoch_steps),
                schedule.steps_left,
                saved.user.hyperparameters.steps_left,
                saved.user.skips.steps_left,
                self.quick_check.steps_left,
                lambda step: self.check.steps_left(step) if self.check else None,
            ]
        )
        self.dataset_end = (
            DatasetEnd(group, state.inputs, telemetry, options.on_dataset_end, self.length)
            if state.inputs is not None
            else None
        )
        saved.user.after_restore.append(lambda: self.guards.restored(self._position.step))
        if self.dataset_end is not None:
            saved.user.after_restore.append(self.dataset_end.restored)

    def _triggers(self, options: RunOptions) -> list[Trigger]:
        triggers: list[Trigger] = []
        if options.save_on_improvement is not None:
            rule = options.save_on_improvement
            triggers.append(Improvement(rule, self._group, self._position))
        triggers += [OwnTrigger(own, self._group, self.note) for own in options.save_when]
        if options.save_every_steps is not None:
            words = AT_END_OF_EPOCH if options.by_default is not None else ""
            triggers.append(EverySteps(options.save_every_steps, words))
        return triggers

    def note(self, message: str) -> None:
        """Writes a line to the event log; any worker may call it, and the chief writes."""
        # Within a step, the metrics may be one step behind.
        position = self._position
        self._telemetry.note(EventKind.NOTE, message, step=position.step, branch=position.branch)

    def next_input(self) -> tuple[list[Any], float] | None:
        """Returns the inputs of the next call and the seconds they took; None after the last."""
        step = self._position.step
        steps = self.length.after(step)
        if self.dataset_end is None:
            return list(range(step, step + steps)), 0.0
        for skip in self._skips.take_due(step):
            self._skip(self.dataset_end, skip)
        return self.dataset_end.next(steps)

    def _skip(self, dataset: DatasetEnd, skip: PlannedSkip) -> None:
        dropped = dataset.skip(skip.batches)
        self._telemetry.note(
            EventKind.NOTE,
            f"Dropped the input of {count(dropped, 'step')} on each worker, which no step trains."
            if dropped == skip.batches
            else f"Dropped the input of {count(dropped, 'step')}, of {skip.batches:,} to drop: "
            "then the dataset ended.",
            by=skip.by,
            step=self._position.step,
        )

    def take_batch(self, batch: Any) -> None:
        """Shows checks the input of the next call."""
        if self._inputs is not None:
            self.quick_check.take_batch(batch)
            if self.check is not None:
                self.check.take_batch(batch)

    def call_done(self, call: Call) -> None:
        """Counts the steps of a call, and does what is due after it."""
        may_repeat = self.quick_check.is_first_pass
        step = self._count(call)
        # Before a save of this step, which holds what the next one uses.
        self._commands.step_done()
        fresh = self._telemetry.metrics.fresh
        self._commands.advance_check(partial(self.quick_check.step_done, fresh))
        if may_repeat:
            self.coordinator.set_aside(step, call, self._position.step)
            self._settle_first_pass()
        else:
            self.coordinator.call_done(step, call)
        self._commands.advance_check(partial(self.quick_check.begin_if_due, self.total_steps))
        if self.check is not None:
            self.check.step_done()
            self._end_check(self.check)

    def opened(self) -> None:
        """Carries out what is due before the first step."""
        self.guards.go_on(self._position.step)
        stay_paused(self._commands.trainer)
        self._commands.step_done()

    def save_after_error(self, call: Call) -> SaveOutcome:
        """Counts the steps of a call that an error of the script followed, and saves them."""
        self._position.step += call.steps
        return self.coordinator.save_after_error(self._position.step, call)

    def end(self, reason: str = "", *, may_go_on: bool = True) -> None:
        """Ends training, because all its steps are done or there is no more input.

        Args:
            reason: Why, as a clause; empty if all steps are done.
            may_go_on: Whether training can go on if a guard has gone back from the last steps.
        """
        if self.check is not None:
            self.check.data_ended()
            self._end_check(self.check)
        elif self.quick_check.is_first_pass:
            # The steps that are left are trained again; then training ends here once more.
            self._commands.advance_check(self.quick_check.end_pass)
            self._settle_first_pass()
        else:
            self.quick_check.cancel("The data ended during the check.")
            self.coordinator.finish(reason, may_go_on=may_go_on)

    def stop(self) -> None:
        """Stops the run after this step, with a save, because the script says so."""
        if self.quick_check.is_first_pass:
            # The script says so again when it repeats the step.
            self.coordinator.set_stop_aside(Ending.STOPPED)
        else:
            self.coordinator.request_stop(Ending.STOPPED)

    def finish(self, reason: str) -> None:
        """Ends the run as finished after this step, with a save, because the script says so.

        Args:
            reason: Why, as a clause.
        """
        if self.quick_check.is_first_pass:
            self.coordinator.set_stop_aside(Ending.FINISHED, reason)
        else:
            self.coordinator.request_finish(reason)

    def close(self) -> None:
        """Finishes what goes on when the run is over."""
        self._commands.ended()
        self._saves.finish_all()

    def _count(self, call: Call) -> int:
        """Returns the steps that are done with a call."""
        metrics = self._telemetry.metrics
        is_first, self.has_stepped = not self.has_stepped, True
        self._position.step += call.steps
        if is_first:
            metrics.step, metrics.activity = self._position.step, Activity.TRAINING
            self._telemetry.heartbeat.nudge()
        if self._inputs and self._inputs.examples and metrics.examples_per_step is None:
            metrics.examples_per_step = self._inputs.examples * self._group.replicas
        return self._position.step

    def _settle_first_pass(self) -> None:
        """Forgets the steps of a quick check that are repeated, or counts them if it ended."""
        if not self.quick_check.is_first_pass:
            self.coordinator.settle(self._position.step)

    def _end_check(self, check: CheckSession) -> None:
        if check.is_done:
            self.coordinator.ending = self.coordinator.ending or Ending.STOPPED
