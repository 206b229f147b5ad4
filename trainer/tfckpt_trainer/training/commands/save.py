"""Save now."""

from __future__ import annotations

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.command_arguments import SaveArguments
from tfckpt_trainer.sizes import size
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.save_protocol import SaveOutcome
from tfckpt_trainer.training.commands.handler import (
    Answer,
    Handler,
    advice_on_full_disk,
    give_answer,
)
from tfckpt_trainer.training.telemetry.journal_writer import JournalWriter


class SaveHandler(Handler[SaveArguments]):
    """Saves after this step. A background save is answered when it is done."""

    arguments = SaveArguments

    def __init__(self, run: RunDirectory, saves: SaveManager, journal: JournalWriter) -> None:
        self._run = run
        self._saves = saves
        self._journal = journal

    def commit(self, command: Command, _: SaveArguments) -> None:
        """Saves, or begins to."""
        self._saves.request_save("command", command, lambda found: self._answer(command, found))

    def _answer(self, command: Command, outcome: SaveOutcome) -> None:
        answer = _saved(outcome) if outcome.name is not None else self._not_saved(outcome)
        give_answer(self._journal, command, answer)

    def _not_saved(self, outcome: SaveOutcome) -> Answer:
        state = CommandState.REFUSED if outcome.refused else CommandState.FAILED
        advice = advice_on_full_disk(self._run) if outcome.disk_full else None
        return Answer(state, outcome.problem, advice=advice)


def _saved(outcome: SaveOutcome) -> Answer:
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
        return Answer(CommandState.DONE, f"{outcome.name} already holds this step.", result)
    return Answer(
        CommandState.DONE,
        f"Saved {outcome.name}: {size(outcome.size)} in {outcome.seconds:.2f} s, "
        f"{outcome.durability}",
        result,
    )
