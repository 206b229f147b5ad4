"""Trains an embedding whose rows are divided among parameter servers, and logs each step's bits."""

from __future__ import annotations

import argparse
import json

import google_crc32c
import numpy as np
import tensorflow as tf
from shared_parts import request_restore

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.training import create_strategy

keras = tf.keras
partitioners = tf.distribute.experimental.partitioners
PARTITIONERS = {
    "none": None,
    "two": partitioners.FixedShardsPartitioner(2),
    "three": partitioners.FixedShardsPartitioner(3),
    "small": partitioners.MinSizePartitioner(48, max_shards=4),
}

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--strategy", default="parameter-server")
parser.add_argument("--partitions", choices=PARTITIONERS, default="none")
parser.add_argument("--legacy", action="store_true")
parser.add_argument("--in-parts", action="store_true", help="in the background, in small files")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--restore-at", type=int)
options = parser.parse_args()

strategy = create_strategy(
    options.strategy, threads=1, variable_partitioner=PARTITIONERS[options.partitions]
)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((2,), dtype="int32"),
            keras.layers.Embedding(11, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    family = keras.optimizers.legacy if options.legacy else keras.optimizers
    optimizer = family.Adam(0.1)
    if not options.legacy:
        optimizer.build(model.trainable_variables)


def examples():
    random = np.random.RandomState(5)
    ids, y = random.randint(0, 11, (60, 2)), random.randn(60).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((ids, y)).repeat().batch(4)


run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=examples(),
    total_steps=options.steps,
    save_every_steps=4,
    saving=SaveOptions(background=True, largest_shard=64) if options.in_parts else None,
)


def replica_step(batch):
    ids, y = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.reshape(model(ids), [-1]) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def values():
    """Returns a checksum of all weights and slots; partitions come in the order of their rows."""
    value = 0
    for variable in [*model.variables, *optimizer.variables()]:
        array = np.asarray(tf.convert_to_tensor(variable))
        value = google_crc32c.extend(value, array.tobytes())
    return value


train_step = run.function(replica_step)
with open(options.log, "a", buffering=1) as log:
    for batch in run:
        log.write(json.dumps([run.branch, run.step, values()]) + "\n")
        train_step(batch)
        if run.step + 1 == options.restore_at and run.branch == 0:
            request_restore(run.directory, "ckpt-4")
    log.write(json.dumps([run.branch, run.step, values()]) + "\n")
