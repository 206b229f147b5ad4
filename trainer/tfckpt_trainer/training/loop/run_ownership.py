"""Makes this process the only trainer of a run directory."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tfckpt_trainer.code_version import code_directory, read_code_version
from tfckpt_trainer.errors import ExitCode, RefusedError
from tfckpt_trainer.rundir.disk_reserve import keep_reserve
from tfckpt_trainer.rundir.leftover_files import delete_leftovers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import ScriptCommand
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.documents import remove, store
from tfckpt_trainer.rundir.storage.files import IrregularFileError
from tfckpt_trainer.rundir.storage.locks import take_lock
from tfckpt_trainer.rundir.storage.parent_directory import LinkedFileError
from tfckpt_trainer.training.process.signals_and_exit import is_restart, leave, was_launched
from tfckpt_trainer.training.telemetry.telemetry import Telemetry

LOCK_SECONDS = 30.0
"""How long a start waits for the lock: a prune or an ending trainer may hold it."""

LOCK_AGAIN_SECONDS = 3.0
"""How long an error of the script waits for it: longer than a prune of a few checkpoints."""


class RunOwnership:
    """Holds the trainer's lock of a run directory, on the chief only."""

    def __init__(self, run: RunDirectory, telemetry: Telemetry) -> None:
        self._run = run
        self._queue = telemetry.queue
        self._event_log = telemetry.event_log
        telemetry.heartbeat.file.on_other_trainer = self._leave_to_other
        self._lock: int | None = None

    def acquire(self, **info: Any) -> None:
        """Takes the lock, ends the commands of an earlier trainer, and writes `run.json`.

        Args:
            **info: Fields of `RunInfo` to set.

        Raises:
            RefusedError: Another trainer holds the lock.
            OSError: The disk refuses.
        """
        self._acquire_lock()
        for command in self._queue.abandon_active("The trainer ended before it was finished."):
            self._event_log.note(
                EventKind.FAILED,
                f"{command.kind.value}: the trainer ended before it was finished.",
                by=command.requested_by,
            )
        for removed in self._queue.clear_damaged(time.monotonic(), at_once=True):
            self._event_log.note(EventKind.NOTE, removed)
        if not was_launched():
            info["code"] = read_code_version(code_directory(sys.argv[:1], Path.cwd()))
        self._event_log.run_id = update_run_info(self._run, **info).id
        _store_command(self._run)
        delete_leftovers(self._run)
        keep_reserve(self._run)

    def acquire_again(self) -> bool:
        """Takes the lock after `release`; returns False if another trainer has it."""
        self._lock = take_lock(self._run.trainer_lock, LOCK_AGAIN_SECONDS)
        return self._lock is not None

    def release(self) -> None:
        """Releases the lock, if this process holds it."""
        held, self._lock = self._lock, None
        if held is not None:
            os.close(held)

    def _leave_to_other(self, other: WorkerStatus) -> None:
        """Ends this process at once: another trainer writes to the same directory.

        The lock does not prevent that on a network disk that does not share locks. A save would
        mix the files of both.
        """
        message = (
            f"Another trainer is running in {self._run.root}: worker {other.index} on "
            f"{other.host} (process {other.pid}) started first. The file system does not share "
            "locks. This trainer ends without a save. Train in another directory."
        )
        self._event_log.note(EventKind.FAILED, message)
        sys.stderr.write(f"{message}\n")
        leave(ExitCode.REFUSED)

    def _take_lock(self) -> int | None:
        """Takes the lock. What lies in place of its file ends no run that goes on."""
        try:
            return take_lock(self._run.trainer_lock, LOCK_SECONDS)
        except (IrregularFileError, IsADirectoryError, LinkedFileError):
            if not is_restart():
                raise
            for moved in self._run.move_others_aside():
                self._event_log.note(EventKind.NOTE, moved)
            return take_lock(self._run.trainer_lock, LOCK_SECONDS)

    def _acquire_lock(self) -> None:
        self._lock = self._take_lock()
        if self._lock is None:
            run = self._run
            raise RefusedError(
                f"Another trainer, a prune or a copy works in {run.root}: it holds "
                f"{run.trainer_lock}. `tfckpt-tui stop {run.shell_word}` stops a trainer; wait for "
                "the others, or train in another directory."
            )


def _store_command(run: RunDirectory) -> None:
    """Stores the command of this process, so that a check of the same script is found.

    A launcher has stored it already.

    Raises:
        OSError: The disk refuses.
    """
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    if was_launched() or not directory:
        remove(run.command_file)
        return
    words = tuple(os.fsencode(word).decode(errors="replace") for word in sys.orig_argv)
    store(run.command_file, ScriptCommand(command=words, working_directory=directory))
