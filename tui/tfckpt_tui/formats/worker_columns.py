"""The columns of worker lists. Each one is declared here, once, for all parts of the product.

The table of the app, `status`, `status --json` and the report are made from `COLUMNS`. To add a
column, add one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tfckpt_trainer.catalog.scan.alerts import FIRST_START_SECONDS
from tfckpt_trainer.rundir.heartbeats.health import WorkerState
from tfckpt_trainer.rundir.heartbeats.shared_steps import measured_at
from tfckpt_trainer.rundir.records.worker import (
    BEFORE_RUN,
    GpuStatus,
    Phase,
    TaskShare,
    WorkerStatus,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import JsonField, ListCell, record_of, right_aligned

_STARTING = {
    Phase.IMPORT: "importing TensorFlow",
    Phase.PREPARE: "in the script, before its strategy",
    Phase.JOIN: "waiting for all workers",
    Phase.BUILD: "in the script, before its run",
    Phase.RESTORE: "restoring",
    Phase.INPUT: "waiting for its first input",
    Phase.STEP: "first step",
    Phase.SCRIPT: "in the script, before its first step",
}
_TRAINING = {
    Phase.INPUT: "waiting for input",
    Phase.STEP: "running a step",
    Phase.SCRIPT: "in the script, between two steps",
}


def phase_in_words(status: WorkerStatus, now: float) -> str:
    """Returns the phase of a worker and for how long it lasts; empty if unknown.

    Args:
        status: Its last heartbeat.
        now: Seconds since the epoch.
    """
    phases = _STARTING if status.is_starting else _TRAINING
    words = phases.get(status.phase) if status.phase is not None else None
    if words is None or status.phase_since is None:
        return ""
    seconds = max(0.0, now - status.phase_since)
    if status.phase is Phase.IMPORT and seconds > FIRST_START_SECONDS:
        # No import takes that long: the script may not use this library.
        words = "no sign of the script for"
    return f"{words} {units.duration(seconds)}"


MEASURED_LATE_SECONDS = 30.0
"""A worker that measured itself so much earlier than it was last heard of is worth a column."""

NO_SHARE = TaskShare(job="", task=0)
"""What a process does for a chief where none coordinates it."""

_BEFORE_POSITION = frozenset({None, *BEFORE_RUN, Phase.RESTORE})


class WorkerView(msgspec.Struct, frozen=True):
    """One worker.

    Attributes:
        status: Its last heartbeat.
        state: Its state now.
        age: Age of the heartbeat in seconds.
        straggling: Why it seems to slow down the others; empty if it does not.
        silence: Why it does not react; empty if it does.
        share: What it does for the chief that coordinates it.
    """

    status: WorkerStatus
    state: WorkerState
    age: float
    straggling: str = ""
    silence: str = ""
    share: TaskShare = NO_SHARE

    @property
    def measured_age(self) -> float:
        """Seconds since it measured what the heartbeat tells."""
        return self.age + self.status.updated_at - measured_at(self.status)

    @property
    def is_measured_late(self) -> bool:
        """Whether what it measured is much older than its last sign of life."""
        return self.measured_age - self.age >= MEASURED_LATE_SECONDS

    @property
    def is_past(self) -> bool:
        """Whether what was measured of its process is of the past."""
        return self.state in {WorkerState.EXITED, WorkerState.LOST}

    @property
    def is_starting(self) -> bool:
        """Whether it is on the way to its first step; False once its process is gone."""
        return self.status.is_starting and not self.is_past


class WorkerColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about workers, and how each part of the product shows it.

    A column appears only in the parts that it declares.

    Attributes:
        key: Unique name.
        value: The raw value, at a time in seconds since the epoch.
        json: Field in `status --json`, which holds the raw value.
        text: The value in all tables, made from the record of `json_record`.
        cell: Column of the app's table.
        is_measured: Whether it is measured in steps, and means nothing while a worker starts.
        matters: Whether it says something about a worker; a column that says nothing about any is
            left out. By default it is always shown.
        status: Heading in `status`.
        report: Heading in the report.
    """

    key: str
    value: Callable[[WorkerView, float], Any] = lambda view, at: None
    json: JsonField | None = None
    text: Callable[[Any], str] = lambda worker: ""
    cell: ListCell | None = None
    is_measured: bool = False
    matters: Callable[[WorkerView], bool] | None = None
    status: str = ""
    report: str = ""


def _step(worker: Any) -> str:
    is_known = worker.step or worker.phase not in _BEFORE_POSITION
    return f"{worker.step:,}" if is_known and worker.state is not WorkerState.SERVING else "–"


def _loss(worker: Any) -> str:
    is_unknown = worker.loss is None and "loss" not in worker.metrics
    return "–" if is_unknown else units.metric(worker.loss)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def _busiest(gpus: Sequence[GpuStatus]) -> float | None:
    return max((gpu.use_percent for gpu in gpus if gpu.use_percent is not None), default=None)


def _gpus(view: WorkerView) -> tuple[GpuStatus, ...]:
    return () if view.is_past else tuple(view.status.gpus)


def _gpu_memory(gpus: Sequence[GpuStatus]) -> str:
    if not gpus:
        return "–"
    used, total = (sum(gpu.memory_used for gpu in gpus), sum(gpu.memory_total for gpu in gpus))
    return f"{units.size(used)} of {units.size(total)}"


COLUMNS: tuple[WorkerColumn, ...] = (
    WorkerColumn(
        key="index",
        value=lambda view, _: view.status.index,
        json=JsonField("index", int, "0 is the chief."),
        text=lambda worker: str(worker.index),
        cell=ListCell("worker", 6, style="strong"),
        status="WORKER",
        report="worker",
    ),
    WorkerColumn(
        key="job",
        value=lambda view, _: view.status.job,
        json=JsonField(
            "job", str, "Its job in the cluster: `worker`, `chief`, or `ps`, a parameter server."
        ),
        text=lambda worker: worker.job,
        cell=ListCell("job", 6, align="<"),
        matters=lambda view: view.status.job != "worker",
        status="JOB",
        report="job",
    ),
    WorkerColumn(
        key="state",
        value=lambda view, _: view.state,
        json=JsonField("state", WorkerState, "What it does."),
        text=lambda worker: worker.state.value,
        cell=ListCell("state", 11, align="<"),
        status="STATE",
        report="state",
    ),
    WorkerColumn(
        key="host",
        value=lambda view, _: view.status.host,
        json=JsonField("host", str, "Host name."),
        text=lambda worker: worker.host,
        cell=ListCell("host", 10, rank=7, align="<", stretch=1),
        status="HOST",
        report="host",
    ),
    WorkerColumn(
        key="pid",
        value=lambda view, _: view.status.pid,
        json=JsonField("pid", int, "Process id."),
        text=lambda worker: str(worker.pid),
        cell=ListCell("pid", 7, rank=12, style="muted"),
    ),
    WorkerColumn(
        key="phase",
        value=lambda view, _: view.status.phase,
        json=JsonField(
            "phase",
            Phase | None,
            "Up to `restore` the phases of a start, in their order; then those of training. "
            "`prepare` and `build` are the script before and after `create_strategy`.",
        ),
    ),
    WorkerColumn(
        key="phase-since",
        value=lambda view, _: view.status.phase_since,
        json=JsonField("phase_since", float | None, "When that phase began."),
    ),
    WorkerColumn(
        key="doing",
        value=lambda view, at: phase_in_words(view.status, at) if view.is_starting else "",
        json=JsonField(
            "doing", str, "The phase of a worker that starts, in words; otherwise empty."
        ),
    ),
    WorkerColumn(
        key="step",
        value=lambda view, _: view.status.step,
        json=JsonField("step", int, "The last step that it finished."),
        text=_step,
        cell=ListCell("step", 9),
        status="STEP",
        report="step",
    ),
    WorkerColumn(
        key="branch",
        value=lambda view, _: view.status.branch,
        json=JsonField("branch", int, "The branch it trains."),
    ),
    WorkerColumn(
        key="time",
        value=lambda view, _: view.status.step_seconds,
        json=JsonField("step_seconds", float | None, "Median time of a step."),
        text=lambda worker: units.step_time(worker.step_seconds),
        cell=ListCell("step time", 9, rank=1),
        is_measured=True,
        status="STEP TIME",
        report="step time",
    ),
    WorkerColumn(
        key="p95",
        value=lambda view, _: view.status.step_seconds_p95,
        json=JsonField("step_seconds_p95", float | None, "95th percentile."),
        text=lambda worker: units.step_time(worker.step_seconds_p95),
        cell=ListCell("p95", 7, rank=4),
        is_measured=True,
    ),
    WorkerColumn(
        key="rate",
        value=lambda view, _: None if view.is_past else view.share.steps_per_second,
        json=JsonField(
            "steps_per_second",
            float | None,
            "Steps that it computes for the chief that coordinates it, in the last half minute.",
        ),
        text=lambda worker: units.rate(worker.steps_per_second).removesuffix("/s"),
        cell=ListCell("steps/s", 7, rank=1),
        is_measured=True,
        matters=lambda view: view.share.steps_per_second is not None,
        status="STEPS/S",
        report="steps per second",
    ),
    WorkerColumn(
        key="input",
        value=lambda view, _: view.status.input_wait_seconds,
        json=JsonField(
            "input_wait_seconds", float | None, "Median time that a step waits for its input."
        ),
        text=lambda worker: units.step_time(worker.input_wait_seconds),
        cell=ListCell("input wait", 10, rank=6),
        is_measured=True,
        report="input wait",
    ),
    WorkerColumn(
        key="loss",
        value=lambda view, _: view.status.loss,
        json=JsonField("loss", float | None, "Newest value, mean over all replicas."),
        text=_loss,
        cell=ListCell("loss", 8, rank=2),
        is_measured=True,
        status="LOSS",
    ),
    WorkerColumn(
        key="metrics",
        value=lambda view, _: view.status.metrics,
        json=JsonField("metrics", dict[str, float | None], "Newest value of each metric, by name."),
    ),
    WorkerColumn(
        key="not-finite",
        value=lambda view, _: {metric.name: metric.value for metric in view.status.not_finite},
        json=JsonField(
            "not_finite", dict[str, str], "Metrics that are `nan`, `inf` or `-inf`, by name."
        ),
    ),
    WorkerColumn(
        key="examples",
        value=lambda view, _: view.status.examples_per_second,
        json=JsonField("examples_per_second", float | None, "Sum over all workers."),
    ),
    WorkerColumn(
        key="cpu",
        value=lambda view, _: None if view.is_past else view.status.cpu_percent,
        json=JsonField(
            "cpu_percent",
            float | None,
            "Percent of one core; null for a worker that exited or is lost.",
        ),
        text=lambda worker: _percent(worker.cpu_percent),
        cell=ListCell("cpu", 5, rank=3),
    ),
    WorkerColumn(
        key="memory",
        value=lambda view, _: None if view.is_past else view.status.memory_bytes,
        json=JsonField(
            "memory_bytes",
            int | None,
            "Resident memory; null for a worker that exited or is lost.",
        ),
        text=lambda worker: "–" if worker.memory_bytes is None else units.size(worker.memory_bytes),
        cell=ListCell("memory", 8, rank=4),
        status="MEMORY",
        report="memory",
    ),
    WorkerColumn(
        key="variables",
        value=lambda view, _: None if view.is_past else view.share.variable_bytes,
        json=JsonField(
            "variable_bytes", int | None, "Size of the variables that a parameter server holds."
        ),
        text=lambda worker: (
            "–" if worker.variable_bytes is None else units.size(worker.variable_bytes)
        ),
        cell=ListCell("variables", 9, rank=2),
        matters=lambda view: view.share.variable_bytes is not None,
        status="VARIABLES",
        report="variables",
    ),
    WorkerColumn(
        key="gpu",
        value=lambda view, _: _gpus(view),
        json=JsonField("gpus", tuple[GpuStatus, ...], "Its GPUs; empty without `nvidia-ml-py`."),
        text=lambda worker: _percent(_busiest(worker.gpus)),
        cell=ListCell("gpu", 5, rank=5),
        matters=lambda view: bool(_gpus(view)),
    ),
    WorkerColumn(
        key="gpu-memory",
        text=lambda worker: _gpu_memory(worker.gpus),
        cell=ListCell("gpu memory", 14, rank=8),
        matters=lambda view: bool(_gpus(view)),
    ),
    WorkerColumn(
        key="age",
        value=lambda view, _: view.age,
        json=JsonField("heartbeat_age_seconds", float, "Time since its last heartbeat."),
        text=lambda worker: units.age(worker.heartbeat_age_seconds),
        cell=ListCell("heard", 6),
        status="HEARD",
    ),
    WorkerColumn(
        key="measured",
        value=lambda view, _: view.measured_age if view.is_measured_late else None,
        json=JsonField(
            "measured_age_seconds",
            float | None,
            "Time since it measured what it tells of itself, if that is much longer ago than its "
            "last heartbeat: a step of all workers shows that it lives.",
        ),
        text=lambda worker: (
            "–" if worker.measured_age_seconds is None else units.age(worker.measured_age_seconds)
        ),
        cell=ListCell("measured", 8, rank=9),
        status="MEASURED",
        matters=lambda view: view.is_measured_late,
    ),
    WorkerColumn(
        key="detail",
        value=lambda view, _: view.status.detail,
        json=JsonField("detail", str, "Current activity, or cause of death."),
        text=lambda worker: worker.detail,
        cell=ListCell("", 16, rank=11, align="<", stretch=4),
        report="detail",
    ),
)
"""All columns, in the order in which each part shows them."""


def json_record() -> type[msgspec.Struct]:
    """Returns the record of a worker in `status --json`: a field for each column with `json`."""
    fields = [column.json for column in COLUMNS if column.json is not None]
    return record_of("WorkerLine", "A process that writes heartbeats.", fields)


def json_values(view: WorkerView, at: float) -> list[Any]:
    """Returns the values of a worker for the fields of `json_record`."""
    return [column.value(view, at) for column in COLUMNS if column.json is not None]


def table(
    workers: Sequence[Any], heading: Callable[[WorkerColumn], str]
) -> tuple[list[str], list[list[str]], set[int]]:
    """Returns the headings and rows of a table, and which of its columns are aligned to the right.

    Args:
        workers: Records of `json_record`.
        heading: Returns the heading of a column; one without is left out.
    """
    columns = [
        column
        for column in COLUMNS
        if heading(column)
        and (column.matters is None or {column.text(worker) for worker in workers} != {"–"})
    ]
    rows = [[column.text(worker) for column in columns] for worker in workers]
    return [heading(column) for column in columns], rows, right_aligned(c.cell for c in columns)
