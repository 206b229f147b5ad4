"""Trains a model of a given size and logs when each step ended."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

READS = 7

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=float, default=1.0, help="size of a checkpoint")
parser.add_argument("--read", help="time plain reads of this checkpoint, and do nothing else")
options = parser.parse_args()

strategy = create_strategy("one-device" if options.read else "multi-worker", threads=1)
# Weights and the two moments of Adam, four bytes each.
width = max(8, int((options.megabytes * 1e6 / 12) ** 0.5))
with strategy.scope():
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

if options.read:
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    seconds = []
    for _ in range(READS):
        began = time.perf_counter()
        checkpoint.read(options.read).assert_existing_objects_matched()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))
    raise SystemExit

# An input as real runs have it: shuffled, made by several threads, and read ahead.
dataset = tf.data.Dataset.range(1000).shuffle(100).repeat()
dataset = dataset.map(lambda _: tf.ones((width,)), num_parallel_calls=tf.data.AUTOTUNE)
for _ in range(10):
    dataset = dataset.map(lambda x: x + 0.0, num_parallel_calls=tf.data.AUTOTUNE)
dataset = dataset.batch(8).prefetch(tf.data.AUTOTUNE)

run = TrainingRun(model=model, optimizer=optimizer, strategy=strategy, dataset=dataset)


@run.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch, training=True) ** 2)
        scaled = loss / strategy.num_replicas_in_sync
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


log = Path(run.directory) / f"steps-{os.environ['TFCKPT_WORKER_INDEX']}.log"
with log.open("a", buffering=1) as lines:
    for batch in run:
        train_step(batch)
        lines.write(f"{time.time()} {run.step + 1} {os.getpid()}\n")
