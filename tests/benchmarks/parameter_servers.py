"""What a step costs with parameter servers, against the same loop in plain TensorFlow.

    python tests/benchmarks/parameter_servers.py [--blocks N] [--steps N] [--rows N]

A chief, two workers and two servers, with `tf_keras`. Asynchronous steps are compared with
`ClusterCoordinator.schedule` and datasets of the workers, as in TensorFlow's guide; and with the
same where the chief sends the batches, as it does here, because who reads them knows the position.
Synchronous ones are compared with a loop that schedules gradients, fetches them, of the embedding
the rows that were looked up, and applies their sum. Both loops run in the same processes, in turn,
block by block, and each block ends with a join.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.launch.processes.cluster import addresses, free_ports

WORKERS, SERVERS = 2, 2
STEPS_PER_CALL = 50


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=200, help="of a block")
    parser.add_argument("--rows", type=int, default=20_000, help="of the embedding")
    options = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        measure(options)
        return
    members = tasks(WORKERS, SERVERS)
    cluster = cluster_of(members, addresses(free_ports(len(members))))
    with tempfile.TemporaryDirectory() as run_dir:
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:]],
                env={
                    **os.environ,
                    "TF_CONFIG": tf_config(cluster, task),
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    "TF_USE_LEGACY_KERAS": "1",
                    "BENCHMARK_RUNS": run_dir,
                },
                stderr=None if task.job == "chief" else subprocess.DEVNULL,
            )
            for task in members
        ]
        status = processes[0].wait()
        for process in processes[1:]:
            process.kill()
            process.wait()
    if status:
        sys.exit(status)


def measure(options: argparse.Namespace) -> None:
    loops = Loops(options.rows)
    asynchronous, closed = loops.of_library(asynchronous=True)
    compare("asynchronous", loops.plain_asynchronous(), asynchronous, options, 1)
    compare("asynchronous, sent", loops.plain_sent(), asynchronous, options, 1)
    closed()
    synchronous, closed = loops.of_library(asynchronous=False)
    compare("synchronous", loops.plain_synchronous(), synchronous, options, 4)
    closed()
    os._exit(0)


class Loops:
    """Functions that run so many steps of one model, by the library and without it."""

    def __init__(self, rows: int) -> None:
        import tensorflow as tf

        from tfckpt_trainer.training import create_strategy

        self.tf = tf
        self.rows = rows
        self.strategy = create_strategy("parameter-server", threads=1)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def examples(self, _=None):
        tf = self.tf
        ids = tf.random.uniform((64, 8), 0, self.rows, tf.int64, seed=1)
        return tf.data.Dataset.from_tensors((ids, tf.ones((64, 1)))).repeat()

    def parts(self):
        keras = self.tf.keras
        with self.strategy.scope():
            layers = [keras.layers.Embedding(self.rows, 32), keras.layers.Flatten()]
            layers += [keras.layers.Dense(256, "relu"), keras.layers.Dense(1)]
            model = keras.Sequential([keras.Input((8,), dtype="int64"), *layers])
            optimizer = keras.optimizers.Adagrad(0.01)
            optimizer.build(model.trainable_variables)
        return model, optimizer

    def gradients_of(self, model, batch):
        tf, (ids, labels) = self.tf, batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ids, training=True) - labels) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)

    def replica_step(self, model, optimizer):
        def step(batch):
            loss, gradients = self.gradients_of(model, batch)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return step

    def plain_asynchronous(self):
        step, coordinator = self.replica_step(*self.parts()), self.coordinator
        compute = self.tf.function(lambda data: self.strategy.run(step, args=(next(data),)))
        data = iter(coordinator.create_per_worker_dataset(self.examples))

        def run(steps):
            losses = [coordinator.schedule(compute, args=(data,)) for _ in range(steps)]
            coordinator.join()
            losses[-1].fetch()

        return run

    def plain_sent(self):
        step, coordinator = self.replica_step(*self.parts()), self.coordinator
        compute = self.tf.function(lambda batch: self.strategy.run(step, args=(batch,)))
        data = iter(self.examples())

        def run(steps):
            losses = [coordinator.schedule(compute, args=(next(data),)) for _ in range(steps)]
            coordinator.join()
            losses[-1].fetch()

        return run

    def plain_synchronous(self):
        tf, coordinator = self.tf, self.coordinator
        model, optimizer = self.parts()
        data = iter(self.examples())

        @tf.function
        def compute(batch):
            loss, gradients = self.gradients_of(model, batch)
            (embedded, *others) = gradients
            return loss, [embedded.values, embedded.indices, *others]

        @tf.function
        def apply(of_workers):
            values, indices, *others = zip(*of_workers, strict=True)
            embedded = tf.IndexedSlices(tf.concat(values, 0), tf.concat(indices, 0))
            sums = [embedded, *(tf.add_n(list(parts)) for parts in others)]
            pairs = zip(sums, model.trainable_variables, strict=True)
            self.strategy.run(lambda: optimizer.apply_gradients(pairs))

        def run(steps):
            for _ in range(steps):
                batches = [next(data) for _ in range(WORKERS)]
                scheduled = [coordinator.schedule(compute, args=(batch,)) for batch in batches]
                results = [result.fetch() for result in scheduled]
                apply([gradients for _, gradients in results])
                sum(loss for loss, _ in results)

        return run

    def of_library(self, *, asynchronous):
        """Returns such a function, and what ends its loop."""
        from tfckpt_trainer import TrainingRun

        model, optimizer = self.parts()
        run = TrainingRun(
            f"{os.environ['BENCHMARK_RUNS']}/{asynchronous}",
            model=model,
            optimizer=optimizer,
            strategy=self.strategy,
            dataset=self.examples(),
            save_every_seconds=None,
            asynchronous=asynchronous,
        )
        steps_per_call = STEPS_PER_CALL if asynchronous else 1
        step = run.function(self.replica_step(model, optimizer), steps_per_call=steps_per_call)
        loop = iter(run)
        # The first call of a process runs one step, and is not measured.
        step(next(loop))

        def call(steps):
            for _ in range(0, steps, steps_per_call):
                step(next(loop))
            self.coordinator.join()

        return call, loop.close


def compare(
    what: str,
    plain: Callable[[int], None],
    library: Callable[[int], None],
    options: argparse.Namespace,
    shorter: int,
) -> None:
    """Prints how long a step of each takes; blocks have so many times fewer steps."""
    steps = max(STEPS_PER_CALL, options.steps // shorter)
    seconds = partial(seconds_of, steps=steps)
    seconds(plain), seconds(library)
    pairs = [(seconds(plain), seconds(library)) for _ in range(options.blocks)]
    report(f"{what}: plain", [1e3 * plain / steps for plain, _ in pairs], "ms a step")
    ours, theirs = [library for _, library in pairs], [plain for plain, _ in pairs]
    report_ratio(f"{what}: a step", ours, theirs, "plain TensorFlow")


def seconds_of(run: Callable[[int], None], steps: int) -> float:
    began = time.perf_counter()
    run(steps)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
