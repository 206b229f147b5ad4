"""Drop input that is not to be trained."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.checkpoint import PlannedSkip
from tfckpt_trainer.rundir.records.command import (
    CANNOT_SKIP,
    Command,
    CommandState,
    SkipArguments,
)
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
)
from tfckpt_trainer.words.counts import count


class SkipHandler(Handler[SkipArguments]):
    """Has each worker drop the input of some steps, before the next step or a later one."""

    arguments = SkipArguments

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._planned: tuple[Command, PlannedSkip] | None = None

    def prepare(self, command: Command, arguments: SkipArguments) -> CommandVote:
        """Refuses if the run does not read the input itself."""
        del command, arguments
        if self.trainer.reads_input:
            return AGREED
        return CommandVote(CANNOT_SKIP)

    def commit(self, command: Command, arguments: SkipArguments) -> CommandAnswer:
        """Plans it. The event log tells when it is done."""
        at_step = max(self.trainer.position.step, arguments.at_step or 0)
        skip = PlannedSkip(at_step=at_step, batches=arguments.batches, by=command.requested_by)
        self._planned = command, skip
        self.trainer.skips.plan(skip)
        return CommandAnswer(
            CommandState.DONE,
            f"The input of {count(skip.batches, 'step')} is dropped on each worker after step "
            f"{at_step:,}.",
            {"at_step": at_step, "batches": skip.batches},
        )

    def put_back(self, command: Command | None) -> None:
        """Drops nothing for this command."""
        if self._planned is not None and self._planned[0] is command:
            self.trainer.skips.forget(self._planned[1])
