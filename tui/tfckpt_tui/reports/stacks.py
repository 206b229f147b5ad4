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
        worker: Its index.
        host: Its host.
        problem: Why nothing is known; empty if it answered.
        threads: Its threads, the main one first.
    """

    worker: int
    host: str
    problem: str
    threads: tuple[ThreadFacts, ...]


class StacksReport(Report, frozen=True, kw_only=True):
    """What the threads of all workers do. Exit code 1 if a worker does not answer.

    Attributes:
        workers: For each worker that has written a heartbeat.
    """

    workers: tuple[WorkerStacksFacts, ...]
