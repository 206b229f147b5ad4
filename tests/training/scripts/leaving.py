"""Trains until a thread of tf.data sleeps for seconds, and leaves in one of many ways."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import time
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import SteeringCallback, create_strategy, fit

STEPS = 52
STEP_SECONDS = 0.2

parser = argparse.ArgumentParser()
parser.add_argument("--how", required=True)
parser.add_argument("--strategy", default="one-device")
options = parser.parse_args()
how = options.how

# It is not flushed: the end of the interpreter does that.
atexit.register(lambda: print("the script's own end"))
strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)

dataset = tf.data.Dataset.from_tensors((tf.ones((4, 8)), tf.ones((4, 1)))).repeat()
for _ in range(30):
    dataset = dataset.map(lambda x, y: (x + 0.0, y), num_parallel_calls=tf.data.AUTOTUNE)


def step_done(number):
    """Ends training at the last step, in the ways that are asked for in the loop."""
    time.sleep(STEP_SECONDS)
    if number < STEPS:
        return
    Path(os.environ["TFCKPT_RUN_DIR"], "left").write_text(str(time.time()))
    if how.endswith("sigterm"):
        os.kill(os.getpid(), signal.SIGTERM)
    elif how.endswith("stop"):
        run.stop()
    elif how == "error":
        raise RuntimeError("an error of the script")


class Steps(keras.callbacks.Callback):
    """Does in Keras's loop what the other loop does."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def on_train_batch_end(self, batch, logs=None):
        self.number += 1
        step_done(self.number)


def train():
    """Trains; returns its own iterator, which the library does not know.

    The script keeps it, since a script that destroys an iterator itself and goes on waits for it.
    """
    iterator = iter(dataset)
    for number, batch in enumerate(run, 1):
        next(iterator)
        train_step(batch)
        step_done(number)
        if how == "break" and number == STEPS:
            break
    return iterator


if how == "fit":
    fit(model, dataset, epochs=2, steps_per_epoch=STEPS // 2, callbacks=[Steps()], verbose=0)
else:
    with_keras = how.startswith("keras")
    run = TrainingRun(
        model=model,
        optimizer=model.optimizer,
        strategy=strategy,
        dataset=None if with_keras else dataset,
        total_steps=STEPS if how == "end" else None,
    )
    if with_keras:
        callbacks = [Steps(), SteeringCallback(run)]
        model.fit(dataset, steps_per_epoch=1000, callbacks=callbacks, verbose=0)
    else:
        train_step = run.function(model.train_step)
        iterator = train()
