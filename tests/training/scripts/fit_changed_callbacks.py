"""Trains one run after the other in each directory, with other callbacks each time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np

from tfckpt_trainer.training import fit

x = np.random.RandomState(0).randn(20, 2).astype("float32")


def keeper():
    """Returns a callback that keeps the best weights."""
    return keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)


def train(directory, epochs, callbacks):
    """Returns the history of the run."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return fit(
        model, x, x[:, :1], epochs=epochs, run_dir=directory, callbacks=callbacks, verbose=0
    ).history["loss"]


found = {}
for name, second, third in (("added", [keeper()], []), ("removed", [], [keeper()])):
    directory = Path(sys.argv[1]) / name
    first = [] if second else [keeper()]
    steps = ((2, first), (3, second), (4, third))
    found[name] = [train(directory, epochs, callbacks) for epochs, callbacks in steps]
print(json.dumps(found))
