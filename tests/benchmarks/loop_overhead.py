"""What the library adds to a step when nothing is asked: the same loop with and without it.

    python tests/benchmarks/loop_overhead.py [--workers N] [--blocks N]

Both loops run in the same processes, in turn, block by block, so that a slow moment of the
machine meets both. Both feed from a dataset and read the mean loss of every step. The figure
is the median over the pairs of blocks of the difference of their medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tfckpt_trainer.launch.cluster import free_ports

STEPS_PER_BLOCK = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=30)
    options = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        measure(options.blocks)
        return
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
            }
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--blocks", str(options.blocks)],
                    env=environment,
                    stdout=None if index == 0 else subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        for process in processes:
            process.wait()


def measure(blocks: int) -> None:
    import keras
    import tensorflow as tf

    from tfckpt_trainer import TrainingRun
    from tfckpt_trainer.training import create_strategy

    strategy = create_strategy("multi-worker", threads=1)

    def parts():
        with strategy.scope():
            model = keras.Sequential(
                [keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)]
            )
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

    model, optimizer, replica_step, dataset = parts()
    run = TrainingRun(model=model, optimizer=optimizer, strategy=strategy, dataset=dataset)
    library_step = run.function(replica_step)
    library_input = iter(run)

    def bare_block():
        times = []
        for _ in range(STEPS_PER_BLOCK):
            began = time.perf_counter()
            float(bare_step(next(bare_input)))
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    def library_block():
        times = []
        for _ in range(STEPS_PER_BLOCK):
            # What the library does after a step happens when the next input is asked for.
            began = time.perf_counter()
            library_step(next(library_input))
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    bare_block(), library_block()
    pairs = [(bare_block(), library_block()) for _ in range(blocks)]
    added = statistics.median(library - bare for bare, library in pairs)
    spread = statistics.quantiles([library - bare for bare, library in pairs], n=10)
    bare = statistics.median(bare for bare, _ in pairs)
    print(
        f"{strategy.num_replicas_in_sync} workers: step {bare * 1e3:.3f} ms without the library, "
        f"{added * 1e6:+.0f} µs with it (10th to 90th percentile {spread[0] * 1e6:+.0f} to "
        f"{spread[-1] * 1e6:+.0f} µs): {added / 0.1:.3%} of a step of 100 ms",
        flush=True,
    )
    os._exit(0)


if __name__ == "__main__":
    main()
