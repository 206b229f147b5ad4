"""Creates state in many ways, passes some of it, and prints what is found to be left out."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer.training.check.untracked import describe_untracked, find_untracked
from tfckpt_trainer.training.state.walk import find_state

sys.path.insert(0, str(Path(__file__).parents[1]))
from dynamic_tables import DynamicTable, LeftOut


class Trainer:
    """An object of the script that holds state."""

    def __init__(self):
        self.noise = tf.random.Generator.from_seed(1)
        self.losses = {"total": keras.metrics.Mean(name="total")}


class Averaged(keras.Model):
    """A model with a metric of its own, and a property that needs what `compile` creates."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.dense.build((None, 2))

    @property
    def metrics(self):
        return [self.created_by_compile]


def closure():
    """Returns a function that holds a variable which nothing else holds."""
    hidden = tf.Variable(0, name="hidden")
    return lambda: hidden.assign_add(1)


strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.1), keras.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    optimizer.build(model.trainable_variables)
    read_by_all = tf.Variable(
        0.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
shared = keras.Model(model.inputs, model.layers[-1].output)  # Other layers of the same model.
passed = keras.metrics.Mean(name="passed")
trainer = Trainer()
second = Averaged()
step = closure()
weights = [tf.Variable(v) for v in model.trainable_variables]
iterator = iter(tf.data.Dataset.range(3))
keras.random.normal((1,))  # creates Keras's global generator
exported = tf.Module()
exported.kernel = tf.Variable([1.0])
with tempfile.TemporaryDirectory() as directory:
    tf.saved_model.save(exported, directory)
    encoder = tf.saved_model.load(directory)
del exported
gone = tf.Variable(0, name="gone")
del gone

embeddings = tf.Module()
embeddings.users, embeddings.words = DynamicTable(), LeftOut()

given = {"a": model, "b": optimizer, "d": embeddings}
saved = find_state(tf.train.Checkpoint(**given), {**given, "c": passed})
for found in find_untracked(one.thing for one in saved):
    print(f"{found} | {found.by_keras} | {describe_untracked(found)}")
