"""Calls `fit` with what it cannot take; prints the message of each case."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training import fit

x, y = np.zeros((8, 2), "float32"), np.zeros((8, 1), "float32")
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


class DataLoader:
    """Another library's."""


class Empty(keras.utils.PyDataset):
    """No batches."""

    def __len__(self):
        return 0


def batches():
    """Yields a batch."""
    yield x, y


def batches_of(size):
    """Yields a batch."""
    yield x[:size], y[:size]


def callback(kind):
    """Returns a callback, without its constructor."""
    return kind.__new__(kind)


CASES = {
    "generator": {"x": batches()},
    "generator function": {"x": batches},
    "lists of numbers": {"x": [[1.0, 2.0]], "y": y},
    "list of targets": {"x": x, "y": [0.0] * 8},
    "other library": {"x": DataLoader()},
    "nothing": {},
    "no data": {"x": 7},
    "function": {"x": lambda: data},
    "arguments": {"x": batches_of, "steps_per_epoch": 1},
    "optional context": {"x": lambda context=None: data},
    "targets beside": {"x": data, "y": y},
    "weights beside": {"x": data, "sample_weight": y},
    "directory": {"x": data, "y": "runs/first"},
    "both weights": {"x": x, "y": y, "sample_weight": y[:, 0], "class_weight": {0: 1.0}},
    "lengths": {"x": x, "y": y[:5]},
    "split": {"x": data, "validation_split": 0.5},
    "small split": {"x": x, "y": y, "validation_split": 0.95},
    "validation": {"x": x, "y": y, "validation_data": (x, y, y, y)},
    "validation_freq": {"x": x, "y": y, "validation_data": (x, y), "validation_freq": 0},
    "validation_steps": {"x": x, "y": y, "validation_data": data.repeat()},
    "steps": {"x": data.repeat()},
    "no batches": {"x": Empty()},
    "epochs": {"x": x, "y": y, "epochs": 3, "initial_epoch": 3},
    "not a callback": {"x": x, "y": y, "callbacks": [print]},
    "OrbaxCheckpoint": {"callbacks": [callback(keras.callbacks.OrbaxCheckpoint)]},
}

messages = {}
for name, arguments in CASES.items():
    run_dir = Path(sys.argv[1]) / name.replace(" ", "-")
    try:
        fit(**{"model": model, "run_dir": run_dir, "verbose": 0, **arguments})
        messages[name] = "taken"
    except UsageError as error:
        messages[name] = str(error)
    except Exception as error:
        messages[name] = f"{type(error).__name__}: {error}"
print(json.dumps(messages))
