"""Common wrong claims about saving distributed models, each with a program that refutes it.

    python -m tfckpt_trainer.examples.common_mistakes            # all claims
    python -m tfckpt_trainer.examples.common_mistakes expect-partial

See docs/how-it-works/common-mistakes.md for what to do instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.launch.processes.cluster import addresses, free_ports

HANG_SECONDS = 15.0
"""Time after which a save that should take milliseconds counts as hanging."""


def chief_only() -> str:
    """`if is_chief: checkpoint.write(...)` is enough with several workers."""
    with tempfile.TemporaryDirectory() as directory:
        members = tasks(2)
        cluster = cluster_of(members, addresses(free_ports(2)))
        workers = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", __spec__.name, "--worker", directory],
                env={**os.environ, "TF_CONFIG": tf_config(cluster, task)},
                stderr=subprocess.DEVNULL,
            )
            for task in members
        ]
        try:
            began = Path(directory) / "began"
            while not began.exists() and all(w.poll() is None for w in workers):
                time.sleep(0.05)
            deadline = time.monotonic() + HANG_SECONDS
            written = Path(directory) / "checkpoint.index"
            while time.monotonic() < deadline and not written.exists():
                time.sleep(0.05)
            assert began.exists()
            assert not written.exists()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    return (
        "With a variable that is synchronized on read, such as a metric, the chief's write did not "
        f"end within {HANG_SECONDS:.0f} s. It waits for all workers to take part in the read."
    )


def _chief_only_worker(directory: str) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        total = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    checkpoint = tf.train.Checkpoint(total=total)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        Path(directory, "began").touch()
        checkpoint.write(str(Path(directory) / "checkpoint"))
    else:
        time.sleep(10 * HANG_SECONDS)


def strategy_run() -> str:
    """`strategy.run(save)` makes one worker save."""
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    calls: list[int] = []

    def save() -> None:
        calls.append(int(tf.distribute.get_replica_context().replica_id_in_sync_group))

    strategy.run(save)
    assert sorted(calls) == [0, 1], calls
    return f"It calls the function once per replica, here on replicas {sorted(calls)}."


def get_rank() -> str:
    """`tf.distribute.get_rank()` tells which worker this is."""
    assert not hasattr(tf.distribute, "get_rank")
    return "TensorFlow has no such function. It exists in PyTorch."


def expect_partial() -> str:
    """`restore(...).expect_partial()` checks that all important variables were restored."""
    with tempfile.TemporaryDirectory() as directory:
        saved = tf.train.Checkpoint(encoder=tf.Variable(1.0))
        path = saved.write(f"{directory}/checkpoint")
        renamed = tf.Variable(0.0)
        tf.train.Checkpoint(encoder_v2=renamed).read(path).expect_partial()
        assert float(renamed) == 0.0
    return "It silences the only warning. A renamed variable kept its initial value 0.0."


def modification_time() -> str:
    """The newest file is the newest checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(step=tf.Variable(0)), directory, max_to_keep=None
        )
        first, second = manager.save(), manager.save()
        # A copy or a backup changes modification times like this.
        os.utime(f"{first}.index", (time.time() + 60,) * 2)
        newest = max(Path(directory).glob("*.index"), key=lambda path: path.stat().st_mtime)
        assert newest == Path(f"{first}.index")
        assert tf.train.latest_checkpoint(directory) == second
    return "The newest file belongs to ckpt-1. TensorFlow reads its state file and uses ckpt-2."


def restore_in_the_loop() -> str:
    """`checkpoint.restore(latest)` belongs in the training loop."""
    with tempfile.TemporaryDirectory() as directory:
        weight = tf.Variable(0.0)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(w=weight), directory, 3)
        manager.save()
        for _ in range(5):
            manager.checkpoint.restore(manager.latest_checkpoint)
            weight.assign_add(1.0)
        assert float(weight) == 1.0
    return "Five steps of +1 from 0 end at 1.0, because each step starts from the last save."


def whole_model() -> str:
    """`tf.train.Checkpoint(model=model)` saves everything that training depends on."""
    with tempfile.TemporaryDirectory() as directory:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5)])
        seeds = [v.path for v in model.variables if "seed" in v.path]
        path = tf.train.Checkpoint(model=model).write(f"{directory}/checkpoint")
        kept = [name for name, _ in tf.train.list_variables(path) if "seed" in name]
        assert seeds
        assert not kept
    return f"It does not save {seeds}, the random state of Dropout."


PROOFS: dict[str, Callable[[], str]] = {
    "chief-only": chief_only,
    "strategy-run": strategy_run,
    "get-rank": get_rank,
    "expect-partial": expect_partial,
    "modification-time": modification_time,
    "restore-in-the-loop": restore_in_the_loop,
    "whole-model": whole_model,
}


def main(names: list[str]) -> None:
    """Runs the proofs with these names, or all."""
    if names[:1] == ["--worker"]:
        _chief_only_worker(names[1])
        return
    _make_two_devices()
    for name in names or PROOFS:
        proof = PROOFS[name]
        print(f"claim:  {(proof.__doc__ or '').strip()}")
        print(f"fact:   {proof()}\n", flush=True)


def _make_two_devices() -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


if __name__ == "__main__":
    main(sys.argv[1:])
