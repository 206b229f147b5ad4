"""Trains a model of a given size and logs when each step ended."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=float, default=1.0, help="size of a checkpoint")
options = parser.parse_args()

strategy = create_strategy("multi-worker", threads=1)
# Weights and the two moments of Adam, four bytes each.
width = max(8, int((options.megabytes * 1e6 / 12) ** 0.5))
with strategy.scope():
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=tf.data.Dataset.from_tensors(tf.ones((8, width))).repeat(),
)


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
