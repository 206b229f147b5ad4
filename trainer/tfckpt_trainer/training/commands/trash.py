"""Move checkpoints to the trash, and bring them back."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfckpt_trainer.catalog.retention.prune import OnWarning, event_of, move_to_trash, undo
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandState,
    PruneArguments,
    UndoArguments,
)
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.training.commands.handler import ArgumentsT, CommandAnswer, CommandVote, Handler


class _TrashHandler(Handler[ArgumentsT]):
    """Changes the trash, on the chief."""

    def _change(
        self,
        command: Command,
        kind: EventKind,
        change: Callable[[OnWarning], TrashManifest],
    ) -> CommandAnswer | CommandVote:
        """Calls `change` on the chief, and notes what it did."""
        if not self.trainer.group.is_chief:
            return CommandAnswer(CommandState.DONE, "")
        warnings: list[str] = []
        try:
            manifest = change(warnings.append)
        except TfckptError as error:
            return CommandVote(error.found, error.advice)
        except OSError as error:
            return CommandVote(describe_error(error))
        message, details = event_of(kind, manifest)
        self.trainer.telemetry.note(kind, message, command, details=details)
        result = {**details, "bytes": manifest.size, "warnings": warnings}
        return CommandAnswer(CommandState.DONE, " ".join([message, *warnings]), result)


class PruneHandler(_TrashHandler[PruneArguments]):
    """Moves checkpoints to the trash."""

    arguments = PruneArguments

    def commit(self, command: Command, arguments: PruneArguments) -> CommandAnswer | CommandVote:
        """Moves them."""

        def move(on_warning: OnWarning) -> TrashManifest:
            return move_to_trash(
                self.trainer.run,
                arguments.names,
                by=command.requested_by,
                now=time.time(),
                update_state_file=True,
                on_warning=on_warning,
            )

        return self._change(command, EventKind.PRUNE, move)


class UndoHandler(_TrashHandler[UndoArguments]):
    """Brings back what a prune moved to the trash."""

    arguments = UndoArguments

    def commit(self, command: Command, arguments: UndoArguments) -> CommandAnswer | CommandVote:
        """Brings it back."""

        def bring_back(on_warning: OnWarning) -> TrashManifest:
            return undo(
                self.trainer.run, arguments.trash, update_state_file=True, on_warning=on_warning
            )

        return self._change(command, EventKind.UNDO, bring_back)
