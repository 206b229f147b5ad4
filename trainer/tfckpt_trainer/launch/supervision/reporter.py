"""The output of a supervisor: its heartbeat, its entries in the event log, and its own log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.processes.workers import Worker
from tfckpt_trainer.rundir.event_log import write_entry
from tfckpt_trainer.rundir.heartbeats.attention import INTERVAL_SECONDS, Attention
from tfckpt_trainer.rundir.heartbeats.heartbeat_file import HeartbeatFile
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import own_process
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.heartbeats.status_files import directory_of
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus


class Reporter:
    """Writes the heartbeat, the event log and the log of a supervisor.

    A full or failing disk must not end training: an entry that cannot be written is dropped, and
    the next heartbeat is tried again.

    Attributes:
        workers: The processes in the heartbeat.
        attempt: Number of the current start of all workers, from 0.
        restarts: Number of restarts used.
        gpus: Which GPUs are idle, shared or not counted, as a sentence; empty if none are.
        attention: Whether somebody looks at the run.
    """

    def __init__(
        self,
        run: RunDirectory,
        max_restarts: int,
        on_event: Callable[[EventEntry], None] = lambda entry: None,
    ) -> None:
        """Creates a reporter.

        Args:
            run: The run directory.
            max_restarts: How often all workers may be restarted.
            on_event: Called with each entry of the event log, also if that cannot be written.
        """
        self.workers: Sequence[Worker] = ()
        self.attempt = 0
        self.restarts = 0
        self.gpus = ""
        self._run = run
        self._file = HeartbeatFile(run.supervisor_status, SupervisorStatus)
        self._max_restarts = max_restarts
        self._on_event = on_event
        self._state = SupervisorState.STARTING
        self._reason = ""
        self._next_start_at: float | None = None
        self._due_at = 0.0
        self.attention = Attention(run, asks=True)
        before = read_supervisor(run)
        self._longest_start = before.longest_start_seconds if before is not None else None

    @property
    def state(self) -> SupervisorState:
        """The current state of the supervisor."""
        return self._state

    @property
    def reason(self) -> str:
        """The reason of the current state."""
        return self._reason

    def enter(
        self, state: SupervisorState, reason: str = "", next_start_at: float | None = None
    ) -> None:
        """Enters a new state and reports it with its reason."""
        self._state = state
        self._reason = reason
        self._next_start_at = next_start_at
        self._print(f"{state.value}. {reason}" if reason else state.value)
        self.beat()

    def note_start_seconds(self, seconds: float) -> None:
        """Records how long a start of all workers took, if no earlier one took longer."""
        self._longest_start = max(seconds, self._longest_start or 0.0)

    def note(
        self,
        kind: EventKind,
        message: str,
        details: dict[str, Any] | None = None,
        by: str = SUPERVISOR,
    ) -> None:
        """Writes one entry of the event log."""
        entry = EventEntry(at=time.time(), kind=kind, message=message, by=by, details=details or {})
        self._on_event(entry)
        self._try(lambda: write_entry(self._run, entry), "the event log")

    def beat_if_due(self) -> None:
        """Writes a heartbeat if one is due, or again each second because somebody looks now."""
        self.attention.ask()
        seconds_late = time.monotonic() - self._due_at
        if seconds_late >= 0 or (self.attention.is_given and seconds_late < -INTERVAL_SECONDS):
            self.beat()

    def beat(self) -> None:
        """Writes a heartbeat now."""
        self._due_at = time.monotonic() + self.attention.pace.interval_seconds
        status = SupervisorStatus(
            **own_process()._asdict(),
            host=host_name(),
            namespace=process_namespace(),
            directory=directory_of(self._run),
            updated_at=time.time(),
            **self.attention.pace._asdict(),
            state=self._state,
            attempt=self.attempt,
            restarts=self.restarts,
            max_restarts=self._max_restarts,
            reason=self._reason,
            next_start_at=self._next_start_at,
            workers=[worker.facts() for worker in self.workers if worker.pid],
            longest_start_seconds=self._longest_start,
            gpus=self.gpus,
        )
        self._try(lambda: self._file.write(status, if_full=status), "heartbeat")

    def _try(self, write: Callable[[], object], what: str) -> None:
        try:
            write()
        except (OSError, TfckptError) as error:
            self._print(f"cannot write {what}: {error}")

    def _print(self, words: str) -> None:
        try:
            sys.stdout.write(f"{time.strftime('%H:%M:%S')} {words}\n")
            sys.stdout.flush()
        except OSError:
            return  # The log is on the failing disk; there is no other place to report it.
