"""Saves and restores a model of a given size, in turn with TensorFlow's own ways."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.training import create_strategy

BLOCK = 100
"""Layers in a block of the model."""

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=float, default=1.0, help="size of a checkpoint")
parser.add_argument("--variables", type=int, default=50)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--spread", action="store_true", help="let all workers write")
parser.add_argument("--restores", action="store_true", help="restore as often as saved")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

strategy = create_strategy("multi-worker" if options.spread else "one-device")
# Kernel and bias, and two moments of Adam for each.
layers = max(1, options.variables // 6)
width = max(1, round((options.megabytes * 1e6 / 12 / layers) ** 0.5))
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((width,)),
            # In blocks: Keras goes through the layers of one by recursion.
            *(
                keras.Sequential(
                    [keras.Input((width,)), *(keras.layers.Dense(width) for _ in range(count))]
                )
                for count in [*[BLOCK] * (layers // BLOCK), layers % BLOCK]
                if count
            ),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)


class Trigger:
    """Saves each step while it is set."""

    is_set = True

    def reason(self, step: int, metrics: Mapping[str, float]) -> str | None:
        return "benchmark" if self.is_set else None


trigger = Trigger()
run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    save_when=[trigger],
    saving=SaveOptions(spread=options.spread),
)
directory = RunDirectory(run.directory)
commands = CommandQueue(directory)
plain = tf.train.Checkpoint(model=model, optimizer=optimizer, step=tf.Variable(0, dtype=tf.int64))
plain_directory = options.output.with_name("plain")
plain_directory.mkdir(exist_ok=True)
plain_prefix = plain_directory / "ckpt"


@run.function
def train_step(_):
    for variable in model.trainable_variables[:50]:
        variable.assign_add(tf.ones_like(variable))
    return tf.constant(0.0)


def write_plainly() -> float:
    """Returns the seconds of `Checkpoint.write` and of a flush of what it wrote."""
    began = time.perf_counter()
    plain.write(str(plain_prefix))
    for path in (*plain_directory.iterdir(), plain_directory):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - began


def read_plainly() -> float:
    """Returns the seconds of `Checkpoint.read`."""
    began = time.perf_counter()
    plain.read(str(plain_prefix)).assert_existing_objects_matched()
    return time.perf_counter() - began


def delete(files: Iterable[Path]) -> None:
    """Deletes files."""
    for path in files:
        path.unlink()


def restored() -> list[float]:
    """Returns the seconds of each restore in place so far."""
    entries = [e for e in read_entries(directory) if e.kind is EventKind.RESTORE]
    return [float(entry.details["seconds"]) for entry in entries]


seconds: dict[str, list[float]] = {"save": [], "write": [], "restore": [], "read": []}
is_chief = os.environ.get("TFCKPT_WORKER_INDEX", "0") == "0"
began: float | None = None
saved = ""
for batch in run:
    if began is not None:
        # The step before was saved since.
        seconds["save"].append(time.perf_counter() - began)
        began = None
        if len(seconds["save"]) > options.rounds:
            trigger.is_set = False
            if not options.restores:
                break
            write_plainly()
            saved = f"ckpt-{run.step}"
            commands.submit(CommandKind.RESTORE, {"name": saved}, requested_by="benchmark")
    if trigger.is_set and is_chief:
        # So that each way gets the memory of the files of the other: new memory may be slow.
        delete(run.directory.glob("ckpt-*.data-*"))
        seconds["write"].append(write_plainly())
        delete(plain_directory.glob("*.data-*"))
    if len(restored()) > len(seconds["restore"]):
        seconds["restore"] = restored()
        seconds["read"].append(read_plainly())
        if len(seconds["read"]) == options.rounds:
            break
        commands.submit(CommandKind.RESTORE, {"name": saved}, requested_by="benchmark")
    train_step(tf.constant(batch))
    if trigger.is_set:
        began = time.perf_counter()
if is_chief:
    options.output.write_text(json.dumps(seconds))
