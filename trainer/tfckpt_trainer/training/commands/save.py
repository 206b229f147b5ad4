"""Save now."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.command import Command, CommandState, SaveArguments
from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveOutcome
from tfckpt_trainer.training.commands.handler import (
    CommandAnswer,
    Handler,
    advice_on_full_disk,
)
from tfckpt_trainer.words.counts import size


class SaveHandler(Handler[SaveArguments]):
    """Saves after this step. A background save is answered when it is done.

    The workers vote in `Saver`, not in `prepare`: scheduled saves have no command, and a vote needs
    what was written.
    """

    arguments = SaveArguments

    def commit(self, command: Command, _: SaveArguments) -> None:
        """Saves, or begins to."""
        self.trainer.saves.request_save(
            "command", command, lambda found: self._answer(command, found)
        )

    def _answer(self, command: Command, outcome: SaveOutcome) -> None:
        answer = _saved(outcome) if outcome.name is not None else self._not_saved(outcome)
        self.trainer.answer(command, answer)

    def _not_saved(self, outcome: SaveOutcome) -> CommandAnswer:
        state = CommandState.REFUSED if outcome.refused else CommandState.FAILED
        advice = advice_on_full_disk(self.trainer.run) if outcome.disk_full else None
        return CommandAnswer(state, outcome.problem, advice=advice)


def _saved(outcome: SaveOutcome) -> CommandAnswer:
    result = {
        "name": outcome.name,
        "step": outcome.step,
        "branch": outcome.branch,
        "bytes": outcome.size,
        "seconds": outcome.seconds,
        "stall_seconds": outcome.stall_seconds,
        "already": outcome.already_saved,
        "warning": outcome.warning,
    }
    if outcome.already_saved:
        return CommandAnswer(CommandState.DONE, f"{outcome.name} already holds this step.", result)
    return CommandAnswer(
        CommandState.DONE,
        f"Saved {outcome.name}: {size(outcome.size)} in {outcome.seconds:.2f} s, "
        f"{outcome.durability}",
        result,
    )
