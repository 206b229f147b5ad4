"""Trains each case by `keras.Model.fit` and by `fit`; prints both histories and final weights."""

from __future__ import annotations

import argparse
import json
import os
from functools import cache
from pathlib import Path

import google_crc32c
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.data.ops.multi_device_iterator_ops import OwnedMultiDeviceIterator

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training import create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="one-device")
parser.add_argument("directory", type=Path)
parser.add_argument("--only", nargs="*", help="names of cases")
options = parser.parse_args()
strategy = create_strategy(options.strategy, threads=1)

EXAMPLES = 44
random = np.random.RandomState(0)
x = random.randn(EXAMPLES, 6).astype("float32")
y = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0)
weights = random.rand(EXAMPLES).astype("float32")
x_val, y_val = random.randn(19, 6).astype("float32"), random.randint(0, 4, 19)
weights_val = random.rand(19).astype("float32")
classes = {0: 0.5, 1: 2.0, 3: 1.5}

kept = []
"""The iterators that `keras.Model.fit` creates, because destroying one can end the process.

TensorFlow 2.21 frees the last dataset of such an iterator first, and then waits for the thread
that reads ahead in it.
"""
create = OwnedMultiDeviceIterator.__init__


def create_and_keep(self, *args, **kwargs):
    """Creates an iterator of a distributed dataset, and keeps it until the process ends."""
    create(self, *args, **kwargs)
    kept.append(self)


OwnedMultiDeviceIterator.__init__ = create_and_keep


class Slices(keras.utils.PyDataset):
    """Batches of 8."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]


def generator():
    """Yields batches of 8 of one pass."""
    for index in range(5):
        yield x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]


def dataset(*arrays, batch=8):
    """Batches of arrays."""
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch)


def per_replica(context):
    """The batches of one replica of what Keras gets as a whole."""
    return dataset(x, y, batch=8 // context.num_replicas_in_sync)


ALIKE = {
    "positional": lambda: {"positional": (x, y, 16, 2)},
    "partial batch": lambda: {"x": x.astype("float64"), "y": y.astype("int8"), "batch_size": 8},
    "sample_weight": lambda: {"x": tf.constant(x), "y": y, "sample_weight": weights},
    "class_weight": lambda: {"x": x, "y": y, "class_weight": classes, "batch_size": 8},
    "class_weight of a column": lambda: {
        "x": x,
        "y": y[:, None],
        "class_weight": classes,
        "validation_split": 0.3,
    },
    "validation_split": lambda: {
        "x": x,
        "y": y,
        "sample_weight": weights,
        "validation_split": 0.25,
    },
    "validation_steps": lambda: {
        "x": x,
        "y": y,
        "validation_data": (x_val, y_val),
        "validation_steps": 2,
        "validation_batch_size": 6,
        "validation_freq": 2,
    },
    "validation weights": lambda: {
        "x": x,
        "y": y,
        "batch_size": 8,
        "validation_data": (x_val, y_val, weights_val),
        "validation_freq": [1, 3],
    },
    "validation dataset": lambda: {"x": x, "y": y, "validation_data": dataset(x_val, y_val)},
    "validation by index": lambda: {"x": x, "y": y, "validation_data": Slices()},
    "initial_epoch": lambda: {"x": x, "y": y, "initial_epoch": 1},
    "steps_per_epoch": lambda: {"x": x, "y": y, "steps_per_epoch": 4},
    "steps_per_epoch within a pass": lambda: {
        "x": x,
        "y": y,
        "steps_per_epoch": 3,
        "batch_size": 8,
        "epochs": 2,
    },
    "dataset": lambda: {"x": dataset(x, y, weights)},
    "dataset, class_weight": lambda: {
        "x": dataset(x, y),
        "class_weight": classes,
        "validation_data": dataset(x_val, y_val),
    },
    "dataset, steps_per_epoch": lambda: {"x": dataset(x, y).repeat(), "steps_per_epoch": 4},
    "batches by index": lambda: {"x": Slices(), "class_weight": classes},
    "averaged weights": lambda: {
        "x": x,
        "y": y,
        "callbacks": keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
    },
    "steps_per_execution": lambda: {"x": x, "y": y, "batch_size": 8},
    # Each function and each size of a batch is compiled for seconds.
    "jit_compile": lambda: {"x": x, "y": y, "batch_size": 11},
    "jit_compile, validation": lambda: {
        "x": x,
        "y": y,
        "batch_size": 11,
        "validation_data": (x_val[:11], y_val[:11]),
    },
    "list of arrays": lambda: {"x": [x[:, :2], x[:, 2:]], "y": y, "batch_size": 8},
    "dictionary of arrays": lambda: {"x": {"a": x[:, :2], "b": x[:, 2:]}, "y": y},
}

DIFFERENT = {
    "generator function": (
        {"x": generator, "steps_per_epoch": 5},
        lambda: {"x": dataset(x, y).take(5)},
    ),
    "function of a context": (
        {"x": per_replica},
        lambda: {"x": dataset(x, y)},
    ),
    "batches by index, threads": (
        {"x": Slices(workers=2), "validation_data": generator, "validation_steps": 4},
        lambda: {"x": Slices(), "validation_data": dataset(x, y).take(4)},
    ),
}
"""What Keras gets otherwise: the arguments of `fit`, and those of `keras.Model.fit`."""


OWN_MODELS = {
    "averaged weights",
    "class_weight of a column",
    "dictionary of arrays",
    "jit_compile",
    "jit_compile, validation",
    "list of arrays",
    "steps_per_execution",
}


@cache
def compiled(form):
    """Returns a model for arrays in this form, and the first values of its variables."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        inputs = {
            "dictionary of arrays": {"a": keras.Input((2,)), "b": keras.Input((4,))},
            "list of arrays": [keras.Input((2,)), keras.Input((4,))],
        }.get(form, [keras.Input((6,))])
        parts = list(inputs.values()) if isinstance(inputs, dict) else inputs
        hidden = keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]
        hidden = keras.layers.Dropout(0.2)(hidden)
        model = keras.Model(inputs if len(parts) > 1 else parts[0], keras.layers.Dense(4)(hidden))
        averaged = form == "averaged weights"
        model.compile(
            keras.optimizers.SGD(0.05, momentum=0.9, use_ema=averaged, ema_momentum=0.8),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            weighted_metrics=["accuracy"],
            steps_per_execution=4 if form == "steps_per_execution" else 1,
            jit_compile=form.startswith("jit_compile"),
        )
        model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    return model, [(variable, variable.numpy()) for variable in variables]


def trained(name, arguments, run_dir=None):
    """Returns the history and a checksum of the final weights."""
    model, first = compiled(name if name in OWN_MODELS else "")
    for variable, value in first:
        variable.assign(value)
    arguments = {"epochs": 3, "shuffle": False, "verbose": 0, **arguments}
    positional = arguments.pop("positional", ())
    if len(positional) > 3:
        del arguments["epochs"]
    if run_dir is None:
        history = model.fit(*positional, **arguments)
    else:
        before = len(kept)
        history = fit(model, *positional, run_dir=run_dir, **arguments)
        assert len(kept) == before, "fit reads by iterators that are unsafe to destroy"
    digest = 0
    for variable in model.weights:
        digest = google_crc32c.extend(digest, variable.numpy().tobytes())
    return {"epochs": history.epoch, "history": history.history, "weights": digest}


cases = {name: (case, case) for name, case in ALIKE.items()}
cases |= {name: (lambda own=own: own, theirs) for name, (own, theirs) in DIFFERENT.items()}
for number, (name, (own, theirs)) in enumerate(cases.items()):
    if options.only and name not in options.only:
        continue
    try:
        ours = trained(name, own(), options.directory / str(number))
    except (UsageError, TypeError, ValueError) as error:
        ours = f"{type(error).__name__}: {error}"
    case = {"name": name, "ours": ours, "keras": trained(name, theirs())}
    print("case", json.dumps(case), flush=True)
# Keras's own threads for data may still run, and what is compared is printed.
os._exit(0)
