"""Trains the model of the demo, measures, and kills one worker once.

`tfckpt-tui selftest` starts it with `--record`. Without that, it only trains.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfckpt_trainer.cluster.gpu_shares import visible_gpus
from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.examples.language_model import (
    SEED,
    build_model,
    next_byte_loss,
    random_crops,
    read_standard_library,
)
from tfckpt_trainer.rundir.records.selftest import (
    KilledWorker,
    MemoryPeaks,
    RecordedStep,
    StepCost,
    WorkerDevices,
    killed_file,
    steps_file,
)
from tfckpt_trainer.rundir.storage.documents import encode, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import append_line
from tfckpt_trainer.training import SaveOptions, TrainingRun, create_strategy
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.workers.worker_group import WorkerGroup, strategy_name

WARM_UP = 5
"""Steps of each loop before the first block: they trace and allocate."""

BLOCKS = 6
BLOCK_STEPS = 5

SAVE_AFTER = 40
"""Steps before the save; the cost per step is measured within them."""

REPEATED = 10
"""Steps after the save that are lost with a worker, and trained again."""

GOES_ON = 5
"""Steps after those, so that a restarted run goes further than the first one."""

MOST_STEPS = 2_000
"""The end, if the checkpoint is not committed by then."""


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


@dataclass(frozen=True)
class Loop:
    """What one loop trains."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    replica_step: Callable[[tf.Tensor], tf.Tensor]


def main() -> None:
    """Trains until the run ends, or until the self-test has seen enough."""
    options = parse_options()
    strategy = create_strategy(options.strategy, threads=1)
    # Before any operation, and on CPUs too: a self-test takes the same path everywhere.
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(SEED)
    text, _ = read_standard_library()

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return random_crops(text, context)

    loop = new_loop(strategy)
    run = TrainingRun(
        strategy=strategy,
        model=loop.model,
        optimizer=loop.optimizer,
        dataset=dataset,
        total_steps=MOST_STEPS,
        save_every_steps=SAVE_AFTER,
        saving=SaveOptions(background=True),
    )
    train_step = run.function(loop.replica_step)
    if options.record is None:
        for batch in run:
            train_step(batch)
        return
    plain_step = plain_loop(strategy, dataset)
    record = Recording(Path(options.record), run, WorkerGroup(strategy))
    record.start(device_facts(strategy, loop.model, loop.optimizer))
    batches = iter(run)
    record.step_done(train_step(next(batches))["loss"])
    if record.is_first_process:
        record.cost = step_cost(lambda: train_step(next(batches)), plain_step)
    for batch in batches:
        record.step_done(train_step(batch)["loss"])


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name.value for name in StrategyName]
    parser.add_argument("--strategy", choices=names, required=True)
    parser.add_argument("--record", help="directory for what is measured")
    return parser.parse_args()


def new_loop(strategy: tf.distribute.Strategy) -> Loop:
    """Creates a model with its optimizer, and the step of one replica."""
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.Adam(3e-3, clipnorm=1.0)
        optimizer.build(model.trainable_variables)

    def replica_step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = next_byte_loss(model(batch[:, :-1], training=True), batch[:, 1:])
            scaled = loss / strategy.num_replicas_in_sync
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return Loop(model, optimizer, replica_step)


def plain_loop(
    strategy: tf.distribute.Strategy,
    dataset: Callable[[tf.distribute.InputContext], tf.data.Dataset],
) -> Callable[[], float]:
    """Returns a step of TensorFlow alone, with another copy of the model."""
    loop = new_loop(strategy)
    batches: Iterator[Any] = iter(strategy.distribute_datasets_from_function(dataset))

    def distributed(batch: Any) -> tf.Tensor:
        losses = strategy.run(loop.replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    compiled = tf.function(distributed)
    return lambda: float(compiled(next(batches)))


class Recording:
    """Records the steps of this worker. The last worker kills itself after the save.

    Attributes:
        cost: The cost per step, once it is measured.
        is_first_process: Whether no worker was killed yet.
    """

    def __init__(self, directory: Path, run: TrainingRun, group: WorkerGroup) -> None:
        self._path = steps_file(directory, group.index)
        self._killed_file = killed_file(directory)
        self._killed = load_if_exists(self._killed_file, KilledWorker)
        self._index = group.index
        self._is_last = group.index == group.processes - 1
        self._run = run
        self._devices: WorkerDevices | None = None
        self._has_checkpoint = False
        self.is_first_process = self._killed is None
        self.cost: StepCost | None = None

    def start(self, devices: WorkerDevices) -> None:
        """Takes the facts that the first line has."""
        self._devices = devices

    def step_done(self, loss: float) -> None:
        """Records the present step; ends the worker or the run if that is due."""
        step = self._run.step + 1
        line = RecordedStep(
            process=os.getpid(),
            step=step,
            loss=float(loss).hex(),
            devices=self._devices,
            cost=self.cost,
            before_save=memory_peaks() if step == SAVE_AFTER else None,
            after_save=self._peaks_of_save(step),
        )
        self._devices = self.cost = None
        append_line(self._path, encode(line), durable=False)
        if self._killed is None:
            self._kill_if_due(step)
        elif step == self._killed.step + GOES_ON:
            self._run.finish("the self-test has seen enough")

    def _peaks_of_save(self, step: int) -> MemoryPeaks | None:
        if self._killed or self._has_checkpoint or step <= SAVE_AFTER:
            return None
        self._has_checkpoint = (self._run.directory / f"ckpt-{SAVE_AFTER}.index").exists()
        return memory_peaks() if self._has_checkpoint else None

    def _kill_if_due(self, step: int) -> None:
        if self._is_last and self._has_checkpoint and step >= SAVE_AFTER + REPEATED:
            process = os.getpid()
            store(self._killed_file, KilledWorker(worker=self._index, process=process, step=step))
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
