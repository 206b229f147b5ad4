"""Trains a run further and further, with other callbacks each time."""

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
    """Returns the losses of the whole run."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return fit(
        model, x, x[:, :1], epochs=epochs, run_dir=directory, callbacks=callbacks, verbose=0
    ).history["loss"]


callbacks = ([], [keeper()], [], [keeper()])
found = [train(Path(sys.argv[1]), epochs, these) for epochs, these in enumerate(callbacks, 2)]
print(json.dumps(found))
