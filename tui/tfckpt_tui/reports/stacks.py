"""What `stacks` prints."""

from __future__ import annotations

import msgspec

from tfckpt_tui.reports.base import Report


class ThreadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread does.

    Attributes:
        name: Its name.
        is_main: Whether it is the main thread, which usually trains.
        script_line: The innermost line of the script and its source; empty if none is known.
        frames: `FILE:LINE in FUNCTION`, the outermost first.
    """

    name: str
    is_main: bool
    script_line: str
    frames: tuple[str, ...]


class WorkerStacksFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the threads of one worker do.

    Attributes:
        worker: Its index; null for a process that trains without this library.
        pid: Process id of such a process; null for a worker.
        host: Its host.
        problem: Why nothing is known; empty if it answered.
        threads: Its threads, the main one first.
    """

    worker: int | None
    pid: int | None = None
    host: str
    problem: str
    threads: tuple[ThreadFacts, ...]

    @property
    def name(self) -> str:
        """What it is called in lists."""
        return f"process {self.pid}" if self.worker is None else f"worker {self.worker}"


class StacksReport(Report, frozen=True, kw_only=True):
    """What the threads of all workers do. Exit code 1 if a worker does not answer.

    Attributes:
        workers: For each worker that has written a heartbeat; without one, for each process of this
            host that trains without this library.
    """

    workers: tuple[WorkerStacksFacts, ...]
