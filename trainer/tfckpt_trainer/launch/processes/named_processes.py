"""Decides whether a process that a file in a run directory names may be signaled.

Whoever may write to the directory can name any process there. Root, or the user of that process,
would end it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.rundir.heartbeats.process_table import process_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.documents import Document, why_not_named
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_trainer.words.advice import Advice

_SUPERVISORS = b"tfckpt_trainer.launch."
_RUN_VARIABLE = b"TFCKPT_RUN_DIR="


def require_named_by_its_user(
    run: RunDirectory, pid: int, named_in: Path, kind: type[Document]
) -> None:
    """Raises an error unless the user of a process has named it as one of this run.

    Args:
        run: The run directory.
        pid: The ID of a process on this machine; nothing is checked if it has ended.
        named_in: The file that names it.
        kind: The type of that file, with `pid`, or the processes of `workers`.

    Raises:
        LaunchError: Another user could have written the file, it names the process no longer, or
            the process belongs to another run.
    """
    user = process_user(pid)
    if user is None:
        return
    problem = why_not_named(named_in, kind, user, lambda named: pid in _processes_in(named))
    problem = problem or _other_run(run, pid)
    if problem:
        raise LaunchError(
            f"Process {pid} of {user_name(user)} is not signaled. {problem}",
            Advice.of(
                "Look at it with `ps -fp {pid}`. If it belongs to this run, end it: `kill {pid}`.",
                pid=pid,
            ),
        )


def not_permitted(what: str, pid: int) -> LaunchError:
    """Returns the error for a process that this user may not signal.

    Args:
        what: The process, as the beginning of a sentence.
        pid: Its ID.
    """
    user = process_user(pid)
    owner = "another user" if user is None else user_name(user)
    return LaunchError(
        f"{what} belongs to {owner} and cannot be ended by you.",
        Advice.of("End it as that user: `kill {pid}`.", pid=pid),
    )


def _processes_in(named: Document) -> set[int]:
    """Returns the process IDs in a heartbeat, of a supervisor with those of its workers."""
    own: int = getattr(named, "pid", 0)
    return {own, *(worker.pid for worker in getattr(named, "workers", ()))}


def _other_run(run: RunDirectory, pid: int) -> str:
    """Says that a process belongs to another run; empty if it does not, or does not tell.

    A file of this run may be one that its user wrote for another run.
    """
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        told = [v.removeprefix(_RUN_VARIABLE) for v in variables if v.startswith(_RUN_VARIABLE)]
        if any(word.startswith(_SUPERVISORS) for word in words):
            told = words[-1:]
        # A directory that was moved meanwhile is no other one.
        if told and not os.path.samefile(told[0], run.root):
            return f"It belongs to the run {os.fsdecode(told[0])}."
    return ""
