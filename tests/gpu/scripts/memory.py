"""Prints what a self-test reads of two simulated GPUs: twice their memory, and once their facts."""

from __future__ import annotations

import json

import msgspec
import tensorflow as tf

from tfckpt_trainer.tools.selftest.training import gpu_names, memory_peaks

GPUS = [tf.config.PhysicalDevice(f"/physical_device:GPU:{n}", "GPU") for n in range(2)]
peaks = {"GPU:0": 1000, "GPU:1": 2000}


def reset(device: str) -> None:
    peaks[device] = 10


tf.config.list_physical_devices = tf.config.list_logical_devices = lambda _: GPUS
experimental = tf.config.experimental
experimental.get_memory_info = lambda device: {"current": 1, "peak": peaks[device]}
experimental.reset_memory_stats = reset
experimental.get_device_details = lambda gpu: {} if gpu is GPUS[0] else {"device_name": "H200"}
read = [memory_peaks(), memory_peaks()]
print(json.dumps([gpu_names(), *map(msgspec.to_builtins, read)]))
