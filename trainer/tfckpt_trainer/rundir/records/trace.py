"""What a profile leaves on one worker, in the answer to its command."""

from __future__ import annotations

import msgspec


class TraceOfWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a trace on one worker.

    Attributes:
        worker: Its index.
        file: The trace, an `XSpace` of TensorFlow; empty if there is none.
        before_seconds: Median time of the steps before; None if there were too few.
        step_seconds: Median time of the traced steps.
        write_seconds: How long training then waited until the trace was written.
        problem: Why there is no trace; empty if there is one.
    """

    worker: int
    file: str = ""
    before_seconds: float | None = None
    step_seconds: float | None = None
    write_seconds: float = 0.0
    problem: str = ""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a profile.

    Attributes:
        steps: How many steps were traced.
        workers: For each worker that traced.
    """

    steps: int
    workers: list[TraceOfWorker]
