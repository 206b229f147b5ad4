"""Brings all workers together between steps, and settles what each of them wishes."""

from __future__ import annotations

import time

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.training.checkpoint.restore_manager import Moves
from tfckpt_trainer.training.checkpoint.save_manager import Saves
from tfckpt_trainer.training.loop.command_handler import Service
from tfckpt_trainer.training.loop.command_poller import Desk
from tfckpt_trainer.training.loop.schedule import Schedule
from tfckpt_trainer.training.loop.worker_group import Message, WorkerGroup
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.journal_writer import Ledger
from tfckpt_trainer.training.telemetry.step_metrics import Gauges

PAUSE_LOOK_SECONDS = 0.05
"""While paused, how long the workers rest between two meetings."""


class Steering:
    """Decides between steps; every public method is called by all workers together.

    Attributes:
        ending: Set once the run is to end, and why.
        stop_wish: Set on any worker to stop all of them, with a save, after this step.
        save_wish: Set on any worker to have all save after this step: why.
    """

    def __init__(
        self,
        group: WorkerGroup,
        moves: Moves,
        saves: Saves,
        service: Service,
        ledger: Ledger,
        desk: Desk,
        gauges: Gauges,
        heartbeat: Heartbeat,
        schedule: Schedule,
    ) -> None:
        self._group = group
        self._moves = moves
        self._saves = saves
        self._service = service
        self._ledger = ledger
        self._desk = desk
        self._gauges = gauges
        self._heartbeat = heartbeat
        self._schedule = schedule
        self._waits_for_room = False
        self.ending: Ending | None = None
        self.stop_wish: Ending | None = None
        self.save_wish = ""

    @property
    def wants_attention(self) -> bool:
        """Whether this worker needs all workers to come together after this step."""
        return (
            self._desk.wants_attention
            or self.stop_wish is not None
            or bool(self.save_wish)
            or self._saves.wants_attention
        )

    def after_step(self, attention: bool, seconds: float) -> None:
        """Does what is due after a step.

        Args:
            attention: Whether any worker raised its flag, as all workers learned in this step.
            seconds: How long the step took.
        """
        self._saves.step_done(seconds)
        trigger = self._schedule.due(self._moves.position.step, self._gauges)
        if trigger:
            self._scheduled_save(trigger)
        if attention:
            self._meet()
        if self._service.paused:
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
        self._waits_for_room = self._service.paused = True
        self._note(JournalKind.PAUSE, "Paused: the disk has no room for a checkpoint.")

    def _wait_for_resume(self) -> None:
        self._gauges.activity = Activity.PAUSED
        if self._waits_for_room:
            self._gauges.detail = "Waits for room on the disk; resume to train on without a save."
        self._heartbeat.nudge()
        while self._service.paused and self.ending is None:
            time.sleep(PAUSE_LOOK_SECONDS)
            self._meet()
        self._waits_for_room = False
        self._gauges.activity, self._gauges.detail = Activity.TRAINING, ""
        self._gauges.forget_steps()
        self._heartbeat.nudge()

    def _meet(self) -> None:
        wishes = self._group.gather(self._wishes())
        if any(wish["settle"] for wish in wishes):
            self._saves.settle()
        for fields in wishes[0]["commands"]:
            command = msgspec.convert(fields, Command)
            if self.ending is None:
                self._service.serve(command)
                self.ending = self._service.ending
            else:
                self._ledger.tell(command, CommandState.REFUSED, "The run was stopped just before.")
        save = next((wish["save"] for wish in wishes if wish["save"]), "")
        if save and self.ending is None:
            self._scheduled_save(save)
        if wishes[0]["room"] and self._waits_for_room:
            self._waits_for_room = self._service.paused = False
            self._note(JournalKind.RESUME, "Resumed: the disk has room again.")
            self._scheduled_save("room on the disk again")
        stops = [Ending(wish["stop"]) for wish in wishes if wish["stop"]]
        if stops and self.ending is None:
            self._leave(stops[0])

    def _wishes(self) -> Message:
        wishes: Message = {
            "stop": self.stop_wish.value if self.stop_wish else None,
            "save": self.save_wish,
            "settle": self._saves.wants_attention,
        }
        self.save_wish = ""
        if self._group.is_chief:
            commands = [command for command in self._desk.take() if not self._has_expired(command)]
            wishes["commands"] = [msgspec.to_builtins(command) for command in commands]
            due = self._desk.save_is_due and not self._service.paused
            wishes["save"] = wishes["save"] or (self._desk.schedule if due else "")
            wishes["room"] = self._waits_for_room and self._saves.has_room
        return wishes

    def _has_expired(self, command: Command) -> bool:
        if time.time() <= command.expires_at:
            return False
        message = "The workers came to the end of a step too late; it was not carried out."
        self._ledger.tell(command, CommandState.EXPIRED, message)
        self._ledger.note(
            JournalKind.EXPIRED, f"{command.kind.value}: {message}", by=command.requested_by
        )
        return True

    def _scheduled_save(self, trigger: str) -> None:
        self._saves.ask(trigger)
        self._desk.saved()
        if self._saves.full and self._schedule.waits_for_room and not self._service.paused:
            self._wait_for_room()

    def _leave(self, ending: Ending) -> None:
        if ending is Ending.FINISHED:
            self.finish()
            return
        self._saves.now("preemption" if ending is Ending.PREEMPTED else "stop")
        self._note(
            JournalKind.STOP, f"Stopped after step {self._moves.position.step} ({ending.value})."
        )
        self.ending = ending

    def _note(self, kind: JournalKind, message: str) -> None:
        position = self._moves.position
        self._ledger.note(kind, message, step=position.step, branch=position.branch)
