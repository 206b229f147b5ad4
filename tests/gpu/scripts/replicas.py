"""Compares and restores variables of several replicas; prints what was copied and what was found.

Logical CPUs stand for GPUs.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.state import comparison, device_checksums, measurement
from tfckpt_trainer.training.state.comparison import memory_of, wrong_values
from tfckpt_trainer.training.state.device_checksums import DeviceChecksums
from tfckpt_trainer.training.state.measurement import find_differing
from tfckpt_trainer.training.state.values_by_path import (
    compare_values,
    read_values,
    restore_values,
    write_values,
)
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

REPLICAS, ROWS, COLUMNS = 3, 512, 300
KINDS = ("float16", "bfloat16", "float32", "float64", "int64", "int32", "bool")
PIECE_WORDS = 1 << 16
"""So that a value has several pieces, and the last is shorter."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


def simulated_gpus() -> list[str]:
    """Has logical CPUs stand for GPUs; returns their names."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    each = [tf.config.LogicalDeviceConfiguration()] * (REPLICAS + 1)
    tf.config.set_logical_device_configuration(cpu, each)
    device_checksums.DEVICE_TYPE = "CPU"
    device_checksums.SMALLEST_BYTES = 1 << 16
    device_checksums._PIECE_WORDS = PIECE_WORDS
    return [f"CPU:{number}" for number in range(1, REPLICAS + 1)]


def flip(words: Words, place: int) -> None:
    words[place] ^= 1


def negate_two(words: Words) -> None:
    words[:2] ^= 1 << 31


def exchange(words: Words, one: int, other: int) -> None:
    words[[one, other]] = words[[other, one]]


CHANGES: dict[str, Callable[[Words], None]] = {
    "the first bit": lambda words: flip(words, 0),
    "the last bit": lambda words: flip(words, -1),
    "two signs": negate_two,
    "two neighbors exchanged": lambda words: exchange(words, 0, 1),
    "two pieces exchange an element": lambda words: exchange(words, 7, PIECE_WORDS + 7),
}
"""What makes a replica differ."""


class Replicas:
    """Variables of several replicas, and a checkpoint of them."""

    def __init__(self, directory: Path, devices: list[str]) -> None:
        strategy = tf.distribute.MirroredStrategy(devices)
        values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)
        with strategy.scope():
            self.variables = {kind: tf.Variable(tf.cast(values, kind)) for kind in KINDS}
            self.variables["small"] = tf.Variable(1.0)
        self.shared = SharedState(None, None, self.variables)
        self.group = WorkerGroup(strategy)
        self.found = self.shared.find()
        self.values, self.prefix = values, directory / "saved"
        self.shared.write(self.prefix)

    def differing(self) -> list[str]:
        """What a save says of the replicas."""
        return find_differing(self.group, self.found).paths

    def wrong(self) -> list[str]:
        """What a restore says of the values."""
        keys = wrong_values(self.shared.compare(self.prefix).matched, self.prefix)
        return [key.partition("/")[0] for key in keys]


def changed(replicas: Replicas) -> dict[str, Any]:
    """What a save and a restore say after each change, with and without memory on the devices."""
    seen: dict[str, Any] = {"nothing": [replicas.differing(), replicas.wrong()]}
    variable, values = replicas.variables["float32"], replicas.values
    for name, change in CHANGES.items():
        words = values.copy().reshape(-1).view(np.uint32)
        change(words)
        variable.values[-1].assign(words.view(np.float32).reshape(values.shape))
        seen[name] = [replicas.differing(), replicas.wrong()]
    with full_device(variable.values[-1].device):
        seen["the last, without memory"] = [replicas.differing(), replicas.wrong()]
    variable.assign(-values)
    seen["all replicas"] = [replicas.differing(), replicas.wrong()]
    variable.assign(values)
    return seen


@contextmanager
def full_device(full: str) -> Iterator[None]:
    """Leaves no memory for checksums on a device."""
    start_on = DeviceChecksums._start_on

    def start(self: DeviceChecksums, device: str, variable: Any) -> tf.Tensor:
        if device == full:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        return start_on(self, device, variable)

    with patch.object(DeviceChecksums, "_start_on", start):
        yield


def bytes_copied(act: Callable[[], object]) -> int:
    """How many bytes an action copies to main memory."""
    copied = []

    def counted(variable: Any) -> np.ndarray[Any, Any]:
        value = memory_of(variable)
        copied.append(value.nbytes)
        return value

    with (
        patch.object(comparison, "memory_of", counted),
        patch.object(measurement, "memory_of", counted),
    ):
        act()
    return sum(copied)


@contextmanager
def counting_values(device: str) -> Iterator[list[int]]:
    """Adds after each operation how many large values there are in tensors on a device."""
    known: dict[int, weakref.ref[tf.Tensor]] = {}
    counts = [0]

    def note(kind, inputs, attributes, outputs, name=None, graph=None) -> None:
        for tensor in () if graph is not None else (*inputs, *outputs):
            size = int(tensor.shape.num_elements() or 0)
            if size >= ROWS * COLUMNS and tensor.backing_device.endswith(device):
                known[id(tensor)] = weakref.ref(tensor)
        alive = [tensor for one in known.values() if (tensor := one()) is not None]
        counts.append(len({np.asarray(tensor).ctypes.data for tensor in alive}))

    op_callbacks.add_op_callback(note)
    try:
        with tf.device(device):
            yield counts
    finally:
        op_callbacks.remove_op_callback(note)


def most_values(replicas: Replicas, device: str) -> dict[str, int]:
    """The most values of variables in tensors on a device, by what restores them."""
    shared, prefix = replicas.shared, replicas.prefix
    beside = prefix.with_name("beside")
    write_values(beside, read_values(replicas.found))
    matched, stored = shared.compare(prefix).matched, compare_values(replicas.found, beside)
    each: dict[str, Callable[[], object]] = {
        "restore": lambda: shared.restore(prefix),
        "restore some": lambda: shared.restore_variables(prefix, matched),
        "restore beside": lambda: restore_values(beside, stored.matched),
        "read all": lambda: [one.values[0].read_value() for one in replicas.variables.values()],
    }
    most = {}
    for name, act in each.items():
        with counting_values(device) as counts:
            act()
        most[name] = max(counts)
    return most


def main() -> None:
    """Prints what was seen, as JSON."""
    devices = simulated_gpus()
    replicas = Replicas(Path(sys.argv[1]), devices)
    sizes = {name: memory_of(one.values[0]).nbytes for name, one in replicas.variables.items()}
    copied = {"save": bytes_copied(replicas.differing), "restore": bytes_copied(replicas.wrong)}
    with full_device(devices[-1]):
        copied["save, one device full"] = bytes_copied(replicas.differing)
    seen = {"sizes": sizes, "copied": copied, "found": changed(replicas)}
    print(json.dumps({**seen, "most": most_values(replicas, devices[0])}))


if __name__ == "__main__":
    main()
