"""Writes the event log and command outcomes of the chief, with retries on disk errors."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.event_log import LOG_LIMIT, rotate_event_log, write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.files import NotFlushedError

_Queue = deque[Callable[[], object]]

WRITE_TIMEOUT_SECONDS = 0.5
"""How long a caller waits for its write. A disk that does not answer must not stop training."""


class EventLogWriter:
    """Writes the event log, command outcomes and other files of the chief, in a thread.

    Callers wait for their write, but not for a disk that does not answer. Disk errors do not end
    training: failed writes are queued, and the heartbeat calls `retry`. Events, outcomes and each
    other file have a queue of their own, so a file that cannot be written delays no other.

    Attributes:
        is_chief: Whether this worker is the chief. Other workers write nothing.
        run_id: The ID of the run; empty until it is known.
        trouble: Description of a flush error of the last event; empty if there was none.
    """

    def __init__(
        self,
        run: RunDirectory,
        queue: CommandQueue,
        *,
        is_chief: bool,
        on_event: Callable[[EventEntry], None] = lambda entry: None,
        limit: int = LOG_LIMIT,
    ) -> None:
        """Creates a writer.

        Args:
            run: The run directory.
            queue: The commands.
            is_chief: Whether this worker is the chief.
            on_event: Called with each event of the chief, before it is written; must not wait.
            limit: The size in bytes above which the event log is rotated.
        """
        self._run = run
        self._queue = queue
        self.is_chief = is_chief
        self._on_event = on_event
        self._limit = limit
        self._log_size = 0
        self._lines: _Queue = deque()
        self._answers: _Queue = deque()
        self._files: dict[Path, _Queue] = {}
        self._rounds = threading.Condition()
        self._requested = self._done = 0
        self._hangs = self._closing = False
        self._refused: Exception | None = None
        self._thread: threading.Thread | None = None
        self.run_id = ""
        self.trouble = ""

    def is_of_other_run(self, run: RunDirectory, info: RunInfo) -> bool:
        """Whether a description in the directory of this run is that of another run."""
        is_here = run.root == self._run.root
        return is_here and bool(self.run_id) and info.id != self.run_id

    def note(self, kind: EventKind, message: str, **fields: Any) -> None:
        """Appends an event to the event log."""
        entry = EventEntry(at=time.time(), kind=kind, message=message, **fields)
        if self.is_chief:
            self._on_event(entry)
        self._write(self._lines, lambda: self._append(entry))

    def advance_command(
        self, command: Command, state: CommandState, message: str, **changes: Any
    ) -> Command:
        """Writes the new state of a command; returns the command with it."""
        newer = advance(command, state, message, **changes)
        if state.is_final:
            self._write(self._answers, lambda: self._queue.finish(newer))
        else:
            self._write(self._answers, lambda: self._queue.update(newer))
        return newer

    def later(self, path: Path, action: Callable[[], object]) -> None:
        """Runs `action`, which writes another file, now or once the disk allows it."""
        self._write(self._files.setdefault(path, deque()), action)

    def later_told(self, path: Path, action: Callable[[], str]) -> None:
        """Runs `action` as `later` does, and notes the sentence that it returns, if any."""

        def act() -> None:
            message = action()
            if message:
                entry = EventEntry(at=time.time(), kind=EventKind.NOTE, message=message)
                self._on_event(entry)
                # This runs in the thread that writes, which comes to the events after this file.
                self._lines.append(lambda: self._append(entry))

        self.later(path, act)

    def update_info(self, **fields: Any) -> None:
        """Writes new values of some fields of `run.json`, now or once the disk allows it."""
        self.later(self._run.run_file, lambda: update_run_info(self._run, self.run_id, **fields))

    def retry(self) -> None:
        """Repeats failed writes.

        Raises:
            Exception: A write still fails, or the disk does not answer.
        """
        if not any(self._queues()):
            return
        if not self._finish_round(WRITE_TIMEOUT_SECONDS):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(self._run.control))
        if self._refused is not None:
            raise self._refused

    def close(self, seconds: float) -> None:
        """Waits until everything is written, for so many seconds at most, and ends the thread."""
        if any(self._queues()):
            self._hangs = False
            self._finish_round(seconds)
        with self._rounds:
            self._closing = True
            self._rounds.notify_all()
        if self._thread is not None and not self._hangs:
            self._thread.join(seconds)

    def _append(self, entry: EventEntry) -> None:
        if self._log_size > self._limit:
            # A log that cannot be rotated grows on.
            with suppress(OSError):
                rotate_event_log(self._run)
                # Another rotation would replace the older log by what little there is.
                self._log_size = 0
        try:
            self._log_size = write_entry(self._run, entry)
        except NotFlushedError as error:
            # The line was written and must not be written again.
            self.trouble = f"the event log may not survive a power loss: {describe_error(error)}"
        else:
            self.trouble = ""

    def _queues(self) -> list[_Queue]:
        return [*self._files.values(), self._answers, self._lines]

    def _write(self, waiting: _Queue, action: Callable[[], object]) -> None:
        if self.is_chief:
            waiting.append(action)
            self._finish_round(WRITE_TIMEOUT_SECONDS)

    def _finish_round(self, seconds: float) -> bool:
        """Has the thread try all writes; returns whether it did within so many seconds."""
        with self._rounds:
            self._requested += 1
            wanted = self._requested
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="tfckpt-events", daemon=True
                )
                self._thread.start()
            self._rounds.notify_all()
            if self._hangs:
                return False
            done = self._rounds.wait_for(lambda: self._done >= wanted, seconds)
            self._hangs = not done
            return done

    def _work(self) -> None:
        while True:
            with self._rounds:
                self._rounds.wait_for(lambda: self._requested > self._done or self._closing)
                taken = self._requested
                if taken == self._done:
                    # A later write starts another thread.
                    self._thread = None
                    return
            refused = self._try_all()
            with self._rounds:
                self._done, self._refused, self._hangs = taken, refused, False
                self._rounds.notify_all()

    def _try_all(self) -> Exception | None:
        """Tries all writes; returns the first error."""
        refused: Exception | None = None
        for waiting in self._queues():
            try:
                while waiting:
                    try:
                        waiting[0]()
                    except OSError:
                        raise
                    except Exception as error:
                        # It can never be written, so it must not block what follows.
                        refused = refused or error
                    waiting.popleft()
            except OSError as error:
                refused = refused or error
        return refused
