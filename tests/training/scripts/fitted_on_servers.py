"""Trains a compiled Keras model by `fit` with parameter servers; prints the history."""

from __future__ import annotations

import argparse
import json
import os
import signal

import tensorflow as tf
from tensorflow import keras

from tfckpt_trainer.training import create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="parameter-server")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--die-at", type=int, help="the epoch at whose end to kill the chief, once")
parser.add_argument("--synchronous", action="store_true")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)


class Numbers(keras.metrics.Metric):
    """Adds the numbers that a model is trained with."""

    def __init__(self, name="numbers", **arguments):
        super().__init__(name=name, **arguments)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(tf.cast(y_true, tf.float32)))

    def result(self):
        return tf.identity(self.total)


def numbers(context):
    """Forty batches of two examples, which are their numbers."""
    assert context.num_replicas_in_sync == 1
    dataset = tf.data.Dataset.range(80).map(lambda n: (tf.cast(n, tf.float32)[None] / 80.0, n))
    return dataset.batch(2)


class Die(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        marker = os.path.join(os.environ["TFCKPT_RUN_DIR"], "died")
        if epoch == options.die_at and not os.path.exists(marker):
            os.close(os.open(marker, os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)


with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss="mse",
        metrics=[Numbers()],
        steps_per_execution=8,
    )
creator = getattr(keras.utils, "experimental", None)
data = creator.DatasetCreator(numbers) if creator is not None else numbers
history = fit(
    model,
    data,
    epochs=options.epochs,
    validation_data=numbers,
    callbacks=[Die()],
    save_every_steps=25,
    **({"asynchronous": False} if options.synchronous else {}),
)
print("history", json.dumps(history.history))
