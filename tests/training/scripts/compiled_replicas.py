"""Trains with the function of a replica compiled by XLA for another device, as a TPU does it.

The other device is a second logical CPU. XLA refuses variables elsewhere, such as one that was
created outside of the strategy's scope.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import fit

run_dir, loop = sys.argv[1:]
# The last batch of an epoch of `fit` has other sizes. XLA compiles each for seconds.
EXAMPLES, BATCH, STEPS = 10 if loop == "fit" else 8, 4, 6

one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [one, one])


class CompilingStrategy(tf.distribute.OneDeviceStrategy):
    """Compiles what it runs, within the graph of a step."""

    def run(self, fn, args=(), kwargs=None, options=None):
        compiled = tf.function(fn, jit_compile=True, autograph=False)
        return super().run(compiled, args, kwargs, options)


strategy = CompilingStrategy("/CPU:1")
with strategy.scope():
    layers = [keras.layers.Dense(4), keras.layers.Dropout(0.2), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
x, y = np.ones((EXAMPLES, 3), np.float32), np.ones((EXAMPLES, 1), np.float32)


def replica_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch[0], training=True) - batch[1]) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


if loop == "fit":
    fit(model, x, y, BATCH, epochs=STEPS // 3, run_dir=run_dir, validation_data=(x, y), verbose=0)
else:
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
    run = TrainingRun(
        run_dir,
        model=model,
        optimizer=model.optimizer,
        dataset=dataset,
        strategy=strategy,
        total_steps=STEPS,
    )
    train_step = run.function(replica_step)
    for each in run:
        train_step(each)
