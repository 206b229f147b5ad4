"""Trains four steps of which worker 1 may draw, at its first trace or at a later one."""

from __future__ import annotations

import argparse
import os

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--draw", choices=["never", "first", "later"], required=True)
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
index = int(os.environ["TFCKPT_WORKER_INDEX"])


def replica_step(batch):
    loss = tf.reduce_mean(model(batch))
    if index == 1 and options.draw == ("first" if batch.shape[0] == 1 else "later"):
        loss += tf.random.normal([])
    return loss


run = TrainingRun(model=model, strategy=strategy, total_steps=4, save_every_steps=2)
train_step = run.function(replica_step)
for _ in run:
    # From the third step on, worker 1 has another number of rows, so it alone traces anew.
    train_step(tf.ones([2 if index == 1 and run.step > 1 else 1, 2]))
