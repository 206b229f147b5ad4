"""Measures devices, memory and the cost per step inside a worker of a self-test."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable

import tensorflow as tf

from tfckpt_trainer.cluster.gpu_shares import visible_gpus
from tfckpt_trainer.rundir.records.selftest import MemoryPeaks, StepCost, WorkerDevices
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.workers.worker_group import strategy_name

WARM_UP = 5
"""Steps of each loop before the first block: they trace and allocate."""

BLOCKS = 6
BLOCK_STEPS = 5


def device_facts(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> WorkerDevices:
    """Returns the devices of this worker, the size of its state, and versions."""
    variables = [*model.variables, *optimizer.variables]
    return WorkerDevices(
        gpus=gpu_names(),
        driver_gpus=list(visible_gpus(os.environ).of_one_process),
        strategy=strategy_name(strategy),
        replicas=strategy.num_replicas_in_sync,
        local_replicas=len(strategy.extended.worker_devices),
        state_bytes=sum(
            variable.value.dtype.size * variable.value.shape.num_elements()
            for variable in variables
        ),
        versions=_versions(),
    )


def gpu_names() -> list[str]:
    """Returns the names of the GPUs that TensorFlow can use, of the model if it is known."""
    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    return [
        str(detail.get("device_name", gpu.name)) for gpu, detail in zip(gpus, details, strict=True)
    ]


def _versions() -> dict[str, str]:
    build = tf.sysconfig.get_build_info()
    versions = {
        "Python": platform.python_version(),
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
        "CUDA of TensorFlow": str(build.get("cuda_version", "")),
        "cuDNN of TensorFlow": str(build.get("cudnn_version", "")),
    }
    return {name: version for name, version in versions.items() if version}


def memory_peaks() -> MemoryPeaks:
    """Returns the peaks so far, and begins to measure those of the devices anew."""
    gpus = [f"GPU:{number}" for number in range(len(tf.config.list_logical_devices("GPU")))]
    devices = [tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus]
    for gpu in gpus:
        tf.config.experimental.reset_memory_stats(gpu)
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return MemoryPeaks(host=host if sys.platform == "darwin" else host << 10, devices=devices)


def step_cost(library: Callable[[], object], plain: Callable[[], object]) -> StepCost:
    """Measures both loops in turn, so that a slow moment of the machine meets both.

    Args:
        library: One step of the library's loop, from its input to its result.
        plain: One step of a plain loop.
    """
    for step in (library, plain):
        _median_step(step, WARM_UP)
    pairs = [
        (_median_step(plain, BLOCK_STEPS), _median_step(library, BLOCK_STEPS))
        for _ in range(BLOCKS)
    ]
    return StepCost(
        plain_seconds=statistics.median(plain for plain, _ in pairs),
        added_seconds=statistics.quantiles((library - plain for plain, library in pairs), n=4),
        blocks=BLOCKS,
        steps=BLOCK_STEPS,
    )


def _median_step(step: Callable[[], object], steps: int) -> float:
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
