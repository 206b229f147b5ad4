"""What `profile` prints."""

from __future__ import annotations

import msgspec

from tfckpt_tui.reports.base import Report


class OperationFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operation in a trace.

    Attributes:
        name: Its name in the graph; of a device, the name of a kernel.
        kind: Its type, such as `MatMul`; empty on a device.
        place: `CPU`, or a device such as `GPU:0`.
        calls: How often it ran in all traced steps.
        seconds: How long it took in all calls, without operations that it called.
        share: Its part of the time of all operations, from 0 to 1.
    """

    name: str
    kind: str
    place: str
    calls: int
    seconds: float
    share: float


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of one worker.

    Attributes:
        worker: Its index.
        file: The trace, which TensorBoard's profile plugin shows.
        before_seconds: Median time of the steps before; null if there were too few.
        step_seconds: Median time of the traced steps.
        write_seconds: How long training then waited until the trace was written.
        operations: The operations that took most time, the longest first.
        problem: Why there are none; empty if there are.
    """

    worker: int
    file: str
    before_seconds: float | None
    step_seconds: float | None
    write_seconds: float
    operations: tuple[OperationFacts, ...]
    problem: str


class ProfileReport(Report, frozen=True, kw_only=True):
    """Which operations of a step took most of the time. Exit code 1 if a trace cannot be read.

    Attributes:
        message: One sentence.
        steps: How many steps were traced.
        traces: For each worker that traced.
    """

    message: str
    steps: int
    traces: tuple[TraceFacts, ...]
