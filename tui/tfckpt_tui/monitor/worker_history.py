"""The measurements of each worker since the app was opened."""

from __future__ import annotations

from tfckpt_trainer.rundir.heartbeats.shared_steps import measured_at, measured_step
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_tui.charting.series import Samples, Series
from tfckpt_tui.monitor.snapshot import RunSnapshot

_MOST_INTERVALS = 256
"""There may be a thousand workers."""


class WorkerHistory:
    """Collects the heartbeats of each worker as a series."""

    def __init__(self) -> None:
        self._series: dict[int, Series] = {}
        self._newest: dict[int, WorkerStatus] = {}
        self._began: dict[int, float] = {}
        self._best: dict[int, float] = {}

    def add(self, snapshot: RunSnapshot) -> None:
        """Adds the new heartbeats of a snapshot."""
        for view in snapshot.workers:
            status, index = view.status, view.status.index
            before = self._newest.get(index)
            if before is not None and measured_at(status) <= measured_at(before):
                continue
            if before is not None and status.pid != before.pid:
                # Step times of another process cannot be compared.
                self._best.pop(index, None)
            self._newest[index] = status
            self._began.setdefault(index, measured_at(status))
            if status.step_seconds is not None:
                best = self._best.get(index, status.step_seconds)
                self._best[index] = min(best, status.step_seconds)
            if status.step_seconds is None and status.activity is not Activity.SERVING:
                # A process says step 0 until it has restored a checkpoint.
                continue
            point = _point(status, self._began[index])
            self._series.setdefault(index, Series(most=_MOST_INTERVALS)).add([point])

    def samples(self, index: int) -> Samples:
        """Returns the measurements of worker `index` from its first step on.

        The metrics are `cpu` (percent of a core), `memory` (bytes) and `input` (seconds that a step
        waited). Workers without steps, as parameter servers, use seconds instead of steps.
        """
        series = self._series.get(index)
        return series.samples if series is not None else Samples()

    def best_step_seconds(self, index: int) -> float | None:
        """Returns the shortest median step time of worker `index`."""
        return self._best.get(index)


def _point(status: WorkerStatus, began: float) -> SeriesPoint:
    serves = status.activity is Activity.SERVING
    measured = {
        "cpu": status.cpu_percent,
        "memory": status.memory_bytes,
        "input": status.input_wait_seconds,
    }
    return SeriesPoint(
        at=measured_at(status),
        step=round(measured_at(status) - began) if serves else measured_step(status),
        branch=status.branch,
        metrics={name: float(value) for name, value in measured.items() if value is not None},
        step_seconds=status.step_seconds,
    )
