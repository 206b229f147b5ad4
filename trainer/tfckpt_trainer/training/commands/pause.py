"""Pause, resume and stop."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandState,
    PauseArguments,
    ResumeArguments,
    StopArguments,
)
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveOutcome
from tfckpt_trainer.training.commands.handler import (
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
    advice_on_full_disk,
)
from tfckpt_trainer.words.advice import Advice, CommandOrKey, command_or_key

_ENDS_A_PAUSE = {EventKind.RESUME, EventKind.STOP, EventKind.FINISH}


def stay_paused(trainer: Trainer) -> None:
    """Has a run pause after its first step if it was paused before it was restarted by itself.

    A person who starts it again has it train. All workers call it together.
    """
    found = None
    if trainer.group.is_chief:
        found = _earlier_pause(read_entries(trainer.run))
        if found.by and not found.is_restarted:
            trainer.telemetry.note(EventKind.RESUME, "The pause ended with a new start.")
    found = trainer.group.broadcast(found, _EarlierPause)
    assert found is not None
    if found.is_restarted:
        trainer.loop.paused_before = found.by


class _EarlierPause(msgspec.Struct, frozen=True):
    """Who paused a run that did not go on; empty if nobody did. And whether it was restarted."""

    by: str = ""
    is_restarted: bool = False


def _earlier_pause(entries: Iterable[EventEntry]) -> _EarlierPause:
    found = _EarlierPause()
    for entry in entries:
        if entry.kind is EventKind.PAUSE:
            found = _EarlierPause(entry.by)
        elif entry.kind in _ENDS_A_PAUSE:
            found = _EarlierPause()
        elif entry.kind in {EventKind.RESTART, EventKind.REQUEUE} and found.by:
            found = _EarlierPause(found.by, is_restarted=True)
    return found


class PauseHandler(Handler[PauseArguments]):
    """Has the loop wait after this step."""

    arguments = PauseArguments

    def commit(self, command: Command, _: PauseArguments) -> CommandAnswer:
        """Pauses."""
        step = self.trainer.position.step
        if self.trainer.loop.paused:
            message = f"Training was already paused at step {step:,}."
        else:
            self.trainer.loop.paused = True
            message = f"Paused after step {step:,}."
            self.trainer.telemetry.note(EventKind.PAUSE, message, command)
        return CommandAnswer(CommandState.DONE, message, {"step": step})


class ResumeHandler(Handler[ResumeArguments]):
    """Has the loop go on."""

    arguments = ResumeArguments

    def commit(self, command: Command, _: ResumeArguments) -> CommandAnswer:
        """Resumes; a stop that waits for room is refused then."""
        step = self.trainer.position.step
        if not self.trainer.loop.paused:
            message = f"Training was already running at step {step:,}."
        else:
            self.trainer.loop.paused = False
            why = "Training was resumed before there was room."
            _answer_waiting_stop(self.trainer, CommandState.REFUSED, why)
            message = f"Resumed after step {step:,}."
            self.trainer.telemetry.note(EventKind.RESUME, message, command)
        return CommandAnswer(CommandState.DONE, message, {"step": step})


class StopHandler(Handler[StopArguments]):
    """Ends the run, with a save or without. Without room for the save, the run waits for it."""

    arguments = StopArguments

    def commit(
        self, command: Command, arguments: StopArguments
    ) -> CommandAnswer | CommandVote | None:
        """Saves if asked, and ends the run."""
        step = self.trainer.position.step
        message, name = f"Stopped after step {step:,}", None
        if arguments.save:
            outcome = self.trainer.saves.save_last("stop", command)
            if outcome.name is None:
                return self._wait(command, outcome)
            name = outcome.name
            message += f", saved as {name}"
        without = "" if name else ", without a save"
        done = f"{message}{without}."
        _answer_waiting_stop(self.trainer, CommandState.DONE, done)
        self.trainer.loop.ending = Ending.STOPPED
        self.trainer.telemetry.note(EventKind.STOP, f"{message}.", command)
        return CommandAnswer(CommandState.DONE, f"{message}.", {"step": step, "name": name})

    def _wait(self, command: Command, outcome: SaveOutcome) -> CommandAnswer | CommandVote | None:
        """Lets the run wait for room, if that is what the save lacks."""
        if not outcome.disk_full:
            return self._not_stopped(outcome)
        if self.trainer.loop.waiting_stop is not None:
            return CommandVote(
                f"A stop waits for room already. {outcome.problem}", self._advice_to_end()
            )
        self.trainer.loop.waiting_stop = self.trainer.telemetry.event_log.advance_command(
            command, command.state, outcome.problem, advice=self._advice_to_end()
        )
        return None

    def _not_stopped(self, outcome: SaveOutcome) -> CommandAnswer:
        state = CommandState.REFUSED if outcome.refused else CommandState.FAILED
        problem = outcome.problem if outcome.problem.endswith(".") else f"{outcome.problem}."
        return CommandAnswer(
            state,
            f"The run was not stopped, because its last steps could not be saved: {problem}",
            advice=Advice.of("To stop without a save, use {stop}.", stop=self._stop_without_save()),
        )

    def _stop_without_save(self) -> CommandOrKey:
        root = self.trainer.run.root
        return command_or_key("stop", "stop", root, "--no-save", choice="stop without saving")

    def _advice_to_end(self) -> Advice:
        """Returns how to free space, or to end the run nevertheless."""
        return advice_on_full_disk(self.trainer.run).then(
            "To end the run without a save, use {stop}.", stop=self._stop_without_save()
        )


def _answer_waiting_stop(trainer: Trainer, state: CommandState, message: str) -> None:
    command, trainer.loop.waiting_stop = trainer.loop.waiting_stop, None
    if command is not None:
        trainer.answer(command, CommandAnswer(state, message))
