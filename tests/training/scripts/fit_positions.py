"""Reads data as `fit` does, saves the position, and goes on from it with a new iterator."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfckpt_trainer.training.keras.fit_data import FitData, read_data
from tfckpt_trainer.training.pipelines.pipeline import probe
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

EXAMPLES, BATCH, STEPS = 47, 8, 6
x = np.arange(EXAMPLES * 500, dtype="float32").reshape(EXAMPLES, 500)
directory = Path(sys.argv[1])
IS_KERAS_3 = hasattr(keras.utils, "PyDataset")


@dataclass
class Group:
    """One of several workers, with two replicas each."""

    index: int
    replicas: int = 4
    local_replicas: int = 2
    size: int = 2

    def all_gather(self, value):
        """Returns the values of both workers."""
        return [value, value]


class ByIndex(keras.utils.Sequence):
    """Batches of x."""

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return (x[BATCH * index : BATCH * (index + 1)],)


class Reshuffled(ByIndex):
    """Batches of x, whose order changes after each epoch."""

    def __init__(self):
        super().__init__()
        self.order = list(range(EXAMPLES))

    def __getitem__(self, index):
        return (x[self.order[BATCH * index : BATCH * (index + 1)]],)

    def on_epoch_end(self):
        self.order = self.order[1:] + self.order[:1]


class Saved(Reshuffled):
    """The same, with a state."""

    def state_dict(self):
        """Returns the order."""
        return {"order": np.array(self.order)}

    def load_state_dict(self, state):
        """Sets the order."""
        self.order = state["order"].tolist()


class Drawn(ByIndex):
    """Batches of x, to which each read adds another number."""

    def __getitem__(self, index):
        return (super().__getitem__(index)[0] + np.random.rand(),)


def drawn():
    """Yields batches of x, to which each call adds other numbers."""
    for (batch,) in generator():
        yield (batch + np.random.rand(),)


def generator():
    """Yields batches of x."""
    for index in range(STEPS):
        yield (x[BATCH * index : BATCH * (index + 1)],)


def whole():
    """The batches of a dataset."""
    shuffled = tf.data.Dataset.from_tensor_slices((x,)).shuffle(
        20, seed=3, reshuffle_each_iteration=False
    )
    return shuffled.batch(BATCH)


def one():
    """The only worker."""
    return WorkerGroup(tf.distribute.get_strategy())


FORMS = {
    "arrays": lambda: {"data": FitData("x", x), "batch_size": BATCH, "shuffle": True},
    "arrays, within batches": lambda: {
        "data": FitData("x", x),
        "batch_size": BATCH,
        "shuffle": "batch",
    },
    "by index": lambda: {"data": FitData("x", ByIndex()), "shuffle": True},
    "generator": lambda: {"data": FitData("x", generator)},
    "dataset": lambda: {"data": FitData("x", whole())},
}


PYTHON = {
    "by index": ByIndex,
    # In Keras 2, the number of threads is an argument of `model.fit`.
    "by index, in threads": lambda: ByIndex(**({"workers": 2} if IS_KERAS_3 else {})),
    "with a state": Saved,
    "generator": lambda: generator,
    "reshuffled": Reshuffled,
    "drawn": Drawn,
    "drawn by a generator": lambda: drawn,
}
"""Data that Python code reads."""


def ids(element):
    """The numbers of the examples of an element."""
    (tensor,) = tf.nest.flatten(element)
    return [int(row[0]) // 500 for row in tensor.numpy()]


def dataset_of(form, group, seed):
    """Returns the endless dataset of a worker."""
    return read_data(group=group, **FORMS[form]()).endless(seed, STEPS)


found = {}
for form in FORMS:
    iterator = iter(dataset_of(form, one(), 5))
    seen = [ids(next(iterator)) for _ in range(9)]
    prefix = str(directory / form.replace(" ", "-"))
    tf.train.Checkpoint(iterator=iterator).write(prefix)
    after = [ids(next(iterator)) for _ in range(2 * STEPS)]
    # The seed of the first start counts, not the one of this start.
    again = iter(dataset_of(form, one(), 6))
    tf.train.Checkpoint(iterator=again).read(prefix).assert_existing_objects_matched()
    groups = [Group(0), Group(1)]
    parts = [iter(dataset_of(form, group, 5)) for group in groups]
    found[form] = {
        "seen": seen,
        "after": after,
        "again": [ids(next(again)) for _ in range(2 * STEPS)],
        "is_endless": [
            int(dataset_of(form, group, 5).cardinality()) == tf.data.INFINITE_CARDINALITY
            for group in groups
        ],
        "size": Path(f"{prefix}.data-00000-of-00001").stat().st_size,
        "parts": [[ids(next(part)) for part in parts for _ in range(2)] for _ in range(STEPS)],
    }
with tf.device("/CPU:0"):
    batches = read_data(FitData("x", Reshuffled()), one())
    callback = batches.callback(3)
    iterator = iter(batches.endless(0, None))
    epochs = []
    for epoch in range(2):
        epochs.append([ids(next(iterator)) for _ in range(STEPS)])
        callback.on_epoch_end(epoch)
facts = {}
for name, create in PYTHON.items():
    for group in (one(), Group(1)):
        dataset = read_data(FitData("x", create()), group, shuffle=True).endless(5, None)
        facts[f"{name}, {group.replicas} replicas"] = probe(iter(dataset)).facts("x")
of_user = read_data(FitData("x", ByIndex()), one()).endless(5, None)
of_user = of_user.map(lambda batch: tf.numpy_function(np.abs, [batch], tf.float32))
facts["another function"] = probe(iter(of_user)).facts("x")
numbers = tf.data.Dataset.range(EXAMPLES)
own = {
    "no seed": numbers.shuffle(EXAMPLES).batch(BATCH),
    "seed": numbers.shuffle(EXAMPLES, seed=1).batch(BATCH),
    "repeated": numbers.shuffle(EXAMPLES).repeat().batch(BATCH),
}
orders = {}
for name, dataset in own.items():
    endless = read_data(FitData("x", dataset), one()).endless(5, None)
    orders[name] = probe(iter(endless)).facts("x").causes
facts = msgspec.to_builtins(facts)
print(json.dumps({"forms": found, "reshuffled": epochs, "facts": facts, "orders": orders}))
