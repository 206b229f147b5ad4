"""Trains on workers that adapt a layer to words of their own, and prints its vocabulary."""

from __future__ import annotations

import argparse
import os

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--words", nargs="+", required=True, help="of each worker, with commas")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
words = options.words[int(os.environ["TFCKPT_WORKER_INDEX"])].split(",")
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    model.lookup = keras.layers.StringLookup(max_tokens=3)
    model.lookup.adapt(np.array(words))
run = TrainingRun(model=model, optimizer=optimizer, strategy=strategy, total_steps=options.steps)


@run.function
def train_step(_):
    with tf.GradientTape() as tape:
        looked_up = model.lookup(tf.constant([["red"]]))
        loss = tf.reduce_mean(model(tf.cast(looked_up, tf.float32)) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


for _ in run:
    train_step(tf.zeros([]))
print("has", *model.lookup.get_vocabulary(), flush=True)
