"""Writes the event log and command outcomes of the chief, with retries on disk errors."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.files import NotFlushedError
from tfckpt_trainer.rundir.journal import write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import JournalEntry, JournalKind

_Queue = deque[Callable[[], None]]


class JournalWriter:
    """Writes the event log, command outcomes and other files of the chief.

    Disk errors do not end training: failed writes are queued, and the heartbeat calls `retry`.
    Events, outcomes and other files have separate queues, so one does not delay the others.

    Attributes:
        is_chief: Whether this worker is the chief. Other workers write nothing.
        trouble: Description of a flush error of the last event; empty if there was none.
    """

    def __init__(self, run: RunDirectory, queue: CommandQueue, *, is_chief: bool) -> None:
        self._run = run
        self._queue = queue
        self.is_chief = is_chief
        self._lines: _Queue = deque()
        self._answers: _Queue = deque()
        self._files: _Queue = deque()
        self._lock = threading.Lock()
        self.trouble = ""

    def note(self, kind: JournalKind, message: str, **fields: Any) -> None:
        """Appends an event to the event log."""
        entry = JournalEntry(at=time.time(), kind=kind, message=message, **fields)
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

    def later(self, action: Callable[[], None]) -> None:
        """Runs `action`, which writes another file, now or once the disk allows it."""
        self._write(self._files, action)

    def retry(self) -> None:
        """Repeats failed writes.

        Raises:
            OSError: A write still fails.
        """
        refused: OSError | None = None
        with self._lock:
            for waiting in (self._files, self._answers, self._lines):
                try:
                    while waiting:
                        waiting[0]()
                        waiting.popleft()
                except OSError as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    def _append(self, entry: JournalEntry) -> None:
        try:
            write_entry(self._run, entry)
        except NotFlushedError as error:
            # The line was written and must not be written again.
            self.trouble = f"the event log may not survive a power loss: {describe_error(error)}"
        else:
            self.trouble = ""

    def _write(self, waiting: _Queue, action: Callable[[], None]) -> None:
        if not self.is_chief:
            return
        waiting.append(action)
        try:
            self.retry()
        except OSError:
            # The action stays in the queue, and the heartbeat reports the error.
            return
