"""Trains a small model until it is interrupted, in a loop or in `fit`."""

from __future__ import annotations

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="one-device")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--fit", action="store_true")
options = parser.parse_args()

keras.utils.set_random_seed(3)
strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
x = np.random.RandomState(1).randn(64, 4).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(x).shuffle(64, seed=5).batch(8).repeat()


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)


if options.fit:
    targets = dataset.map(lambda batch: (batch, tf.reduce_sum(batch, axis=1, keepdims=True)))
    fit(model, targets, steps_per_epoch=options.steps, epochs=1, callbacks=[Slow()])
    raise SystemExit("the code after fit ran")

run = TrainingRun(
    model=model,
    optimizer=model.optimizer,
    dataset=dataset,
    strategy=strategy,
    total_steps=options.steps,
)


def replica_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch) - tf.reduce_sum(batch, 1, keepdims=True)) ** 2)
        scaled = loss / run.replica_count
    gradients = tape.gradient(scaled, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


train_step = run.function(replica_step)
for batch in run:
    time.sleep(0.01)
    train_step(batch)
print("the code after the loop ran")
