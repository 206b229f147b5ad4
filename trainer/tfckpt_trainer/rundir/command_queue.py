"""The command box: how a person or a script asks, and how the trainer answers.

A command is a file. It is dropped into `inbox/`, claimed by a rename to `active/`, rewritten
there as it proceeds, and ends in `done/`. Only one process can win a rename, so a command is
carried out once, or expires, and never both.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load, store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState, Transition
from tfckpt_trainer.rundir.statuses import load_status, store_status

DEFAULT_LIFETIME = 60.0
"""Seconds after which a command that nobody took expires."""

POLL_SECONDS = 0.02
"""How often one who waits for an outcome looks, unless told otherwise."""

DAMAGED_SECONDS = 10.0
"""After so long a file that is no command, and was not changed, is deleted."""

KEPT_OUTCOMES = 500
"""How many answered commands are kept in `done/`."""


def requester(through: str) -> str:
    """Returns who asks, for the journal: `user@host, through`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # Containers run with users that no password file knows.
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, {through}"


def advance(command: Command, state: CommandState, message: str, **changes: Any) -> Command:
    """Returns `command` moved on to `state`, with the transition in its history."""
    now = time.time()
    return msgspec.structs.replace(
        command,
        state=state,
        message=message,
        history=[*command.history, Transition(state=state, at=now, message=message)],
        **changes,
    )


class CommandBox:
    """The commands of one run, from both sides."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._damaged: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def submit(
        self,
        kind: CommandKind,
        arguments: dict[str, Any] | None = None,
        *,
        requested_by: str,
        lifetime: float = DEFAULT_LIFETIME,
        now: float | None = None,
    ) -> Command:
        """Drops a command into the inbox and returns it.

        Args:
            kind: What to do.
            arguments: As `Command.arguments` documents.
            requested_by: From `requester`.
            lifetime: Seconds in which a trainer must take it.
            now: The time, where a test needs to say.
        """
        at = time.time() if now is None else now
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at))
        command = Command(
            id=f"{stamp}-{kind.value}-{secrets.token_hex(4)}",
            kind=kind,
            arguments=arguments or {},
            requested_at=at,
            expires_at=at + lifetime,
            requested_by=requested_by,
            history=[Transition(state=CommandState.REQUESTED, at=at)],
        )
        self._run.refuse_links()
        make_directory(self._run.inbox)
        store(self._run.inbox / f"{command.id}.json", command)
        return command

    def look_up(self, identifier: str) -> Command | None:
        """Returns the newest state of a command, or None where there is no trace of it."""
        # It moves from left to right only, so a second round meets what the first one missed.
        for _ in range(2):
            for place in (self._run.inbox, self._run.active, self._run.done):
                command = load_status(place / f"{identifier}.json", Command)
                if command is not None:
                    return command
        return None

    def wait(
        self,
        command: Command,
        *,
        timeout: float,
        on_change: Callable[[Command], None] | None = None,
        poll: float = POLL_SECONDS,
    ) -> Command:
        """Follows `command` until it is final or `timeout` seconds have passed.

        A command that is still in the inbox after its lifetime is withdrawn and returned as
        expired: no trainer can take it any more.

        Args:
            command: As it was submitted.
            timeout: Seconds.
            on_change: Told of each change.
            poll: Seconds between looks.
        """
        deadline = time.monotonic() + timeout
        newest = command
        while not newest.state.is_final:
            seen = self.look_up(command.id) or newest
            if seen != newest and on_change is not None:
                on_change(seen)
            newest = seen
            if newest.state is CommandState.REQUESTED and time.time() > newest.expires_at:
                newest = self.withdraw(newest) or newest
            if time.monotonic() > deadline:
                break
            if not newest.state.is_final:
                time.sleep(poll)
        return newest

    def withdraw(self, command: Command) -> Command | None:
        """Takes a command back that nobody took; returns it expired, or None if it was taken."""
        expired = advance(
            command,
            CommandState.EXPIRED,
            "No trainer took it in time; it will not be carried out.",
        )
        return expired if self._move(self._run.inbox, self._run.done, expired) else None

    def withdraw_expired(self, now: float) -> list[Command]:
        """Withdraws every command whose lifetime is over, and returns them."""
        overdue = [c for c in self._commands_in(self._run.inbox) if now > c.expires_at]
        return [taken for c in overdue if (taken := self.withdraw(c)) is not None]

    def pending(self) -> list[Command]:
        """Commands that nobody took yet, oldest first."""
        return self._commands_in(self._run.inbox)

    def working(self) -> list[Command]:
        """Commands that a trainer took and did not answer yet, oldest first."""
        return self._commands_in(self._run.active)

    def claim(self, now: float) -> Command | None:
        """Takes the oldest command for the trainer; overdue and repeated ones are put aside."""
        for command in self._commands_in(self._run.inbox):
            if (self._run.done / f"{command.id}.json").exists():
                (self._run.inbox / f"{command.id}.json").unlink(missing_ok=True)
            elif now > command.expires_at:
                self.withdraw(command)
            else:
                seen = advance(command, CommandState.SEEN, "The chief took it.")
                if self._move(self._run.inbox, self._run.active, seen):
                    return seen
        return None

    def update(self, command: Command) -> None:
        """Makes the progress of a command that was claimed visible."""
        store_status(self._run.active / f"{command.id}.json", command)

    def finish(self, command: Command) -> None:
        """Writes the outcome of a claimed command and closes it."""
        # Who asked waits for the answer, also where a full disk takes no new file.
        store_status(self._run.active / f"{command.id}.json", command, durable=True)
        os.replace(self._run.active / f"{command.id}.json", self._run.done / f"{command.id}.json")
        self._forget_old_outcomes()

    def abandon_active(self, reason: str) -> list[Command]:
        """Closes as failed what an earlier trainer took and did not finish; returns it."""
        abandoned = []
        for command in self.working():
            # A trainer that died between the outcome and the move has told the truth already.
            final = command.state.is_final
            self.finish(command if final else advance(command, CommandState.FAILED, reason))
            if not final:
                abandoned.append(command)
        return abandoned

    def clear_damaged(self, now: float, *, at_once: bool = False) -> list[str]:
        """Deletes files in `inbox/` and `active/` that are no commands and do not become any.

        Commands are put there by a rename and are whole from the start. A file that somebody
        writes in place, with an editor or a script, has some seconds to become one.

        Args:
            now: Seconds on any clock that only goes on.
            at_once: Whether those in `active/` go at once, as at the start of a trainer: only an
                earlier one wrote there.

        Returns:
            A sentence for each file that was deleted.
        """
        cleared = []
        found: dict[Path, tuple[tuple[int, int, int], float]] = {}
        for place in (self._run.inbox, self._run.active):
            for path in _json_files(place):
                problem, identity = _damage(path)
                if not problem:
                    continue
                before = self._damaged.get(path)
                since = before[1] if before is not None and before[0] == identity else now
                if now - since >= DAMAGED_SECONDS or (at_once and place == self._run.active):
                    path.unlink(missing_ok=True)
                    cleared.append(f"Deleted {path.name} from {place.name}: {problem}")
                else:
                    found[path] = identity, since
        self._damaged = found
        return cleared

    def _commands_in(self, place: Path) -> list[Command]:
        commands = []
        for path in _json_files(place):
            try:
                command = load(path, Command)
            except (DamagedFileError, OSError):
                continue
            if command.id == path.stem:
                commands.append(command)
        return sorted(commands, key=lambda c: (c.requested_at, c.id))

    def _move(self, source: Path, target: Path, command: Command) -> bool:
        """Renames a command's file and rewrites it there; False if another was quicker."""
        make_directory(target)
        name = f"{command.id}.json"
        try:
            os.rename(source / name, target / name)
        except FileNotFoundError:
            return False
        with suppress(OSError):
            # The rename decides; what a full disk keeps from being written are only the words.
            store(target / name, command)
        return True

    def _forget_old_outcomes(self) -> None:
        names = sorted(path.name for path in _json_files(self._run.done))
        for name in names[:-KEPT_OUTCOMES]:
            (self._run.done / name).unlink(missing_ok=True)


def _damage(path: Path) -> tuple[str, tuple[int, int, int]]:
    """Returns what keeps a file from being a command, and what tells that it was changed."""
    try:
        facts = os.lstat(path)
        command = load(path, Command)
    except DamagedFileError as error:
        problem = str(error)
    except OSError:
        # It was taken meanwhile, or the disk cannot be read: neither says that it is damaged.
        return "", (0, 0, 0)
    else:
        problem = "" if command.id == path.stem else f"it holds another command, {command.id!r}."
    return problem, (facts.st_size, facts.st_mtime_ns, facts.st_ino)


def _json_files(place: Path) -> list[Path]:
    try:
        entries = list(os.scandir(place))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        Path(entry.path)
        for entry in entries
        if entry.name.endswith(".json") and is_plain_name(entry.name) and not entry.is_symlink()
    ]
