"""The command queue: requests to the trainer, and their outcomes, as files.

A command is a file in `inbox/`. The trainer claims it by a rename to `active/`, updates it there,
and moves it to `done/`. A rename succeeds for one process only, so each command is either carried
out once or expires.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.errors import DamagedFileError, NewerFileError, UsageError
from tfckpt_trainer.machine.permissions import name_of
from tfckpt_trainer.rundir.heartbeats.clock import TOLERANCE_SECONDS, file_system_ahead
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.heartbeats.status_files import load_status, other_writer, store_status
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandKind,
    CommandState,
    Transition,
    parse_arguments,
)
from tfckpt_trainer.rundir.storage.documents import (
    OnError,
    ignore,
    load,
    load_if_exists,
    store,
    try_read,
)
from tfckpt_trainer.rundir.storage.files import delete_file, list_directory, make_directory, rename
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in
from tfckpt_trainer.rundir.storage.owners import signed_by
from tfckpt_trainer.words.counts import count
from tfckpt_trainer.words.times import utc_time

DEFAULT_LIFETIME = 60.0
"""Seconds after which an unclaimed command expires."""

POLL_SECONDS = 0.02
"""Interval at which `CommandQueue.wait` polls for an outcome."""

ASKING_SECONDS = 2.0
"""Interval at which it asks whether a claimed command may still be carried out."""

NETWORK_POLL_SECONDS = 0.25
"""The same on a network disk."""

DAMAGED_SECONDS = 10.0
"""Age at which an unchanged file that is not a valid command is deleted."""

NAMED_DAMAGED = 5
"""How many of the files that are deleted at once are named."""

_EXPECTED = (
    "A command is a JSON object with id, requested_at, expires_at, requested_by and kind: "
    f"{', '.join(CommandKind)}."
)

LARGEST_REFUSED = 10_000
"""Bytes of invalid arguments that are kept in the answer."""

KEPT_OUTCOMES = 500
"""Number of finished commands that are kept in `done/`."""

_NAMES_OF_USER = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Environment variables that may name the user, the first one first."""


def requester(through: str) -> str:
    """Returns the requester for the event log: `USER@HOST, THROUGH`."""
    # What `getpass.getuser` returns: that takes as long to import as this module.
    named = filter(None, map(os.environ.get, _NAMES_OF_USER))
    # The user of a container may be missing in the password file.
    user = next(named, "") or name_of(os.getuid()) or f"user {os.getuid()}"
    return f"{user}@{host_name()}, {through}"


def new_command(
    kind: CommandKind,
    arguments: dict[str, Any],
    *,
    requested_by: str,
    at: float,
    lifetime: float = DEFAULT_LIFETIME,
) -> Command:
    """Returns a command that nobody has taken yet.

    Args:
        kind: The kind of command.
        arguments: The record of the kind in `command.ARGUMENTS` names them.
        requested_by: Who asks.
        at: Time of the request in seconds since the epoch.
        lifetime: Seconds after which it expires if unclaimed.
    """
    stamp = utc_time(at, "%Y%m%dT%H%M%S")
    return Command(
        id=f"{stamp}-{kind.value}-{os.urandom(4).hex()}",
        kind=kind,
        arguments=arguments,
        requested_at=at,
        expires_at=at + lifetime,
        requested_by=requested_by,
        history=[Transition(state=CommandState.REQUESTED, at=at)],
    )


def advance(command: Command, state: CommandState, message: str, **changes: Any) -> Command:
    """Returns `command` in `state`, with the transition added to its history."""
    now = time.time()
    # A file name in it may not be UTF-8, and the answer has to be written.
    message = message.encode("utf-8", "backslashreplace").decode()
    return msgspec.structs.replace(
        command,
        state=state,
        message=message,
        history=[*command.history, Transition(state=state, at=now, message=message)],
        **changes,
    )


class _Request(Command, frozen=True, kw_only=True):
    """A command as anyone may have written it: its arguments are checked when it is claimed."""

    arguments: Any = {}


class CommandQueue:
    """The commands of one run, for clients and for the trainer."""

    def __init__(self, run: RunDirectory, on_error: OnError = ignore) -> None:
        """Creates a queue.

        Args:
            run: The run directory.
            on_error: Called for each command that cannot be read, and is left out.
        """
        self._run = run
        self._on_error = on_error
        self._damaged: dict[Path, tuple[Identity, float]] = {}

    @property
    def has_damaged(self) -> bool:
        """Whether the last `clear_damaged` found files that it did not delete yet."""
        return bool(self._damaged)

    def submit(
        self,
        kind: CommandKind,
        arguments: dict[str, Any] | None = None,
        *,
        requested_by: str,
        lifetime: float = DEFAULT_LIFETIME,
        now: float | None = None,
    ) -> Command:
        """Adds a command to the queue and returns it.

        Args:
            kind: The kind of command.
            arguments: The record of the kind in `command.ARGUMENTS` names them.
            requested_by: The result of `requester`.
            lifetime: Seconds after which the command expires if unclaimed.
            now: Time of the request in seconds since the epoch; by default the current time.

        Raises:
            UsageError: The arguments are not those of the kind.
        """
        parse_arguments(kind, arguments or {})
        at = time.time() if now is None else now
        self._run.refuse_links()
        make_directory(self._run.inbox)
        command = new_command(
            kind,
            arguments or {},
            requested_by=requested_by,
            at=at,
            lifetime=self._disk_ahead + lifetime,
        )
        store(self._run.inbox / f"{command.id}.json", command)
        return command

    def look_up(self, identifier: str) -> Command | None:
        """Returns the newest state of a command, or None if it does not exist.

        What others wrote who do not run the trainer does not count.

        Raises:
            DamagedFileError: The trainer's answer is no command.
        """
        # Commands move in this order only, so a second pass finds one that moved during the first.
        for _ in range(2):
            for place in (self._run.inbox, self._run.active, self._run.done):
                path = place / f"{identifier}.json"
                if not self._other_writer(path):
                    command = load_status(path, Command)
                    if command is not None:
                        return command
        return None

    def _other_writer(self, path: Path) -> str:
        return other_writer(self._run, 0, path)

    def _forged(self, command: Command) -> Command:
        """Returns a command without an answer as failed if others have written one."""
        writer = self._other_writer(self._run.done / f"{command.id}.json")
        if not writer or command.state.is_final:
            return command
        words = (
            f"{writer}, who does not run the trainer, wrote an answer to it, and nobody else did. "
            "The event log has what was carried out."
        )
        return advance(command, CommandState.FAILED, words)

    def wait(
        self,
        command: Command,
        *,
        timeout: float,
        on_change: Callable[[Command], None] | None = None,
        poll: float | None = None,
        ended: threading.Event | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> Command:
        """Waits until `command` is final, `timeout` seconds have passed or `ended` is set.

        It also ends if a command was claimed and nobody can carry it out any more.

        Withdraws a command that is still unclaimed after its lifetime and returns it as expired.

        Args:
            command: The command that `submit` returned.
            timeout: Seconds.
            on_change: Called with each new state of the command.
            poll: Polling interval in seconds; by default what suits the file system.
            ended: Is set when nobody is interested in the outcome any more.
            goes_on: Says whether a claimed command may still be carried out.
        """
        ended = ended or threading.Event()
        if poll is None:
            is_network = is_network_file_system(self._run.root)
            poll = NETWORK_POLL_SECONDS if is_network else POLL_SECONDS
        began = asked = time.monotonic()
        lifetime = command.expires_at - self._disk_ahead - time.time()
        newest = command
        while not newest.state.is_final:
            seen = self.look_up(command.id) or newest
            if seen != newest and on_change is not None:
                on_change(seen)
            newest = seen
            waited = time.monotonic() - began
            if newest.state is CommandState.REQUESTED and waited > lifetime:
                newest = self.withdraw(newest) or newest
            elif newest.state.is_accepted and time.monotonic() - asked > ASKING_SECONDS:
                asked = time.monotonic()
                if not goes_on():
                    newest = self.look_up(command.id) or newest
                    break
            if waited > timeout or (not newest.state.is_final and ended.wait(poll)):
                break
        return self._forged(newest)

    def withdraw(self, command: Command) -> Command | None:
        """Withdraws an unclaimed command; returns it as expired, or None if it was claimed."""
        expired = advance(
            command,
            CommandState.EXPIRED,
            "No trainer took the command in time. It will not be carried out.",
        )
        return expired if self._move(self._run.inbox, self._run.done, expired) else None

    def pending(self) -> list[Command]:
        """Returns unclaimed commands, oldest first."""
        return self._commands_in(self._run.inbox)

    def working(self) -> list[Command]:
        """Returns commands that were claimed and are not finished, oldest first."""
        return self._commands_in(self._run.active)

    def claim(self, now: float, kind: CommandKind | None = None) -> Command | None:
        """Claims the oldest command as `claims` does; returns None if there is none."""
        return next(self.claims(now, kind), None)

    def claims(self, now: float, kind: CommandKind | None = None) -> Iterator[Command]:
        """Claims commands, oldest first. Withdraws expired commands and drops repeated ones.

        Each file is read once, however many there are.

        Args:
            now: Seconds since the epoch.
            kind: The kind of commands to claim; by default all.

        Yields:
            Each command when it is claimed. It expires by the clock of this machine. One with
            invalid arguments is refused: its state is final then.
        """
        for command in map(_as_requested, self._commands_in(self._run.inbox, _Request)):
            if kind is not None and command.kind is not kind:
                continue
            # Asking the file system creates a file, so not while nothing was asked.
            ahead = self._disk_ahead
            seen = _accepted(self._signed(command))
            answer = self._run.done / f"{command.id}.json"
            if answer.exists() and not self._other_writer(answer):
                delete_file(self._run.inbox / f"{command.id}.json")
            elif now + ahead > command.expires_at:
                # Without its arguments if they are invalid: not all can be written as JSON.
                self.withdraw(msgspec.structs.replace(command, arguments=seen.arguments))
            else:
                # From here on, only this process compares it with a clock.
                seen = msgspec.structs.replace(seen, expires_at=seen.expires_at - ahead)
                place = self._run.done if seen.state.is_final else self._run.active
                if self._move(self._run.inbox, place, seen):
                    yield seen

    def _signed(self, command: Command) -> Command:
        """Adds who wrote the file of a command, if that is not the user who asks by its words."""
        with suppress(OSError):
            owner = os.lstat(self._run.inbox / f"{command.id}.json").st_uid
            by = signed_by(command.requested_by, owner)
            return msgspec.structs.replace(command, requested_by=by)
        return command

    @property
    def _disk_ahead(self) -> float:
        """Seconds by which the clock of the file system is ahead; clocks can differ by hours."""
        with suppress(OSError):
            ahead = file_system_ahead(self._run)
            return ahead if abs(ahead) >= TOLERANCE_SECONDS else 0.0
        return 0.0

    def update(self, command: Command) -> None:
        """Writes the progress of a claimed command."""
        store_status(self._run.active / f"{command.id}.json", command)

    def finish(self, command: Command) -> None:
        """Writes the outcome of a claimed command and moves it to `done/`."""
        # The client waits for the outcome, so it is written in place on a full disk.
        store_status(self._run.active / f"{command.id}.json", command, durable=True)
        rename(self._run.active / f"{command.id}.json", self._run.done / f"{command.id}.json")
        self._forget_old_outcomes()

    def abandon_active(self, reason: str) -> list[Command]:
        """Marks commands as failed that an earlier trainer left unfinished; returns them."""
        abandoned = []
        for command in self.working():
            # The earlier trainer may have died between the outcome and the move to `done/`.
            final = command.state.is_final
            self.finish(command if final else advance(command, CommandState.FAILED, reason))
            if not final:
                abandoned.append(command)
        return abandoned

    def clear_damaged(self, now: float, *, at_once: bool = False) -> list[str]:
        """Deletes files in `inbox/` and `active/` that are not valid commands.

        A file that changes is not deleted: another program may still be writing it.

        Args:
            now: Seconds of a monotonic clock.
            at_once: Whether to delete files in `active/` immediately. Use it when a trainer
                starts, because only an earlier trainer wrote there.

        Returns:
            A sentence for each of the first deleted files, and one for all others.
        """
        cleared = []
        damaged_files: dict[Path, tuple[Identity, float]] = {}
        for place in (self._run.inbox, self._run.active):
            for path in _json_files(place):
                known = self._known_damage(path)
                since = now if known is None else known[1]
                is_due = now - since >= DAMAGED_SECONDS or (at_once and place == self._run.active)
                if known is not None and not is_due:
                    damaged_files[path] = known
                    continue
                problem, identity = _damage(path, _Request if place == self._run.inbox else Command)
                if problem and is_due:
                    delete_file(path)
                    cleared.append(f"Deleted {path.name} from {place.name}: {problem}")
                elif problem:
                    damaged_files[path] = identity, since
        self._damaged = damaged_files
        more = len(cleared) - NAMED_DAMAGED
        if more > 0:
            cleared[NAMED_DAMAGED:] = [f"Deleted {count(more, 'more file')} that are no commands."]
        return cleared

    def _commands_in(self, place: Path, form: type[Command] = Command) -> list[Command]:
        commands = []
        for path in _json_files(place):
            if self._known_damage(path) is not None:
                continue
            # Another process may move it at any moment.
            command = try_read(partial(load_if_exists, path, form), self._on_error)
            if command is not None and command.id == path.stem:
                commands.append(command)
        return sorted(commands, key=lambda c: (c.requested_at, c.id))

    def _known_damage(self, path: Path) -> tuple[Identity, float] | None:
        """Returns the identity of a damaged file and since when it has it; None if it changed."""
        known = self._damaged.get(path)
        with suppress(OSError):
            if known is not None and known[0] == identity_in(os.lstat(path)):
                return known
        return None

    def _move(self, source: Path, target: Path, command: Command) -> bool:
        """Renames a command's file and updates it; returns False if another process was first."""
        make_directory(target)
        name = f"{command.id}.json"
        try:
            rename(source / name, target / name)
        except FileNotFoundError:
            return False
        with suppress(OSError):
            # The rename decides. On a full disk only the new state is missing in the file.
            store(target / name, command)
        if target == self._run.done:
            self._forget_old_outcomes()
        return True

    def _forget_old_outcomes(self) -> None:
        names = sorted(path.name for path in _json_files(self._run.done))
        for name in names[:-KEPT_OUTCOMES]:
            # One that cannot be deleted, such as that of another user, stays.
            with suppress(OSError):
                delete_file(self._run.done / name)


def _as_requested(command: Command) -> Command:
    """Returns a command with what a client decides; the rest is the trainer's to write."""
    return Command(
        id=command.id,
        kind=command.kind,
        arguments=command.arguments,
        requested_at=command.requested_at,
        expires_at=command.expires_at,
        requested_by=command.requested_by,
        history=[Transition(state=CommandState.REQUESTED, at=command.requested_at)],
    )


def _accepted(command: Command) -> Command:
    """Returns a claimed command as seen, or as refused and without its invalid arguments."""
    try:
        parse_arguments(command.kind, command.arguments)
    except UsageError as error:
        kept = _storable(command.arguments)
        return advance(command, CommandState.REFUSED, error.found, arguments=kept)
    return advance(command, CommandState.SEEN, "The trainer acts on it between two steps.")


def _storable(arguments: object) -> dict[str, Any]:
    """Returns invalid arguments, so that people see what was asked; none if they are no JSON."""
    try:
        data = msgspec.json.encode(arguments)
        kept = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError):
        return {}
    return kept if len(data) <= LARGEST_REFUSED and kept == arguments else {}


def _damage(path: Path, form: type[Command]) -> tuple[str, Identity]:
    """Returns why a file is not a valid command, and its identity."""
    try:
        facts = os.lstat(path)
        command = load(path, form)
    except NewerFileError as error:
        problem = str(error)
    except DamagedFileError:
        problem = f"it is not a command. {_EXPECTED}"
    except OSError:
        # The file was claimed in the meantime or cannot be read, so nothing is known about it.
        return "", (0, 0, 0)
    else:
        problem = "" if command.id == path.stem else f"it contains command {command.id!r}."
    return problem, identity_in(facts)


def _json_files(place: Path) -> list[Path]:
    return [
        Path(entry.path)
        for entry in list_directory(place)
        if entry.name.endswith(".json")
        and is_plain_name(entry.name)
        and entry.is_file(follow_symlinks=False)
    ]
