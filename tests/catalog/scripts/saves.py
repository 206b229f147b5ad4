"""Saves, restores and goes on with TensorFlow alone, as told line by line in a FIFO; answers so.

A request is `{"do": ..., ...}`; the answer is one line of JSON.

    write   directory, kind   saves twice as `kind` says; returns the names
    write_one                 saves once only
    again   directory         saves the last of them once more under the same name
    check   directory         which prefixes can be restored, all values of one save, bit by bit
    go_on   directory, kind   what a new manager restores there and saves next
    loop    directory, kind   answers once, then saves for ever
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")
SHAPES = [(300, 200), (50_000,), (), (7, 5)]


class Trainer:
    """A model of which every value tells the save."""

    def __init__(self, directory: str, kind: str) -> None:
        self.variables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
        self.checkpoint = tf.train.Checkpoint(v=self.variables)
        self.options = tf.train.CheckpointOptions(
            enable_async=kind == "asynchronous",
            experimental_sharding_callback=(
                tf.train.experimental.MaxShardSizePolicy(120_000) if kind == "sharded" else None
            ),
        )
        self.manager = None
        self.prefix = os.path.join(directory, "ckpt")
        if kind != "plain":
            kept = 1 if kind == "rotating" else 3
            self.manager = tf.train.CheckpointManager(self.checkpoint, directory, max_to_keep=kept)

    def save(self, stamp: int, number: int | None = None) -> str:
        for variable in self.variables:
            variable.assign(tf.fill(variable.shape, float(stamp)))
        if self.manager is None:
            path = self.checkpoint.save(self.prefix, options=self.options)
        else:
            path = self.manager.save(checkpoint_number=number, options=self.options)
        self.checkpoint.sync()
        return os.path.basename(path)


def write(directory: str, kind: str) -> list[str]:
    trainer = Trainer(directory, kind)
    return [trainer.save(1), trainer.save(2)]


def write_one(directory: str, kind: str) -> str:
    return Trainer(directory, kind).save(1)


def again(directory: str) -> str:
    return Trainer(directory, "sharded").save(3, number=2)


def check(directory: str) -> dict[str, bool]:
    found = sorted(path.name[: -len(".index")] for path in Path(directory).glob("*.index"))
    return {name: is_whole(os.path.join(directory, name)) for name in found}


def is_whole(prefix: str) -> bool:
    try:
        reader = tf.train.load_checkpoint(prefix)
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (tf.errors.OpError, tf.errors.DataLossError, ValueError, IndexError, RuntimeError):
        return False
    arrays = [value for name, value in values.items() if name.startswith("v/")]
    stamp = arrays[0].flat[0]
    assert sorted(array.shape for array in arrays) == sorted(SHAPES)
    return all(np.array_equal(array, np.full(array.shape, stamp, "float32")) for array in arrays)


def go_on(directory: str, kind: str) -> dict[str, str | None]:
    kind = "rotating" if kind == "plain" else kind
    trainer = Trainer(directory, kind)
    try:
        restored = trainer.manager.restore_or_initialize()
        return {"restored": restored and os.path.basename(restored), "saved": trainer.save(9)}
    except (tf.errors.OpError, IndexError):
        # The newest cannot be restored; a program that goes on all the same starts anew.
        return {"restored": None, "saved": Trainer(directory, kind).save(9)}


def loop(directory: str, kind: str) -> None:
    trainer = Trainer(directory, kind)
    answer("saving")
    parent, stamp = os.getppid(), 0
    while os.getppid() == parent:
        stamp += 1
        # Now and then the same name again, as a trainer does that went back.
        number = trainer.manager.latest_checkpoint and stamp - stamp % 4
        trainer.save(stamp, number=number or None)


def answer(what: object) -> None:
    print(json.dumps(what), flush=True)


with open(sys.argv[1]) as requests:
    for line in requests:
        request = json.loads(line)
        action = globals()[request.pop("do")]
        answer(action(**request))
