"""Trains a line on numbered batches; one worker alone sees what is wrong with one of them."""

from __future__ import annotations

import argparse
import json
import os

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--guard", action="append", default=[])
parser.add_argument("--bad", type=int, nargs="*", default=[], help="batches of worker 1")
parser.add_argument("--value", type=float, default=float("nan"), help="of what it reports then")
parser.add_argument("--omit", type=int, nargs="*", default=[], help="batches of all workers")
parser.add_argument("--whole", help="directory of a run that never has the omitted batches")
options = parser.parse_args()

worker = int(os.environ["TFCKPT_WORKER_INDEX"])
strategy = create_strategy(options.strategy, threads=1)


def train(directory, guards, bad, omit):
    """Trains from the first step on, and writes a report."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(1e-2)
        optimizer.build(model.trainable_variables)

    omitted = tf.constant([-1, *omit], tf.int64)
    numbers = tf.data.Dataset.counter().filter(lambda n: tf.reduce_all(omitted != n))
    dataset = numbers.map(lambda n: (n, tf.cast(n * 2 + worker, tf.float32)[None, None] / 50.0))
    run = TrainingRun(
        directory,
        model=model,
        optimizer=optimizer,
        strategy=strategy,
        dataset=dataset,
        total_steps=options.steps,
        save_every_steps=5,
        guards=guards,
    )

    def replica_step(batch):
        _, x = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - 3.0 * x) ** 2)
            scaled = loss / run.replica_count
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return {"loss": loss}

    train_step = run.function(replica_step)
    batches = []
    for batch in run:
        number = int(batch[0])
        batches.append(number)
        train_step(batch)
        run.report(norm=options.value if worker == 1 and number in bad else 1.0)
    report = {
        "batches": batches,
        "step": run.step,
        "values": [value.numpy().tolist() for value in (*model.variables, *optimizer.variables)],
    }
    (run.directory / f"report-{worker}.json").write_text(json.dumps(report))


train(None, options.guard, options.bad, [] if options.whole else options.omit)
if options.whole:
    train(options.whole, [], [], options.omit)
