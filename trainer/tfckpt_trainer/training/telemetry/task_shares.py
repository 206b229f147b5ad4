"""What the workers and parameter servers do for the chief that coordinates them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from functools import cache

import tensorflow as tf

from tfckpt_trainer.rundir.records.worker import TaskShare

WINDOW_READS = 30
"""Number of heartbeats over which rates are computed."""


@cache
def task_of(device: str) -> tuple[str, int]:
    """Returns job and number of the task that a device belongs to."""
    spec = tf.DeviceSpec.from_string(device)
    return str(spec.job), int(spec.task or 0)


class TaskShares:
    """Counts steps by worker, and knows the variables of parameter servers.

    The training loop writes it, and the heartbeat reads it.
    """

    def __init__(self) -> None:
        self._steps: Counter[tuple[str, int]] = Counter()
        self._bytes: Mapping[tuple[str, int], int] = {}
        self._reads: deque[tuple[float, Counter[tuple[str, int]]]] = deque(maxlen=WINDOW_READS)

    def computed(self, device: str) -> None:
        """Counts a step that was computed on a device."""
        self._steps[task_of(device)] += 1

    def hold(self, bytes_of_devices: Mapping[str, int]) -> None:
        """Takes how many bytes of variables each device holds."""
        held: Counter[tuple[str, int]] = Counter()
        for device, size in bytes_of_devices.items():
            held[task_of(device)] += size
        self._bytes = held

    def read(self) -> list[TaskShare]:
        """Returns the share of each task, with rates since some of these calls ago."""
        now, steps = time.monotonic(), self._steps.copy()
        self._reads.append((now, steps))
        began, before = self._reads[0]
        seconds = now - began
        return [
            TaskShare(
                job=job,
                task=task,
                steps_per_second=(steps[job, task] - before[job, task]) / seconds
                if seconds and (job, task) in steps
                else None,
                variable_bytes=self._bytes.get((job, task)),
            )
            for job, task in sorted({*steps, *self._bytes})
        ]
