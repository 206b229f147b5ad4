"""Trains on datasets whose ends the workers reach at different steps, and logs each batch."""

from __future__ import annotations

import argparse
import os

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int, nargs="+", required=True, help="of each worker's dataset")
parser.add_argument("--unknown", action="store_true", help="the number of elements")
parser.add_argument("--stop-after", type=int, help="leave the loop after this step, saved before")
parser.add_argument("--log", required=True)
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)


def numbered_examples(context):
    """Batches of two; the last one of each worker has one example."""
    size = 2 * options.steps[context.input_pipeline_id] - 1
    numbers = tf.data.Dataset.range(size).shuffle(8, seed=context.input_pipeline_id)
    if options.unknown:
        numbers = numbers.filter(lambda _: True)
    return numbers.batch(2).map(lambda n: (n, tf.ones((tf.shape(n)[0], 4))))


run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=numbered_examples,
    save_every_steps=4,
)


def replica_step(batch):
    _, x = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


train_step = run.function(replica_step)
index = int(os.environ["TFCKPT_WORKER_INDEX"])
with open(f"{options.log}-{index}", "a", buffering=1) as log:
    for batch in run:
        if run.step == options.stop_after:
            break
        train_step(batch)
        log.write(f"{run.step + 1} {tf.nest.flatten(batch)[0].numpy().tolist()}\n")
print(f"went on after step {run.step}")
