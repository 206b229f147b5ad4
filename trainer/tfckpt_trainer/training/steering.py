"""Brings all workers together between steps, and settles what each of them wishes."""

from __future__ import annotations

import time

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.records import Activity, Command, CommandState, Ending, JournalKind
from tfckpt_trainer.training.desk import Desk
from tfckpt_trainer.training.gauges import Gauges
from tfckpt_trainer.training.group import Message, WorkerGroup
from tfckpt_trainer.training.heartbeat import Heartbeat
from tfckpt_trainer.training.ledger import Ledger
from tfckpt_trainer.training.moves import Moves
from tfckpt_trainer.training.service import Service

PAUSE_LOOK_SECONDS = 0.05
"""While paused, how long the workers rest between two meetings."""


class Steering:
    """Decides between steps; every public method is called by all workers together.

    Attributes:
        ending: Set once the run is to end, and why.
        stop_wish: Set on any worker to stop all of them, with a save, after this step.
    """

    def __init__(
        self,
        group: WorkerGroup,
        moves: Moves,
        service: Service,
        ledger: Ledger,
        desk: Desk,
        gauges: Gauges,
        heartbeat: Heartbeat,
        save_every_steps: int | None,
    ) -> None:
        self._group = group
        self._moves = moves
        self._service = service
        self._ledger = ledger
        self._desk = desk
        self._gauges = gauges
        self._heartbeat = heartbeat
        self._save_every_steps = save_every_steps
        self.ending: Ending | None = None
        self.stop_wish: Ending | None = None

    @property
    def wants_attention(self) -> bool:
        """Whether this worker needs all workers to come together after this step."""
        return self._desk.wants_attention or self.stop_wish is not None

    def after_step(self, attention: bool) -> None:
        """Does what is due after a step.

        Args:
            attention: Whether any worker raised its flag, as all workers learned in this step.
        """
        every, step = self._save_every_steps, self._moves.position.step
        if every and step % every == 0:
            self._scheduled_save(f"every {every} steps")
        if attention:
            self._meet()
            if self._service.paused:
                self._wait_for_resume()

    def finish(self) -> None:
        """Saves at the end of training.

        Raises:
            TfckptError: The last steps could not be saved.
        """
        outcome = self._moves.save("end")
        if outcome.name is None:
            raise TfckptError(f"The last steps could not be saved: {outcome.problem}")
        self.ending = Ending.FINISHED

    def _wait_for_resume(self) -> None:
        self._gauges.activity = Activity.PAUSED
        self._heartbeat.nudge()
        while self._service.paused and self.ending is None:
            time.sleep(PAUSE_LOOK_SECONDS)
            self._meet()
        self._gauges.activity = Activity.TRAINING
        self._gauges.forget_steps()
        self._heartbeat.nudge()

    def _meet(self) -> None:
        wishes = self._group.gather(self._wishes())
        for fields in wishes[0]["commands"]:
            command = msgspec.convert(fields, Command)
            if self.ending is None:
                self._service.serve(command)
                self.ending = self._service.ending
            else:
                self._ledger.tell(command, CommandState.REFUSED, "The run was stopped just before.")
        if wishes[0]["save"] and self.ending is None:
            self._scheduled_save(wishes[0]["save"])
        stops = [Ending(wish["stop"]) for wish in wishes if wish["stop"]]
        if stops and self.ending is None:
            self._leave(stops[0])

    def _wishes(self) -> Message:
        wishes: Message = {"stop": self.stop_wish.value if self.stop_wish else None}
        if self._group.is_chief:
            commands = [command for command in self._desk.take() if not self._has_expired(command)]
            wishes["commands"] = [msgspec.to_builtins(command) for command in commands]
            due = self._desk.save_is_due and not self._service.paused
            wishes["save"] = self._desk.schedule if due else ""
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
        self._moves.save(trigger)
        self._desk.saved()

    def _leave(self, ending: Ending) -> None:
        trigger = "preemption" if ending is Ending.PREEMPTED else "stop"
        self._scheduled_save(trigger)
        self._ledger.note(
            JournalKind.STOP,
            f"Stopped after step {self._moves.position.step} ({ending.value}).",
            step=self._moves.position.step,
            branch=self._moves.position.branch,
        )
        self.ending = ending
