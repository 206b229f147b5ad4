"""Scales the loss, with gradients that overflow on the last replica in the first step alone."""

from __future__ import annotations

import argparse

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", required=True)
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0)
    optimizer.build(model.trainable_variables)


def batches(context):
    mine = context.input_pipeline_id == context.num_input_pipelines - 1
    replicas = context.num_replicas_in_sync // context.num_input_pipelines
    first = [[1.0]] * (replicas - 1) + [[1e30 if mine else 1.0]]
    return tf.data.Dataset.from_tensor_slices([*first, *[[1.0]] * (2 * replicas)]).batch(1)


def replica_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch) ** 2) / run.replica_count
        scaled = optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


run = TrainingRun(model=model, optimizer=optimizer, strategy=strategy, dataset=batches)
train_step = run.function(replica_step)
for batch in run:
    train_step(batch)
updates, scale = (one.value.numpy() for one in (optimizer.iterations, optimizer.dynamic_scale))
finite = bool(np.isfinite(model.get_weights()[0]).all())
print(f"updates {updates}, scale {scale}, finite {finite}")
if options.strategy == "multi-worker":
    print(strategy.extended._communication_options.implementation)
