"""What `check` and `selftest` print."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.exactness.likely_causes import Cause
from tfckpt_trainer.exactness.step_differences import What
from tfckpt_trainer.rundir.records.check import Pass, StateKind
from tfckpt_tui.reports.base import Report


class CheckedPass(msgspec.Struct, frozen=True, kw_only=True):
    """How a repeated pass went; if it is exact, the fields from `what` to `message` are null.

    Attributes:
        pass_: How the run was restored before it, so never `first`.
        exact: Whether this pass is exact; then the fields up to `message` are null.
        steps: Steps that it repeated.
        what: What differs first; `end` if the training ended earlier.
        name: Name of the object or metric.
        kind: Kind of the object.
        passed: Whether an object that was passed to `TrainingRun` holds it.
        worker: Index of the worker.
        step: Steps done.
        after_steps: Steps since the restore; 0 right after it.
        message: The same as a sentence.
        others: What else differs at this point.
        cause: The likely cause of the first difference.
    """

    pass_: Pass = msgspec.field(name="pass")
    exact: bool
    steps: int
    what: What | None
    name: str | None
    kind: StateKind | None
    passed: bool | None
    worker: int | None
    step: int | None
    after_steps: int | None
    message: str | None
    others: tuple[str, ...]
    cause: Cause | None


class CheckReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if any pass is not exact, or if there are `obstacles`. A script that cannot be
    checked gives an error instead.

    Attributes:
        exact: Whether all repeated steps are equal, bit by bit.
        command: The command of each worker.
        workers: Workers that recorded steps.
        steps: Steps that every pass repeated.
        metrics: Names of the compared metrics.
        objects: Objects whose state was compared, on the worker that has most.
        input_compared: Whether the input of each step was compared.
        gpu_order_varies: Whether steps ran on a GPU without op determinism; then `exact` may be a
            coincidence.
        obstacles: Why resuming is known not to be exact, even if no compared step differs.
        remedies: What to change in the script; empty without `obstacles`.
        seconds: Duration of the check.
        stored: The file that stores the result; null if it is not stored.
    """

    exact: bool
    command: tuple[str, ...]
    workers: int
    steps: int
    metrics: tuple[str, ...]
    objects: int
    input_compared: bool
    gpu_order_varies: bool
    obstacles: tuple[str, ...]
    remedies: tuple[str, ...]
    seconds: float
    stored: str | None
    passes: tuple[CheckedPass, ...]


class Outcome(StrEnum):
    """The outcome of a row."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_MEASURED = "not measured"


class Row(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        name: What was tested.
        outcome: Whether it passed.
        found: What was found, with units.
        compared: What was compared, and how.
        advice: What to do if it failed, else empty.
    """

    name: str
    outcome: Outcome
    found: str
    compared: str
    advice: str = ""


class SelfTestReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if a row failed.

    Attributes:
        passed: Whether no row failed.
        strategy: The strategy: `one-device`, `mirrored`, `multi-worker` or `tpu`.
        workers: Number of workers.
        seconds: Duration of the self-test.
        machine: Facts about the machine by name: versions, GPUs, CPUs, file system; each a text.
        problems: Why a training failed, with the end of its log.
    """

    passed: bool
    strategy: str
    workers: int
    seconds: float
    machine: dict[str, str]
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
