"""Trains with draws and unequal batches, several steps in each call, and logs the calls."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from shared_parts import digest

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--log", type=Path, required=True)
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps-per-call", type=int, required=True)
parser.add_argument("--endless", action="store_true")
parser.add_argument("--die-after", type=int)
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)


def batches(context):
    """As many batches as no other worker has; the last one is smaller."""
    examples = 90 + 16 * context.input_pipeline_id
    random = np.random.RandomState(100 + context.input_pipeline_id)
    data = random.randn(examples, 8).astype(np.float32), random.randint(0, 4, examples)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
    return dataset.repeat() if options.endless else dataset


run = TrainingRun(
    model=model,
    optimizer=optimizer,
    dataset=batches,
    strategy=strategy,
    save_every_steps=5,
    total_steps=23 if options.endless else None,
    random_seed=11,
)


def replica_step(batch):
    x, y = batch
    with tf.GradientTape() as tape:
        noise = tf.random.normal(tf.shape(x)) + tf.random.uniform([8], seed=3)
        x = tf.nn.dropout(x + 0.1 * noise, 0.2)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x), True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return {"loss": loss, "step": tf.cast(optimizer.iterations, tf.float32)}


train_step = run.function(replica_step, steps_per_call=options.steps_per_call)
with options.log.with_name(f"{options.log.name}-{os.environ['TFCKPT_WORKER_INDEX']}").open(
    "a"
) as log:
    for inputs in run:
        metrics = train_step(inputs)
        steps = len(inputs) if options.steps_per_call > 1 else 1
        state = digest(strategy, model.trainable_variables)
        line = {"step": run.step + steps, "steps": steps, "iterations": metrics["step"]}
        log.write(json.dumps(line | {"loss": metrics["loss"].hex(), "state": state}) + "\n")
        log.flush()
        if run.step + steps == options.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
