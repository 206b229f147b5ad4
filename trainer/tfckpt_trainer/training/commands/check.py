"""Check that the next steps repeat exactly after a restore in place."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import msgspec

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.command_arguments import CheckArguments
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.training.check.quick_check import CheckOutcome, QuickCheck
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.state import Position
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    Answer,
    Handler,
    LoopState,
    Vote,
    give_answer,
)
from tfckpt_trainer.training.telemetry.run_info import update_run_info
from tfckpt_trainer.training.telemetry.telemetry import Telemetry


class CheckHandler(Handler[CheckArguments]):
    """Begins a quick check, and answers when it has ended.

    Attributes:
        current: The command of the check in progress; None without one.
    """

    arguments = CheckArguments

    def __init__(
        self,
        run: RunDirectory,
        position: Position,
        telemetry: Telemetry,
        saves: SaveManager,
        quick_check: QuickCheck,
        loop: LoopState,
    ) -> None:
        self._run = run
        self._position = position
        self._telemetry = telemetry
        self._saves = saves
        self._quick_check = quick_check
        self._loop = loop
        self.current: Command | None = None

    def prepare(self, command: Command, arguments: CheckArguments) -> Vote:
        """Refuses while training is paused."""
        del command, arguments
        return Vote("Training is paused. Resume it, then check.") if self._loop.paused else AGREED

    def commit(self, command: Command, arguments: CheckArguments) -> Vote | None:
        """Asks for the check, which begins as soon as enough steps of an epoch are left."""
        self._saves.finish_all()
        journal = self._telemetry.journal
        refusal = self._quick_check.request(
            arguments.steps,
            partial(self._ended, command),
            partial(journal.advance_command, command, CommandState.WORKING),
        )
        if refusal:
            return Vote(refusal)
        self.current = command
        return None

    def put_back(self, command: Command) -> None:
        """Ends the check of this command without an answer."""
        if command is self.current:
            self.current = None
            self._quick_check.abandon()

    def _ended(self, command: Command, outcome: CheckOutcome) -> None:
        """Records what the check found, and answers its command."""
        self.current = None
        summary, cause = outcome.summary, outcome.cause
        # The step that has just ended is not counted in the metrics yet.
        step = self._position.step
        journal = self._telemetry.journal
        if summary is None:
            message = f"Nothing was compared. {outcome.problem}"
            self._telemetry.note(JournalKind.FAILED, f"check: {message}", command, step=step)
            give_answer(journal, command, Answer(CommandState.FAILED, message))
            return
        covered = f"Not covered: {', '.join(summary.not_covered)}."
        why = f" Likely cause: {cause.why} {cause.advice}" if cause is not None else ""
        message = f"Checked: {summary.words}.{why} {covered}"
        result = {
            "exact": not summary.difference,
            **msgspec.to_builtins(summary),
            "cause": asdict(cause) if cause is not None else None,
        }
        self._telemetry.note(JournalKind.NOTE, message, command, details=result, step=step)
        journal.later(lambda: update_run_info(self._run, check=summary))
        give_answer(journal, command, Answer(CommandState.DONE, message, result))
