"""Trains a small model on the tasks of a job, and writes a digest of its final weights.

python train.py [--run-dir RUN] [--step-seconds S] [--waits-for FILE] [--strategy NAME]

Steps after 40 take long until FILE exists.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfckpt_trainer.training import TrainingRun, create_strategy

STEPS = 60
LONG_SECONDS = 5.0

parser = argparse.ArgumentParser()
parser.add_argument("--run-dir")
parser.add_argument("--step-seconds", type=float, default=0.0)
parser.add_argument("--waits-for", type=Path)
parser.add_argument("--strategy", default="multi-worker")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1, parameter_servers=1)
keras.utils.set_random_seed(7)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dropout(0.2, seed=3),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)


def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
    x = tf.random.stateless_normal((256, 8), seed=(1, 2))
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(64, seed=5).repeat().batch(8)


run = TrainingRun(
    options.run_dir,
    model=model,
    optimizer=optimizer,
    dataset=dataset,
    strategy=strategy,
    total_steps=STEPS,
    save_every_steps=20,
)


def replica_step(batch):
    x, y = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        scaled = loss / run.replica_count
    variables = model.trainable_variables
    gradients = tape.gradient(scaled, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


train_step = run.function(replica_step)
for batch in run:
    train_step(batch)
    waits = options.waits_for is not None and not options.waits_for.exists()
    time.sleep(LONG_SECONDS if waits and run.step > 40 else options.step_seconds)

if run.is_chief:
    digest = hashlib.sha256()
    for variable in [*model.variables, *optimizer.variables]:
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    (run.directory / "digest").write_text(digest.hexdigest())
