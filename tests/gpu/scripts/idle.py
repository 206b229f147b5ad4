"""Prints which of three logical CPUs, in place of GPUs, some strategies leave idle."""

from __future__ import annotations

import json

import tensorflow as tf

from tfckpt_trainer.training.workers.worker_group import WorkerGroup

(cpu,) = tf.config.list_physical_devices("CPU")
parts = [tf.config.LogicalDeviceConfiguration() for _ in range(3)]
tf.config.set_logical_device_configuration(cpu, parts)
STRATEGIES = [
    tf.distribute.OneDeviceStrategy("CPU:1"),
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(3)]),
    tf.distribute.get_strategy(),
]
groups = [WorkerGroup(strategy) for strategy in STRATEGIES]
print(json.dumps([group.idle_devices("CPU") for group in groups] + [groups[0].idle_devices()]))
