"""Trains a small model until it is interrupted or fails, in a loop or in `fit`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy, fit

FAILURES = ("input", "before", "within", "after", "nan", "around", "caught", "other-trainer")
"""Where in the loop the error is raised, or what else is the matter with it."""

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="one-device")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--fit", action="store_true")
parser.add_argument("--fail", choices=FAILURES)
parser.add_argument("--at", type=int, default=8)
parser.add_argument("--threads", type=int, default=1, help="0 for those that there are")
options = parser.parse_args()

keras.utils.set_random_seed(3)
strategy = create_strategy(options.strategy, threads=options.threads or None)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
x = np.random.RandomState(1).randn(64, 4).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(x).shuffle(64, seed=5).batch(8).repeat()


def fail(where, step):
    if options.fail == where and step + 1 == options.at:
        raise ValueError(f"the script failed {where}")


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)
        fail("after", batch)


if options.fit:
    targets = dataset.map(lambda batch: (batch, tf.reduce_sum(batch, axis=1, keepdims=True)))
    fit(model, targets, steps_per_epoch=options.steps, epochs=1, callbacks=[Slow()])
    raise SystemExit("the code after fit ran")

if options.fail == "input":

    def read(number):
        if number == 8 * options.at:
            raise ValueError("the script failed input")
        return x[number % 64]

    def rows():
        yield from map(read, range(8 * options.steps))

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((4,))).batch(8)

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


def train():
    for batch in run:
        time.sleep(0.01)
        fail("before", run.step)
        if options.fail == "within" and run.step + 1 == options.at:
            batch = tf.zeros((8, 3))
        loss = train_step(batch)["loss"]
        if options.fail == "nan":
            run.report(penalty=float("nan") if run.step + 1 == options.at else loss)
        for where in ("after", "nan", "caught", "other-trainer"):
            fail(where, run.step)


if options.fail == "around":

    def watched(batches):
        yield from batches

    for batch in watched(enumerate(run)):
        train_step(batch[1])
        fail("around", run.step)
elif options.fail == "caught":
    try:
        train()
    except ValueError:
        print("the script goes on")
    raise RuntimeError("a later error")
elif options.fail == "other-trainer":
    try:
        train()
    finally:
        Path(f"{run.directory}-left").touch()
        while not Path(f"{run.directory}-locked").exists():
            time.sleep(0.01)
else:
    train()
print("the code after the loop ran")
