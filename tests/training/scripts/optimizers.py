"""Trains with each optimizer by `model.fit`, and by a `fit` that is left and resumed.

Prints for each whether the history and all variables are equal, the hyperparameters that the run
has, and whether a change of one trains as an optimizer that was created with that value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfckpt_trainer.training import fit
from tfckpt_trainer.training.hyperparameters.sources import sources_of
from tfckpt_trainer.training.keras_library import variables_of

root = Path(sys.argv[1])
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
x = np.random.RandomState(1).randn(64, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(16)
kinds = keras.optimizers
scaled = getattr(kinds, "LossScaleOptimizer", None) or keras.mixed_precision.LossScaleOptimizer


def falling(rate):
    return kinds.schedules.ExponentialDecay(rate, 10, 0.9)


OPTIMIZERS = {
    "adam": lambda rate: kinds.Adam(rate),
    "average": lambda rate: kinds.Adam(rate, use_ema=True, weight_decay=0.01, clipnorm=1.0),
    "scaled": lambda rate: scaled(kinds.Adam(rate)),
    "schedule": lambda rate: kinds.SGD(falling(rate), momentum=0.9),
}
if hasattr(kinds, "legacy") and keras.Model.__module__.startswith("tf_keras"):
    OPTIMIZERS |= {
        "legacy": lambda rate: kinds.legacy.Adam(rate),
        "legacy schedule": lambda rate: kinds.legacy.SGD(falling(rate), momentum=0.9),
    }


def compiled(name, rate=0.01):
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Dense(8, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(OPTIMIZERS[name](rate), "mse", metrics=["mae"])
    return model


def values(model):
    return [v.numpy() for v in (*model.weights, *variables_of(model.optimizer))]


def is_same(ours, theirs):
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))


def sources_in(model):
    """The hyperparameters of its optimizer by name, once that has variables."""
    # Legacy optimizers have no public way to create them.
    build = getattr(model.optimizer, "build", None) or model.optimizer._create_all_weights
    build(model.trainable_variables)
    found = sources_of([("optimizer", model.optimizer)], tf.distribute.get_strategy())
    return {source.name: source for source in found}


def changed(name):
    """Whether a rate that is changed before the first step trains as one that was given."""
    model, given = compiled(name), compiled(name, 0.005)
    sources = sources_in(model)
    if "learning_rate_factor" in sources:
        sources["learning_rate_factor"].set(0.5)
    else:
        sources["learning_rate"].set(0.005)
    for one in (model, given):
        one.fit(data, epochs=1, verbose=0)
    return is_same(model.get_weights(), given.get_weights())


for name in OPTIMIZERS:
    whole, left, resumed = (compiled(name) for _ in range(3))
    expected = whole.fit(data, epochs=2, verbose=0, validation_data=data).history
    place = {"run_dir": root / name.replace(" ", "-"), "verbose": 0, "validation_data": data}
    fit(left, data, epochs=1, **place)
    history = fit(resumed, data, epochs=2, **place).history
    print(
        json.dumps(
            {
                "name": name,
                "equal": is_same(values(resumed), values(whole)) and history == expected,
                "hyperparameters": sorted(sources_in(resumed)),
                "changed": changed(name),
            }
        )
    )
