"""Commands of the run and failures of the app, as all screens show them."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.request import FrontEnd

_DONE_SECONDS = 8.0
_REFUSED_SECONDS = 30.0


class RunProgress:
    """What is in progress, what just ended, and what stays until the user dismisses it.

    Attributes:
        snapshot: The newest snapshot; None before the first one.
        failures: Failed actions of the app, each with its message; both texts are safe to show.
    """

    def __init__(self) -> None:
        self.snapshot: RunSnapshot | None = None
        self.failures: list[tuple[str, str]] = []
        self._dismissed: set[str] = set()
        self._requester = FrontEnd.APP.requester

    @property
    def has_unread(self) -> bool:
        """Whether there is a failure or a verdict that the user has not dismissed."""
        return bool(self.failures or self.failed_commands() or self.verdicts())

    def report_failure(self, what: str, message: str) -> None:
        """Adds a failed action of the app; both texts are safe to show."""
        self.failures.append((what, message))

    def dismiss(self) -> None:
        """Forgets all failures and verdicts."""
        unread = [*self.failed_commands(), *self.verdicts()]
        self.failures.clear()
        self._dismissed |= {command.id for command in unread}

    def failed_commands(self) -> list[Command]:
        """Returns the commands that were not carried out, oldest first."""
        return [
            command
            for command in self._unread()
            if command.state is not CommandState.DONE and not self._is_old_news(command)
        ]

    def _is_old_news(self, command: Command) -> bool:
        """Whether a command was refused some time ago that this user's app did not send."""
        is_of_others = command.requested_by != self._requester
        if command.state is not CommandState.REFUSED or not is_of_others or self.snapshot is None:
            return False
        return self.snapshot.at - _ended_at(command) >= _REFUSED_SECONDS

    def verdicts(self) -> list[Command]:
        """Returns the commands whose result users have to read, oldest first."""
        return [command for command in self._unread() if _is_verdict(command)]

    def _unread(self) -> list[Command]:
        finished = self.snapshot.finished if self.snapshot is not None else ()
        return [command for command in finished if command.id not in self._dismissed]

    def shown_commands(self) -> list[Command]:
        """Returns the commands that wait, then those in progress, then those just carried out."""
        snapshot = self.snapshot
        if snapshot is None:
            return []
        done = [command for command in snapshot.finished if command.state is CommandState.DONE]
        undone = {c.result.get("trash") for c in done if c.kind is CommandKind.UNDO} - {None}
        recent = [
            command
            for command in done
            if snapshot.at - _ended_at(command) < _DONE_SECONDS
            and not _is_verdict(command)
            # A prune that was undone since is not true any more.
            and (command.kind is not CommandKind.PRUNE or command.result.get("trash") not in undone)
        ]
        return [*snapshot.pending, *snapshot.working, *recent]


def _is_verdict(command: Command) -> bool:
    return command.kind is CommandKind.CHECK and command.state is CommandState.DONE


def _ended_at(command: Command) -> float:
    return command.history[-1].at if command.history else command.requested_at
