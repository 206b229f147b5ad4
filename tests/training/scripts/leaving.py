"""Trains beside an iterator that nobody may destroy, and leaves in one of many ways."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
from pathlib import Path

import keras
import tensorflow as tf
from shared_parts import watch_iterators

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import SteeringCallback, create_strategy, fit

STEPS = 6

parser = argparse.ArgumentParser()
parser.add_argument("--how", required=True)
parser.add_argument("--strategy", default="one-device")
options = parser.parse_args()
how = options.how

# It is not flushed: the end of the interpreter does that.
atexit.register(lambda: print("the script's own end"))
watch_iterators(Path(f"{os.environ['TFCKPT_RUN_DIR']}-iterators"))
strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)

run_dir = Path(os.environ["TFCKPT_RUN_DIR"])
run_dir.mkdir(exist_ok=True)
nothing_comes = run_dir.with_name(f"{how}-pipe")
os.mkfifo(nothing_comes)


def example(number, last):
    """An example; from number `last` on, one that is never read."""
    path = tf.where(number < last, "/dev/null", str(nothing_comes))
    return tf.ones((4, 8)), tf.ones((4, 1)) + tf.cast(
        tf.strings.length(tf.io.read_file(path)), tf.float32
    )


def examples(last=1000):
    """The number `last` blocks a thread for ever; destroying the iterator waits for that thread."""
    numbers = tf.data.Dataset.range(1000)
    dataset = numbers.map(lambda number: example(number, last), num_parallel_calls=4)
    options = tf.data.Options()
    # The blocked threads are not those of training.
    options.threading.private_threadpool_size = 8
    return dataset.with_options(options)


def step_done(number):
    """Ends training at the last step, in the ways that are asked for in the loop."""
    if number < STEPS:
        return
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
    iterator = iter(examples(1))
    next(iterator)
    for number, batch in enumerate(run, 1):
        train_step(batch)
        step_done(number)
        if how == "break" and number == STEPS:
            break
    return iterator


if how == "fit":
    iterator = iter(examples(1))
    next(iterator)
    fit(model, examples(), epochs=2, steps_per_epoch=STEPS // 2, callbacks=[Steps()], verbose=0)
else:
    with_keras = how.startswith("keras")
    run = TrainingRun(
        model=model,
        optimizer=model.optimizer,
        strategy=strategy,
        dataset=None if with_keras else examples(),
        total_steps=STEPS if how == "end" else None,
    )
    if with_keras:
        callbacks = [Steps(), SteeringCallback(run)]
        model.fit(examples(STEPS + 2), steps_per_epoch=1000, callbacks=callbacks, verbose=0)
    else:
        train_step = run.function(model.train_step)
        iterator = train()
