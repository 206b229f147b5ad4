"""Counts its steps and adds the numbers of their batches, in variables of parameter servers."""

from __future__ import annotations

import argparse
import time

import tensorflow as tf
from tensorflow import keras

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="parameter-server")
parser.add_argument("--synchronous", action="store_true")
parser.add_argument("--steps", type=int)
parser.add_argument("--save-every", type=int, default=50)
parser.add_argument("--steps-per-call", type=int, default=10)
parser.add_argument("--call-seconds", type=float, default=0.05, help="the least that a call takes")
parser.add_argument("--legacy", action="store_true", help="a legacy optimizer of Keras 2")
parser.add_argument("--guard", action="append", default=[])
parser.add_argument("--own-schedule", action="store_true", help="in place of run.function")
parser.add_argument("--silent", action="store_true", help="report nothing")
parser.add_argument("--wrong-at", type=int, help="the number of a batch that fails")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
optimizers = keras.optimizers.legacy if options.legacy else keras.optimizers
with strategy.scope():
    model = tf.Module()
    model.weight = tf.Variable(0.0)
    model.steps = tf.Variable(0, dtype=tf.int64)
    model.sum = tf.Variable(0, dtype=tf.int64)
    optimizer = optimizers.SGD(1.0)
    if options.legacy:
        optimizer._create_all_weights([model.weight])
    else:
        optimizer.build([model.weight])

run = TrainingRun(
    model={"counts": model},
    optimizer=optimizer,
    strategy=strategy,
    dataset=tf.data.Dataset.counter(),
    total_steps=options.steps,
    save_every_steps=options.save_every,
    guards=options.guard,
    asynchronous=not options.synchronous,
)


def replica_step(number):
    """A gradient of -1, in place of that of a loss."""
    if options.wrong_at is not None:
        tf.debugging.assert_less(number, tf.constant(options.wrong_at, tf.int64), "a wrong batch")
    model.steps.assign_add(1)
    model.sum.assign_add(number)
    optimizer.apply_gradients([(tf.constant(-1.0 / run.replica_count), model.weight)])
    return None if options.silent else {"number": tf.cast(number, tf.float32)}


def own_step():
    """Schedules steps as plain TensorFlow does."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    compute = tf.function(lambda number: strategy.run(replica_step, args=(number,)))

    def schedule(elements):
        coordinator.schedule(compute, args=tuple(elements))

    return schedule


calls = {} if options.synchronous else {"steps_per_call": options.steps_per_call}
train_step = own_step() if options.own_schedule else run.function(replica_step, **calls)
for batches in run:
    train_step(batches)
    # At full speed it would take the processor from the tests that wait for it.
    time.sleep(options.call_seconds)
