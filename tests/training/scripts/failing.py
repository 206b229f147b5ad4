"""Fails after three steps, on worker 1 or where the script itself says so."""

from __future__ import annotations

import argparse
import os

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--how", choices=["graph", "loop", "layer", "tracing"], required=True)
options = parser.parse_args()
index = int(os.environ["TFCKPT_WORKER_INDEX"])

strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)
dataset = tf.data.Dataset.from_tensors(tf.ones((2, 4))).repeat()
run = TrainingRun(model=model, optimizer=optimizer, strategy=strategy, dataset=dataset)


def replica_step(x):
    if options.how == "graph" and index == 1:
        done = tf.cast(optimizer.iterations, tf.int32)
        tf.debugging.assert_less(done, 3, message="the rate is too large")
    if options.how == "tracing":
        x = tf.reshape(x, [-1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


train_step = run.function(replica_step)
for batch in run:
    if options.how == "loop" and run.step == 3 and index == 1:
        rate = {}["rate"]
    if options.how == "layer" and run.step == 3 and index == 1:
        model(tf.ones((2, 5)))
    train_step(batch)
