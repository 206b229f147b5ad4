"""Check that the next steps repeat exactly after a restore in place."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import msgspec

from tfckpt_trainer.rundir.records.command import CheckArguments, Command, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.training.check.quick_check import CheckOutcome
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    CommandAnswer,
    CommandVote,
    Handler,
)


class CheckHandler(Handler[CheckArguments]):
    """Begins a quick check, and answers when it has ended."""

    arguments = CheckArguments

    def prepare(self, command: Command, arguments: CheckArguments) -> CommandVote:
        """Refuses while training is paused."""
        del command, arguments
        if self.trainer.loop.paused:
            return CommandVote("Training is paused. Resume it, then check.")
        return AGREED

    def commit(self, command: Command, arguments: CheckArguments) -> CommandVote | None:
        """Asks for the check, which begins as soon as enough steps of an epoch are left."""
        self.trainer.saves.finish_all()
        event_log = self.trainer.telemetry.event_log
        refusal = self.trainer.quick_check.request(
            arguments.steps,
            partial(self._ended, command),
            partial(event_log.advance_command, command, CommandState.WORKING),
        )
        if refusal:
            return CommandVote(refusal)
        self.current = command
        return None

    def ended(self) -> None:
        """Cancels the check."""
        self.trainer.quick_check.cancel("The run ended during the check.")

    def put_back(self, command: Command | None) -> None:
        """Ends the check of this command without an answer."""
        if command is self.current:
            self.current = None
            self.trainer.quick_check.abandon()

    def _ended(self, command: Command, outcome: CheckOutcome) -> None:
        """Records what the check found, and answers its command."""
        self.current = None
        summary, cause = outcome.summary, outcome.cause
        # The step that has just ended is not counted in the metrics yet.
        step = self.trainer.position.step
        event_log = self.trainer.telemetry.event_log
        if summary is None:
            message = f"Nothing was compared. {outcome.problem}"
            self.trainer.telemetry.note(EventKind.FAILED, f"check: {message}", command, step=step)
            self.trainer.answer(command, CommandAnswer(CommandState.FAILED, message))
            return
        covered = f"Not covered: {', '.join(summary.not_covered)}."
        why = f" Likely cause: {cause.why} {cause.advice}" if cause is not None else ""
        message = f"Checked: {summary.words}.{why} {covered}"
        result = {
            "exact": not summary.difference,
            **msgspec.to_builtins(summary),
            "cause": asdict(cause) if cause is not None else None,
        }
        self.trainer.telemetry.note(EventKind.NOTE, message, command, details=result, step=step)
        event_log.update_info(check=summary)
        self.trainer.answer(command, CommandAnswer(CommandState.DONE, message, result))
