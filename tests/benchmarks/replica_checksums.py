"""What the comparison of all replicas costs at a save, and what it copies to main memory.

    python tests/benchmarks/replica_checksums.py [--megabytes MB] [--replicas N] [--rounds N]

Both ways run in the same process in turn: with checksums that the devices compute, and with copies
of all values, as on CPUs. Without GPUs, logical CPUs stand for them. Then a copy costs nothing, and
the same processors compute all checksums, so only the bytes mean something.
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf
from scripts.figures import report
from scripts.machine import on_quiet_machine

from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.state import device_checksums, measurement
from tfckpt_trainer.training.state.comparison import memory_of
from tfckpt_trainer.training.state.measurement import find_differing
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

VARIABLES = 20


def devices(replicas: int) -> list[str]:
    """Returns the GPUs, or logical CPUs in their place."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return [f"GPU:{number}" for number in range(min(replicas, len(gpus)))]
    cpu = tf.config.list_physical_devices("CPU")[0]
    each = [tf.config.LogicalDeviceConfiguration()] * replicas
    tf.config.set_logical_device_configuration(cpu, each)
    device_checksums.DEVICE_TYPE = "CPU"
    return [f"CPU:{number}" for number in range(replicas)]


def measured(group: WorkerGroup, state: SharedState) -> tuple[float, int]:
    """Returns the seconds of one comparison, and the bytes that it copies."""
    copied = []

    def counted(variable: Any) -> np.ndarray[Any, Any]:
        value = memory_of(variable)
        copied.append(value.nbytes)
        return value

    found = state.find()
    with patch.object(measurement, "memory_of", counted):
        began = time.perf_counter()
        assert find_differing(group, found).paths == []
        return time.perf_counter() - began, sum(copied)


@on_quiet_machine
def main() -> None:
    """Prints seconds and bytes of both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    names = devices(given.replicas)
    strategy = tf.distribute.MirroredStrategy(names)
    elements = given.megabytes * (1 << 20) // 4 // VARIABLES
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal([elements])) for _ in range(VARIABLES)]
    state = SharedState(None, None, {"weights": weights})
    group = WorkerGroup(strategy)
    smallest = {"on the devices": device_checksums.SMALLEST_BYTES, "by copies": 1 << 62}
    seen: dict[str, list[tuple[float, int]]] = {way: [] for way in smallest}
    for _ in range(given.rounds + 1):
        for way, size in smallest.items():
            device_checksums.SMALLEST_BYTES = size
            seen[way].append(measured(group, state))
    size = {"along": f"MB on each of {len(names)} devices", "at": given.megabytes}
    for way, each in seen.items():
        what = f"comparison of replicas {way}, {names[0].partition(':')[0]}"
        report(what, [1e3 * seconds for seconds, _ in each[1:]], "ms", **size)
        report(f"{what}: copied", [each[-1][1] / (1 << 20)], "MiB", **size)


if __name__ == "__main__":
    main()
