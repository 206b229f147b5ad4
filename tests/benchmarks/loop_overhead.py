"""What the library adds to a step when nothing is asked: the same loop with and without it.

    python tests/benchmarks/loop_overhead.py [--workers N] [--blocks N] [--step-ms MS …] [--fit]
                                              [--steps-per-call N] [--guard RULE …]

Both loops run in the same processes, in turn, block by block, so that a slow moment of the
machine meets both. Both feed from a dataset and read the mean loss of every step; with one worker,
the library reads it one step later. The figures
are medians over the pairs of blocks: of the difference of their median steps, and of the
difference of the CPU time of the thread that runs the loop.

After a longer wait for TensorFlow the caches of the processor are cold, and the same code takes
several times as long, with the library and without. So the CPU time of both is printed.

With `--steps-per-call`, a loop that runs several steps in each call is compared too.

With `--guard`, a loop with these guards is compared too. Choose some that do not fire.

With `--fit`, Keras's `Model.fit` is compared with `fit` of the library, on one worker: Keras's
own does not work on several.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from scripts.figures import COLLECTED, report
from scripts.machine import on_quiet_machine

from tfckpt_trainer.launch.processes.cluster import free_ports
from tfckpt_trainer.words.counts import count as counted

BLOCK_SECONDS = 0.5
"""How long the steps of one block take together."""

MATRIX = 128
"""Rows of the matrices whose products make a step longer."""


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0.5, 5.0, 50.0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--steps-per-call", type=int, default=1)
    parser.add_argument("--guard", action="append", default=[])
    options = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        measure(options)
        return
    if options.fit and options.workers > 1:
        parser.error("Keras's fit does not work on several workers, so there is nothing to compare")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(options.workers)]
    with tempfile.TemporaryDirectory() as run_dir:
        processes = []
        for index in range(options.workers):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            environment = {
                **os.environ,
                "TF_CONFIG": json.dumps(task),
                "TFCKPT_RUN_DIR": run_dir,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                # All workers measure; one reports.
                **({COLLECTED: ""} if index else {}),
            }
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, *sys.argv[1:]],
                    env=environment,
                    stdout=None if index == 0 else subprocess.DEVNULL,
                    stderr=None if index == 0 else subprocess.DEVNULL,
                )
            )
        status = processes[0].wait()
        for process in processes[1:]:
            process.kill()
            process.wait()
    if status:
        sys.exit(status)


@dataclass(frozen=True)
class Block:
    """The median step of a block, and the CPU time per step of the thread of the loop."""

    step: float
    cpu: float


def block_of(call: Callable[[], object], steps: int, steps_per_call: int = 1) -> Block:
    times = []
    cpu = time.thread_time()
    for _ in range(0, steps, steps_per_call):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) / steps_per_call)
    cpu = time.thread_time() - cpu
    return Block(statistics.median(times), cpu / len(times) / steps_per_call)


def compare(
    bare: Callable[[int], Block],
    library: Callable[[int], Block],
    steps: int,
    blocks: int,
    what: str,
    length: float,
) -> None:
    """Prints what `library` adds to `bare`; each takes a number of steps of this length in ms."""
    bare(steps), library(steps)
    pairs = [(bare(steps), library(steps)) for _ in range(blocks)]
    added = [library.step - bare.step for bare, library in pairs]
    size = {"along": "ms a step, about", "at": length}
    report(f"{what}: without it", [1e6 * bare.step for bare, _ in pairs], "µs a step", **size)
    report(f"{what}: added", [1e6 * seconds for seconds in added], "µs a step", **size)
    cpu = [1e6 * (library.cpu - bare.cpu) for bare, library in pairs]
    report(f"{what}: added processor time", cpu, "µs a step", **size)
    own = [1e6 * bare.cpu for bare, _ in pairs]
    report(f"{what}: processor time without it", own, "µs a step", **size)


def measure(options: argparse.Namespace) -> None:
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training import create_strategy, fit
    from tfckpt_trainer.training.workers.worker_group import WorkerGroup

    strategy = create_strategy("multi-worker", threads=1)
    group = WorkerGroup(strategy)
    products = tf.Variable(0, trainable=False, name="products")
    matrix = tf.random.normal((MATRIX, MATRIX)) / MATRIX

    class Work(keras.layers.Layer):
        """Multiplies matrices, as often as `products` says, and adds nothing to its input."""

        def call(self, inputs):
            product = tf.while_loop(
                lambda i, _: i < products,
                lambda i, product: (i + 1, tf.matmul(product, matrix)),
                (0, matrix),
            )[1]
            return inputs + 0 * tf.reduce_sum(tf.stop_gradient(product))

    def parts():
        with strategy.scope():
            model = keras.Sequential([keras.Input((64,)), Work(), keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(1e-3)
            optimizer.build(model.trainable_variables)

        def replica_step(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(batch, training=True) ** 2)
                scaled = loss / strategy.num_replicas_in_sync
            gradients = tape.gradient(scaled, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        dataset = tf.data.Dataset.from_tensors(tf.random.normal((32, 64))).repeat()
        return model, optimizer, replica_step, dataset

    _, _, bare_replica_step, bare_dataset = parts()
    bare_input = iter(bare_dataset)

    @tf.function
    def bare_step(batch):
        losses = strategy.run(bare_replica_step, args=(batch,))
        return strategy.reduce("SUM", losses, axis=None) / strategy.num_replicas_in_sync

    def bare(steps):
        return block_of(lambda: float(bare_step(next(bare_input))), steps)

    def agreed(seconds):
        """Returns the mean over all workers, which must run the same number of steps."""
        return statistics.mean(group.all_gather(seconds))

    def set_length(milliseconds):
        """Adds products until a bare step takes so long; returns the steps of a block."""
        products.assign(0)
        bare(20)
        empty = agreed(bare(50).step)
        products.assign(200)
        each = agreed(bare(20).step - empty) / 200
        products.assign(max(0, round((milliseconds / 1e3 - empty) / each)))
        return max(10, round(BLOCK_SECONDS / max(milliseconds / 1e3, empty)))

    inputs = ExitStack()
    kinds = [(count, ()) for count in sorted({1, options.steps_per_call})]
    kinds += [(1, tuple(options.guard))] if options.guard else []
    loops = {kind: library_loop(strategy, parts, *kind, inputs) for kind in kinds}
    workers = strategy.num_replicas_in_sync
    steps_of, products_of = {}, {}
    for length in options.step_ms:
        steps_of[length] = set_length(length)
        products_of[length] = int(products.numpy())
        for (count, guards), library in loops.items():
            what = f"{counted(workers, 'worker')}, {counted(count, 'step')} in a call"
            what += f", {counted(len(guards), 'guard')}" if guards else ""
            compare(bare, library, steps_of[length], options.blocks, what, length)
    if options.fit:
        inputs.close()
        measure_fit(parts, fit, products, products_of, steps_of, options.blocks)
    if not group.is_chief:
        # The first worker may still need this one to finish its last step.
        signal.pause()
    os._exit(0)


def library_loop(strategy, parts, steps_per_call, guards, inputs) -> Callable[[int], Block]:
    """Returns what measures a loop of the library, which ends when `inputs` are closed."""
    from tfckpt_trainer import TrainingRun

    model, optimizer, replica_step, dataset = parts()
    run = TrainingRun(
        f"{os.environ['TFCKPT_RUN_DIR']}/{steps_per_call}-{len(guards)}",
        model=model,
        optimizer=optimizer,
        strategy=strategy,
        dataset=dataset,
        guards=guards,
    )
    step = run.function(replica_step, steps_per_call=steps_per_call)
    loop = iter(run)
    inputs.callback(loop.close)
    # The first call of a process runs one step, and is not measured.
    step(next(loop))
    # What the library does after a step happens when the next input is asked for.
    return partial(block_of, lambda: step(next(loop)), steps_per_call=steps_per_call)


def measure_fit(parts, fit, products, products_of, steps_of, blocks) -> None:
    """Compares Keras's fit with the library's, epoch by epoch."""
    import keras

    class Clock(keras.callbacks.Callback):
        """Measures each epoch as a block."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = []

        def on_epoch_begin(self, epoch, logs=None):
            self.began, self.cpu = time.perf_counter(), time.thread_time()

        def on_epoch_end(self, epoch, logs=None):
            steps = self.params["steps"]
            seconds, cpu = time.perf_counter() - self.began, time.thread_time() - self.cpu
            self.blocks.append(Block(seconds / steps, cpu / steps))

    for length, steps in steps_of.items():
        products.assign(products_of[length])
        found = {}
        for name, train in (("bare", None), ("library", fit)):
            model, optimizer, _, dataset = parts()
            model.compile(optimizer, "mse", jit_compile=False)
            data = dataset.map(lambda batch: (batch, batch[:, :1]))
            clock = Clock()
            found[name] = clock
            common = {"epochs": blocks + 1, "steps_per_epoch": steps, "callbacks": [clock]}
            if train is None:
                model.fit(data, verbose=0, **common)
            else:
                with tempfile.TemporaryDirectory() as directory:
                    train(model, data, run_dir=directory, verbose=0, **common)
        # Epochs of the two are not in turn: each runs to its end.
        each = {name: iter(clock.blocks[1:]) for name, clock in found.items()}
        compare(
            lambda _, each=each: next(each["bare"]),
            lambda _, each=each: next(each["library"]),
            steps,
            blocks - 1,
            "1 worker, fit",
            length,
        )


if __name__ == "__main__":
    main()
