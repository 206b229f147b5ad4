"""Move checkpoints to the trash, and bring them back."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfckpt_trainer.catalog.retention.prune import OnWarning, move_to_trash, undo
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.command_arguments import PruneArguments, UndoArguments
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.training.commands.handler import Answer, Handler, Vote
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import WorkerGroup


class PruneHandler(Handler[PruneArguments]):
    """Moves checkpoints to the trash, on the chief."""

    arguments = PruneArguments

    def __init__(self, run: RunDirectory, group: WorkerGroup, telemetry: Telemetry) -> None:
        self._run = run
        self._group = group
        self._telemetry = telemetry

    def commit(self, command: Command, arguments: PruneArguments) -> Answer | Vote:
        """Moves them."""

        def move(on_warning: OnWarning) -> TrashManifest:
            return move_to_trash(
                self._run,
                arguments.names,
                by=command.requested_by,
                now=time.time(),
                update_state_file=True,
                on_warning=on_warning,
            )

        if not self._group.is_chief:
            return _ON_CHIEF
        return _changed(self._telemetry, command, JournalKind.PRUNE, "Moved to the trash", move)


class UndoHandler(Handler[UndoArguments]):
    """Brings back what a prune moved to the trash, on the chief."""

    arguments = UndoArguments

    def __init__(self, run: RunDirectory, group: WorkerGroup, telemetry: Telemetry) -> None:
        self._run = run
        self._group = group
        self._telemetry = telemetry

    def commit(self, command: Command, arguments: UndoArguments) -> Answer | Vote:
        """Brings it back."""

        def bring_back(on_warning: OnWarning) -> TrashManifest:
            return undo(self._run, arguments.trash, update_state_file=True, on_warning=on_warning)

        if not self._group.is_chief:
            return _ON_CHIEF
        return _changed(self._telemetry, command, JournalKind.UNDO, "Brought back", bring_back)


_ON_CHIEF = Answer(CommandState.DONE, "")
"""The answer of the other workers, which nobody reads."""


def _changed(
    telemetry: Telemetry,
    command: Command,
    kind: JournalKind,
    what: str,
    change: Callable[[OnWarning], TrashManifest],
) -> Answer | Vote:
    """Changes the trash, and notes what was done."""
    warnings: list[str] = []
    try:
        manifest = change(warnings.append)
    except TfckptError as error:
        return Vote(error.found, error.advice)
    except OSError as error:
        return Vote(describe_error(error))
    names = [trashed.name for trashed in manifest.checkpoints]
    message = f"{what}: {', '.join(names)}."
    details = {"trash": manifest.id, "names": names}
    telemetry.note(kind, message, command, details=details)
    freed = sum(trashed.size for trashed in manifest.checkpoints)
    result = {**details, "bytes": freed, "warnings": warnings}
    return Answer(CommandState.DONE, " ".join([message, *warnings]), result)
