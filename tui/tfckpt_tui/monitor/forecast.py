"""Forecasts from the current rates: time left, when the disk is full, and the cost of saving."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_tui.monitor.snapshot import Forecast
from tfckpt_tui.services.runs.account import RunAccount

_NEWEST = 10


def forecast(
    account: RunAccount,
    checkpoints: Sequence[Checkpoint],
    disk_free: int | None,
    event_log: Sequence[EventEntry],
    now: float,
) -> Forecast:
    """Returns the forecast; parts without enough data are None.

    Args:
        account: The account of the run.
        checkpoints: All checkpoints, newest first.
        disk_free: Free bytes.
        event_log: Entries, oldest first.
        now: Seconds since the epoch.
    """
    if not account.is_at_work:
        return Forecast()
    interval = _save_interval(checkpoints, now)
    cost = _median_cost(checkpoints)
    return Forecast(
        seconds_left=account.seconds_left,
        disk_full_seconds=_until_full(checkpoints, interval, disk_free),
        save_share=None if interval is None or cost is None else min(1.0, cost / interval),
        save_interval=interval,
        best_interval=_best_interval(cost, event_log, now),
    )


def _save_interval(checkpoints: Sequence[Checkpoint], now: float) -> float | None:
    """Returns the median seconds between the newest saves; None if saving has stopped."""
    times = sorted((c.saved_at for c in checkpoints[:_NEWEST] if c.restorable), reverse=True)
    if len(times) < 3:
        return None
    interval = statistics.median(newer - older for newer, older in itertools.pairwise(times))
    return interval if interval > 0 and now - times[0] < 20 * interval else None


def _until_full(
    checkpoints: Sequence[Checkpoint], interval: float | None, free: int | None
) -> float | None:
    size = next((c.size for c in checkpoints if c.restorable), 0)
    if interval is None or free is None or size <= 0:
        return None
    return free / size * interval


def _best_interval(cost: float | None, event_log: Sequence[EventEntry], now: float) -> float | None:
    """Returns the save interval that loses the least time, to saves and to failures.

    It is √(2 · cost of a save · time between failures): J. W. Young, "A first order approximation
    to the optimum checkpoint interval", CACM 17 (1974). None before the first failure.
    """
    failures = sum(entry.kind is EventKind.WORKER_LOST for entry in event_log)
    if not cost or not failures:
        return None
    apart = (now - event_log[0].at) / failures
    return math.sqrt(2 * cost * apart) if apart > 0 else None


def _median_cost(checkpoints: Sequence[Checkpoint]) -> float | None:
    records = [checkpoint.record for checkpoint in checkpoints[:_NEWEST]]
    costs = [_save_cost(record) for record in records if record is not None]
    samples = [cost for cost in costs if cost is not None]
    return statistics.median(samples) if samples else None


def _save_cost(record: CheckpointRecord) -> float | None:
    """Returns the training time that a save took, in seconds."""
    if record.cost is None:
        return record.duration_seconds
    return record.cost.stall_seconds + max(0.0, record.cost.slowing_seconds or 0.0)
