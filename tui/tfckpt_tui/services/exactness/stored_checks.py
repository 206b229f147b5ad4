"""Keeps the results of checks in the user's state directory, one for each command.

The run directory of a training stays untouched. A result counts for the same script with the same
options in the same working directory, with as many workers, as long as the script has not changed.
Which run directory and which Python the command names does not matter. Nor does it matter whether
`tfckpt-tui` launched the run.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.machine.user_directories import state_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.exactness import CheckSummary
from tfckpt_trainer.rundir.records.run import RunInfo, ScriptCommand
from tfckpt_trainer.rundir.storage.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import provide_directory

if TYPE_CHECKING:
    from tfckpt_tui.services.exactness.check import CheckResult


class StartedCommand(Protocol):
    """A command, as a check, a launcher or the trainer names it."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command of each worker."""

    @property
    def working_directory(self) -> str:
        """Where it runs."""


class StoredCheck(Document, frozen=True, kw_only=True):
    """The result of the last check of a command, which may hold secrets.

    Attributes:
        command: The command of each worker.
        working_directory: Where it ran.
        workers: Number of all processes, with a chief and parameter servers.
        script: Digest of the script; empty if no file of the command is one.
        checked_at: When, in seconds since 1970.
        steps: Steps that were repeated.
        exact: Whether they were exact.
        difference: The first difference in a sentence; empty if there is none.
    """

    is_private: ClassVar[bool] = True

    command: list[str]
    working_directory: str
    workers: int
    script: str
    checked_at: float
    steps: int
    exact: bool
    difference: str = ""


def store_check(result: CheckResult, processes: int, difference: str) -> Path | None:
    """Stores a result, and returns its file; None without a home directory.

    Args:
        result: The result.
        processes: Number of all processes, with a chief and parameter servers.
        difference: The first difference in a sentence.

    Raises:
        OSError: The disk refuses.
    """
    options = result.options
    path = _file(options, processes, result.run_directory)
    if path is None:
        return None
    provide_directory(path.parent)
    store(
        path,
        StoredCheck(
            command=list(options.command),
            working_directory=options.working_directory,
            workers=processes,
            script=script_digest(options),
            checked_at=time.time(),
            steps=result.steps,
            exact=result.exact,
            difference=difference,
        ),
    )
    return path


def stored_check(run: RunDirectory, workers: int) -> CheckSummary | None:
    """Returns the last check of the script of a run; None if there was none.

    Args:
        run: The run directory, which has the command.
        workers: Number of all processes of the run.
    """
    options = started_command(run)
    if options is None:
        return None
    script = script_digest(options)
    outdated = None
    # The script may use the word for something else, and take the run directory of the launcher.
    for run_directory in (os.path.realpath(run.root), ""):
        path = _file(options, workers or 1, run_directory)
        try:
            check = load_if_exists(path, StoredCheck) if path is not None else None
        except (DamagedFileError, OSError):
            continue
        if check is not None:
            from tfckpt_trainer.launch.options import program_name

            summary = CheckSummary(
                at=check.checked_at,
                steps=check.steps,
                difference=check.difference.rstrip("."),
                script=program_name(options.command),
                is_outdated=check.script != script,
            )
            if not summary.is_outdated:
                return summary
            outdated = outdated or summary
    return outdated


def started_command(run: RunDirectory) -> StartedCommand | None:
    """Returns how the script of a run was started; None if it is unknown, or another user's."""
    try:
        started = load_if_exists(run.command_file, ScriptCommand)
        if started is not None:
            return started
        # Imported here, as above: a trainer of this library records its own command.
        from tfckpt_trainer.launch.options import LaunchRecord

        return load_if_exists(run.launch_file, LaunchRecord)
    except (DamagedFileError, OSError):
        return None


def with_stored_check(info: RunInfo, run: RunDirectory) -> RunInfo:
    """Returns the description of a run with the last check of its script, if there was one.

    Args:
        info: The description.
        run: The run directory.
    """
    check, quick = stored_check(run, info.worker_count), info.check
    if check is None or (quick is not None and (quick.difference or check.is_outdated)):
        return info
    return msgspec.structs.replace(info, check=check)


def script_digest(options: StartedCommand) -> str:
    """Returns a digest of the script that a command runs; empty if it names no file."""
    argument = _find_script(options)
    return hashlib.sha256(argument[1].read_bytes()).hexdigest() if argument is not None else ""


def _find_script(options: StartedCommand) -> tuple[int, Path] | None:
    """Returns the place of the script in a command and its path; None if it names no file."""
    for place, word in enumerate(options.command):
        is_module = place > 0 and options.command[place - 1] == "-m"
        name = f"{word.replace('.', '/')}.py" if is_module else word
        path = Path(options.working_directory, name)
        if name.endswith(".py") and path.is_file():
            return place, path
    return None


def _file(options: StartedCommand, processes: int, run_directory: str) -> Path | None:
    directory = state_directory()
    if directory is None:
        return None
    working_directory = os.path.realpath(options.working_directory)
    words = [working_directory, str(processes), *_what_runs(options, run_directory)]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()
    return directory / "checks" / f"{digest[:32]}.json"


def _what_runs(options: StartedCommand, run_directory: str) -> list[str]:
    """Returns the command without its Python, and without the word that is the run directory."""
    command = list(options.command)
    argument = _find_script(options)
    before: list[str] = []
    if argument is not None:
        place, script = argument
        before = [word for word in command[:place] if not _PYTHON.match(word)]
        before.append(os.path.realpath(script))
        command = command[place + 1 :]

    def is_run_directory(word: str) -> bool:
        path = os.path.join(options.working_directory, word)
        return bool(run_directory) and os.path.realpath(path) == run_directory

    after = []
    for word in command:
        name, equals, value = word.partition("=")
        if equals and is_run_directory(value):
            after.append(name)
        elif not is_run_directory(word):
            after.append(word)
    return [*before, *after]


_PYTHON = re.compile(r"(?:.*/)?python[\d.]*$|-m$|-[uBs]+$")
"""The interpreter and those of its options that do not change what a script computes."""
