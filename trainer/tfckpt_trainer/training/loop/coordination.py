"""Brings all workers together between steps, and settles what each of them requests."""

from __future__ import annotations

import time

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.training.checkpoint.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.loop.command_handler import CommandHandler
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.schedule import Schedule
from tfckpt_trainer.training.loop.worker_group import Message, WorkerGroup
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.journal_writer import JournalWriter
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

PAUSE_LOOK_SECONDS = 0.05
"""While paused, how long the workers rest between two meetings."""


class Coordination:
    """Decides between steps; every public method is called by all workers together.

    Attributes:
        ending: Set once the run is to end, and why.
        stop_requested: Set on any worker to stop all of them, with a save, after this step.
        save_requested: Set on any worker to have all save after this step: why.
    """

    def __init__(
        self,
        group: WorkerGroup,
        restores: RestoreManager,
        saves: SaveManager,
        handler: CommandHandler,
        journal: JournalWriter,
        poller: CommandPoller,
        metrics: StepMetrics,
        heartbeat: Heartbeat,
        schedule: Schedule,
    ) -> None:
        self._group = group
        self._restores = restores
        self._saves = saves
        self._handler = handler
        self._journal = journal
        self._poller = poller
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._schedule = schedule
        self._waits_for_room = False
        self.ending: Ending | None = None
        self.stop_requested: Ending | None = None
        self.save_requested = ""

    @property
    def wants_attention(self) -> bool:
        """Whether this worker needs all workers to come together after this step."""
        return (
            self._poller.wants_attention
            or self.stop_requested is not None
            or bool(self.save_requested)
            or self._saves.wants_attention
        )

    def after_step(self, attention: bool, seconds: float) -> None:
        """Does what is due after a step.

        Args:
            attention: Whether any worker raised its flag, as all workers learned in this step.
            seconds: How long the step took.
        """
        self._saves.step_done(seconds)
        trigger = self._schedule.due(self._restores.position.step, self._metrics)
        if trigger:
            self._scheduled_save(trigger)
        if attention:
            self._meet()
        if self._handler.paused:
            self._wait_for_resume()

    def finish(self) -> None:
        """Saves at the end of training.

        Raises:
            TfckptError: The last steps could not be saved.
        """
        outcome = self._saves.now("end")
        while outcome.full and self._schedule.waits_for_room and self.ending is None:
            self._wait_for_room()
            self._wait_for_resume()
            outcome = self._saves.now("end")
        if outcome.name is None:
            raise TfckptError(f"The last steps could not be saved: {outcome.problem}")
        self.ending = self.ending or Ending.FINISHED

    def _wait_for_room(self) -> None:
        self._waits_for_room = self._handler.paused = True
        self._note(JournalKind.PAUSE, "Paused: the disk has no room for a checkpoint.")

    def _wait_for_resume(self) -> None:
        self._metrics.activity = Activity.PAUSED
        if self._waits_for_room:
            self._metrics.detail = "Waits for room on the disk; resume to train on without a save."
        self._heartbeat.nudge()
        while self._handler.paused and self.ending is None:
            time.sleep(PAUSE_LOOK_SECONDS)
            self._meet()
        self._waits_for_room = False
        self._metrics.activity, self._metrics.detail = Activity.TRAINING, ""
        self._metrics.forget_steps()
        self._heartbeat.nudge()

    def _meet(self) -> None:
        requests = self._group.gather(self._own_request())
        if any(request["settle"] for request in requests):
            self._saves.settle()
        for fields in requests[0]["commands"]:
            command = msgspec.convert(fields, Command)
            if self.ending is None:
                self._handler.serve(command)
                self.ending = self._handler.ending
            else:
                self._journal.tell(
                    command, CommandState.REFUSED, "The run was stopped just before."
                )
        save = next((request["save"] for request in requests if request["save"]), "")
        if save and self.ending is None:
            self._scheduled_save(save)
        if requests[0]["room"] and self._waits_for_room:
            self._waits_for_room = self._handler.paused = False
            self._note(JournalKind.RESUME, "Resumed: the disk has room again.")
            self._scheduled_save("room on the disk again")
        stops = [Ending(request["stop"]) for request in requests if request["stop"]]
        if stops and self.ending is None:
            self._leave(stops[0])

    def _own_request(self) -> Message:
        request: Message = {
            "stop": self.stop_requested.value if self.stop_requested else None,
            "save": self.save_requested,
            "settle": self._saves.wants_attention,
        }
        self.save_requested = ""
        if self._group.is_chief:
            commands = [
                command for command in self._poller.take() if not self._has_expired(command)
            ]
            request["commands"] = [msgspec.to_builtins(command) for command in commands]
            due = self._poller.save_is_due and not self._handler.paused
            request["save"] = request["save"] or (self._poller.schedule if due else "")
            request["room"] = self._waits_for_room and self._saves.has_room
        return request

    def _has_expired(self, command: Command) -> bool:
        if time.time() <= command.expires_at:
            return False
        message = "The workers came to the end of a step too late; it was not carried out."
        self._journal.tell(command, CommandState.EXPIRED, message)
        self._journal.note(
            JournalKind.EXPIRED, f"{command.kind.value}: {message}", by=command.requested_by
        )
        return True

    def _scheduled_save(self, trigger: str) -> None:
        self._saves.ask(trigger)
        self._poller.saved()
        if self._saves.full and self._schedule.waits_for_room and not self._handler.paused:
            self._wait_for_room()

    def _leave(self, ending: Ending) -> None:
        if ending is Ending.FINISHED:
            self.finish()
            return
        self._saves.now("preemption" if ending is Ending.PREEMPTED else "stop")
        self._note(
            JournalKind.STOP, f"Stopped after step {self._restores.position.step} ({ending.value})."
        )
        self.ending = ending

    def _note(self, kind: JournalKind, message: str) -> None:
        position = self._restores.position
        self._journal.note(kind, message, step=position.step, branch=position.branch)
