"""Synchronizes the workers between calls, so that all act on a request at the same step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.training.checkpoint.saves.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.saves.save_protocol import AFTER_ERROR, SaveOutcome
from tfckpt_trainer.training.commands.handler import CommandAnswer
from tfckpt_trainer.training.commands.handlers import CommandHandlers
from tfckpt_trainer.training.guards.guards_in_force import Proposal
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.guard_firings import GuardFirings
from tfckpt_trainer.training.loop.save_schedule import SaveSchedule
from tfckpt_trainer.training.telemetry.step_metrics import Call
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

RequestT = TypeVar("RequestT")

INTERRUPTED = "interrupted with ctrl+c"
"""The reason of a stop by SIGINT."""

MOST_COMMANDS = 10
"""Commands that are carried out between two steps; others wait for the next step."""

PAUSE_POLL_SECONDS = 0.05
"""How long paused workers sleep between two synchronizations."""


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker asks all workers to do at a synchronization.

    Attributes:
        stop: Why to end the run; None to go on.
        stop_reason: Who or what asked for that; empty if unknown.
        save_trigger: Why to save; empty for no save.
        finish_background_save: Whether a background save is done.
        commands: On the chief, the commands to carry out.
        guards: What guards on this worker propose.
        has_disk_space: On the chief, whether a save that training waits for fits now.
    """

    stop: Ending | None = None
    stop_reason: str = ""
    save_trigger: str = ""
    finish_background_save: bool = False
    commands: list[Command] = []
    guards: list[Proposal] = []
    has_disk_space: bool = False


@dataclass(frozen=True)
class CallAside:
    """A call that may be repeated, and what its steps reported; see `Coordinator.set_aside`."""

    step: int
    call: Call
    trigger: str
    metrics: Mapping[str, float]
    earlier: Sequence[Mapping[str, float]]


class Coordinator:
    """Acts on requests between steps. All workers call every method together.

    A synchronization costs a collective, so it happens only if a worker asks for it. Each call
    exchanges one flag for that, in the all-reduce that carries the metrics.

    Attributes:
        ending: Why the run is over; None while it goes on.
        finish_reason: Why it is finished, as a clause; empty if all its steps are done.
    """

    def __init__(
        self,
        group: WorkerGroup,
        telemetry: Telemetry,
        saves: SaveManager,
        schedule: SaveSchedule,
        poller: CommandPoller,
        commands: CommandHandlers,
    ) -> None:
        self._group = group
        self._telemetry = telemetry
        self._saves = saves
        self._schedule = schedule
        self._poller = poller
        self._commands = commands
        self._guards = commands.trainer.guards
        self._firings = GuardFirings(commands.trainer)
        self._loop = commands.loop
        self._waits_for_disk_space = False
        self._waits_to_end = False
        self._sync_agreed: bool | None = None
        # Signal handlers and other threads append to these.
        self._stops: deque[tuple[Ending, str]] = deque()
        self._save_triggers: deque[str] = deque()
        self._set_aside: list[CallAside] = []
        self._stops_aside: list[tuple[Ending, str]] = []
        self.ending: Ending | None = None
        self.finish_reason = ""

    @property
    def needs_sync(self) -> bool:
        """Whether this worker asks for a synchronization after this step."""
        return (
            self._poller.has_commands
            or bool(self._stops)
            or bool(self._save_triggers)
            or self._saves.needs_sync
            or self._guards.has_proposals
            or (self._group.is_chief and bool(self._schedule.timed_trigger))
        )

    def call_computed(self, steps: Sequence[Mapping[str, float]], needs_sync: bool) -> None:
        """Takes the result of a step function.

        Args:
            steps: For each step the means over all replicas.
            needs_sync: Whether any worker asks for a synchronization.
        """
        metrics = self._telemetry.metrics
        *metrics.earlier, last = steps
        metrics.report(last)
        metrics.reduced = frozenset(last)
        self._sync_agreed = needs_sync

    def request_stop(self, ending: Ending, reason: str = "") -> None:
        """Stops all workers after this step, with a save.

        Any thread or signal handler of any worker may call it.

        Args:
            ending: Why the run ends.
            reason: Who or what asked for it, for the event log.
        """
        self._stops.append((ending, reason))

    def request_save(self, trigger: str) -> None:
        """Makes all workers save after this step; called like `request_stop`."""
        self._save_triggers.append(trigger)

    def request_finish(self, reason: str) -> None:
        """Ends the run as finished after this step; all workers call it in the same step.

        Args:
            reason: Who or what ended it, as a clause.
        """
        self.request_stop(Ending.FINISHED, reason)
        self._sync_agreed = True

    def call_done(self, step: int, call: Call, trigger: str | None = None) -> None:
        """Handles saves, commands and pauses that are due after a call.

        Args:
            step: Steps done.
            call: How many of them it ran, and how long they took.
            trigger: Why a save is due by steps or metrics, empty if none is; None to ask.
        """
        # A step function brought the answer with the metrics; Keras's own loop has none.
        agreed, self._sync_agreed = self._sync_agreed, None
        if agreed is None:
            agreed = self._group.any(self.needs_sync)
        stays_paused = bool(self._loop.paused_before)
        if agreed or stays_paused or self._schedule.decides_after(step, call.steps):
            began = time.perf_counter()
            self._group.join()
            self._telemetry.metrics.wait_for_step()
            call = call._replace(seconds=call.seconds + time.perf_counter() - began)
        if trigger is None:
            trigger = self._schedule.trigger_after(step, call.steps, self._telemetry.metrics)
        self._telemetry.metrics.call_done(step, call)
        self._telemetry.save_overhead.call_done(call)
        if trigger:
            self._save(trigger)
        if stays_paused:
            self._pause_again()
        if agreed:
            self._synchronize()
        if self._loop.paused:
            self._wait_for_resume()

    def save_after_error(self, step: int, call: Call) -> SaveOutcome:
        """Saves a step after which an error ended the loop; the arguments are of `call_done`."""
        # For the state of triggers in the checkpoint, such as the best value.
        self._schedule.trigger_after(step, call.steps, self._telemetry.metrics)
        self._telemetry.metrics.call_done(step, call)
        return self._saves.save_last(AFTER_ERROR)

    def set_aside(self, step: int, call: Call, position: int) -> None:
        """Takes a call whose steps may be trained again, until `settle` is called.

        Args:
            step: Steps done.
            call: How many of them it ran, and how long they took.
            position: Steps done, without those that are already known to be repeated.
        """
        metrics, self._sync_agreed = self._telemetry.metrics, None
        # A trigger may have state in the checkpoint. So it is asked in both passes of a check, but
        # not when the state is already that of an earlier step.
        is_asked = step <= position
        trigger = self._schedule.trigger_after(step, call.steps, metrics) if is_asked else ""
        aside = CallAside(step, call, trigger, metrics.fresh, metrics.earlier)
        self._set_aside.append(aside)
        metrics.fresh, metrics.earlier = {}, ()

    def set_stop_aside(self, ending: Ending, reason: str = "") -> None:
        """Takes a stop that the script asks for in a step that will be trained again."""
        self._stops_aside.append((ending, reason))

    def settle(self, position: int) -> None:
        """Counts the calls that were set aside, and forgets those that are repeated.

        Args:
            position: Steps done, without those that are repeated.
        """
        metrics = self._telemetry.metrics
        kept = [aside for aside in self._set_aside if aside.step <= position]
        stops, self._stops_aside, self._set_aside = self._stops_aside, [], []
        if kept:
            self._stops.extend(stops)
        for aside in kept:
            metrics.fresh, metrics.earlier = aside.metrics, aside.earlier
            # Requests wait: the position is that of the last step.
            self._sync_agreed = aside is kept[-1]
            self.call_done(aside.step, aside.call, aside.trigger)

    @property
    def requested_finish(self) -> str:
        """Why the run was asked to end as finished; empty if it was not."""
        return next((reason for end, reason in self._stops if end is Ending.FINISHED), "")

    def finish(self, reason: str = "", *, may_go_on: bool = True) -> None:
        """Saves at the end of training, and ends the run, unless a guard goes back.

        Args:
            reason: Why training ended, as a clause; empty if all its steps are done.
            may_go_on: Whether training can go on if a guard has gone back from the last steps.

        Raises:
            TfckptError: The last steps could not be saved.
        """
        if self._guards_go_back() and may_go_on:
            return
        if self.ending is None:
            self._save_last("end")
        if self.ending is None:
            self.finish_saved(reason)

    def _guards_go_back(self) -> bool:
        """Lets guards act that fire in the last steps; returns whether one went back."""
        self._group.join()
        self._telemetry.metrics.settle()
        step = self._telemetry.metrics.step
        if self._group.any(self._guards.has_proposals):
            self._synchronize()
            if self._loop.paused:
                self._wait_for_resume()
        return self._telemetry.metrics.step < step

    def finish_saved(self, reason: str) -> None:
        """Ends a run whose last step is saved; see `finish`."""
        self.ending, self.finish_reason = Ending.FINISHED, reason

    def _save_last(self, trigger: str) -> None:
        """Saves the last step; waits for room on the disk until someone ends the run.

        Raises:
            TfckptError: The step could not be saved.
        """
        outcome = self._saves.save_last(trigger)
        while outcome.name is None and outcome.disk_full and self.ending is None:
            self._waits_to_end = True
            self._pause_for_disk_space()
            self._wait_for_resume()
            outcome = self._saves.save_last(trigger) if self.ending is None else outcome
        if outcome.name is None and self.ending is None:
            raise TfckptError(f"The last steps could not be saved: {outcome.problem}")

    def _pause_again(self) -> None:
        by, self._loop.paused_before = self._loop.paused_before, ""
        self._loop.paused = True
        self._loop.pause_reason = f"{by} paused the run before it was restarted."
        message = "Paused again after the restart; resume to continue."
        self._telemetry.note(EventKind.PAUSE, message, by=by)

    def _pause_for_disk_space(self) -> None:
        self._waits_for_disk_space = self._loop.paused = True
        self._telemetry.metrics.saves.waits_for_room = True
        self._telemetry.note(EventKind.PAUSE, "Paused: the disk has no room for a checkpoint.")

    def _wait_for_resume(self) -> None:
        metrics, heartbeat = self._telemetry.metrics, self._telemetry.heartbeat
        metrics.activity, metrics.detail = Activity.PAUSED, self._loop.pause_reason
        if self._waits_for_disk_space:
            waits_to_end = self._waits_to_end or self._loop.waiting_stop is not None
            metrics.detail = "Waits for room on the disk" + (
                " to save its last step; a stop without a save ends it."
                if waits_to_end
                else "; resume to continue without a save."
            )
        heartbeat.nudge()
        began = time.time()
        while self._loop.paused and self.ending is None:
            time.sleep(PAUSE_POLL_SECONDS)
            self._synchronize()
        self._waits_for_disk_space = metrics.saves.waits_for_room = False
        self._loop.pause_reason = ""
        metrics.activity, metrics.detail = Activity.TRAINING, ""
        metrics.saves.paused(began)
        metrics.forget_steps()
        heartbeat.nudge()

    def _synchronize(self) -> None:
        requests = self._group.all_gather(self._take_request())
        if any(request.finish_background_save for request in requests):
            self._saves.finish_current()
        step = self._telemetry.metrics.step
        for command in requests[0].commands:
            self._carry_out(command)
        if self._telemetry.metrics.step == step and self.ending is None:
            # If a person went back just now, guards speak of steps that are trained again.
            self._firings.carry_out([request.guards for request in requests], self._carry_out)
        triggers = [request.save_trigger for request in requests if request.save_trigger]
        if triggers and self.ending is None:
            self._save(triggers[0])
        if requests[0].has_disk_space and self._waits_for_disk_space:
            self._waits_for_disk_space = self._loop.paused = False
            self._telemetry.metrics.saves.waits_for_room = False
            self._telemetry.note(EventKind.RESUME, "Resumed: the disk has room again.")
            self._save_after_wait()
        for request in requests:
            if request.stop is not None and self.ending is None:
                self._stop(request.stop, request.stop_reason)
                break

    def _take_request(self) -> WorkerRequest:
        """Returns the requests of this worker, and clears those that are made once."""
        trigger = _take_newest(self._save_triggers) or ""
        # Taken, not read: a stop that waits for room must not begin again.
        stop, reason = _take_newest(self._stops) or (None, "")
        request = WorkerRequest(
            stop=stop,
            stop_reason=reason,
            save_trigger=trigger,
            finish_background_save=self._saves.needs_sync,
            guards=self._guards.take_proposals(),
        )
        if not self._group.is_chief:
            return request
        return msgspec.structs.replace(
            request,
            save_trigger=trigger or ("" if self._loop.paused else self._schedule.timed_trigger),
            commands=[
                command
                for command in self._poller.take(MOST_COMMANDS)
                if not self._has_expired(command)
            ],
            has_disk_space=self._waits_for_disk_space and self._saves.has_disk_space,
        )

    def _has_expired(self, command: Command) -> bool:
        if time.time() <= command.expires_at:
            return False
        message = "It expired before the workers reached the end of a step; nothing was done."
        self._telemetry.event_log.advance_command(command, CommandState.EXPIRED, message)
        self._telemetry.event_log.note(
            EventKind.EXPIRED, f"{command.kind.value}: {message}", by=command.requested_by
        )
        return True

    def _carry_out(self, command: Command) -> CommandAnswer | None:
        if self.ending is not None:
            message = "The run was stopped just before."
            self._telemetry.event_log.advance_command(command, CommandState.REFUSED, message)
            return CommandAnswer(CommandState.REFUSED, message)
        answer = self._commands.carry_out(command)
        self.ending = self._loop.ending
        if self._loop.waiting_stop is not None and not self._waits_for_disk_space:
            self._pause_for_disk_space()
        return answer

    def _save(self, trigger: str) -> None:
        self._saves.request_save(trigger)
        self._schedule.restart_clock()
        if self._saves.waits_for_disk_space and not self._loop.paused:
            self._pause_for_disk_space()

    def _save_after_wait(self) -> None:
        if self._loop.waiting_stop is None:
            self._save("room on the disk again")
            return
        self._commands.retry_stop()
        self.ending = self._loop.ending
        if self._loop.waiting_stop is not None:
            self._pause_for_disk_space()

    def _stop(self, ending: Ending, reason: str) -> None:
        if ending is Ending.FINISHED:
            self.finish(reason)
            return
        unsaved = ""
        if ending is Ending.PREEMPTED:
            # Its exit status says that the run is not over, whether the save succeeded or not.
            outcome = self._saves.save_last("interrupt" if reason == INTERRUPTED else "preemption")
            unsaved = " without a save of its last steps" if outcome.name is None else ""
        else:
            self._save_last("stop")
            if self.ending is not None:
                # Someone ended the run while it waited for room.
                return
        why = f"{ending.value}: {reason}" if reason else ending.value
        if reason == INTERRUPTED:
            why = reason
        if ending is Ending.PREEMPTED and not reason:
            # Whoever sent the signal knows the cause; a supervisor adds it.
            why = "told to save and exit"
        self._telemetry.note(
            EventKind.STOP,
            f"Stopped after step {self._telemetry.metrics.step:,} ({why}){unsaved}.",
        )
        self.ending = ending


def _take_newest(requests: deque[RequestT]) -> RequestT | None:
    """Empties a queue that others may append to meanwhile; returns the newest entry."""
    newest = None
    while requests:
        newest = requests.popleft()
    return newest
