"""Keeps the results of checks in the user's state directory, one for each command.

The run directory of a training stays untouched. A result counts for the same command in the same
working directory, with as many workers, as long as the script has not changed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.records.exactness import CheckSummary
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.user_directories import state_directory
from tfckpt_tui.services.exactness.check import CheckOptions, CheckResult


class StoredCheck(Document, frozen=True, kw_only=True):
    """The result of the last check of a command.

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
    path = _file(options.command, options.working_directory, processes)
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
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


def stored_check(info: RunInfo) -> StoredCheck | None:
    """Returns the result that counts for a run; None if its script was not checked as it is.

    Args:
        info: The description of the run, which has its command.
    """
    if not info.command or not info.working_directory:
        return None
    path = _file(info.command, info.working_directory, info.worker_count or 1)
    try:
        found = load_if_exists(path, StoredCheck) if path is not None else None
    except (DamagedFileError, OSError):
        return None
    options = CheckOptions(tuple(info.command), info.working_directory)
    return found if found is not None and found.script == script_digest(options) else None


def with_stored_check(info: RunInfo) -> RunInfo:
    """Returns the description of a run with the last check of its script, if there was one."""
    found = stored_check(info)
    if found is None:
        return info
    result = CheckSummary(at=found.checked_at, steps=found.steps, difference=found.difference)
    return msgspec.structs.replace(info, check=result)


def script_digest(options: CheckOptions) -> str:
    """Returns a digest of the script that a command runs; empty if it names no file."""
    for before, word in zip(("", *options.command), options.command, strict=False):
        name = f"{word.replace('.', '/')}.py" if before == "-m" else word
        path = Path(options.working_directory, name)
        if name.endswith(".py") and path.is_file():
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _file(command: Sequence[str], working_directory: str, processes: int) -> Path | None:
    directory = state_directory()
    if directory is None:
        return None
    words = "\0".join([os.path.realpath(working_directory), str(processes), *command])
    return directory / "checks" / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.json"
