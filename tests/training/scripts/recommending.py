"""Trains a two-tower retrieval model of TensorFlow Recommenders, and logs each step's bits.

With parameter servers, the rows of its embeddings are divided among all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import google_crc32c
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--strategy", default="parameter-server")
parser.add_argument("--servers", type=int, default=0)
parser.add_argument("--guard", action="append", default=[])
parser.add_argument("--call-seconds", type=float, default=0.05, help="the least that a step takes")
options = parser.parse_args()

partitioner = None
if options.servers > 1:
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(options.servers)
strategy = create_strategy(options.strategy, threads=1, variable_partitioner=partitioner)
tf.keras.utils.set_random_seed(3)

titles = [f"{a} {b}" for a in ("red", "old", "lost") for b in ("river", "city", "star", "road")]
users = [f"user {number}" for number in range(10)]
of_users = tf.keras.layers.StringLookup(vocabulary=users, mask_token=None)
of_titles = tf.keras.layers.StringLookup(vocabulary=titles, mask_token=None)


class Retrieval(tfrs.Model):
    """Finds the movie of a user among those of the batch."""

    def __init__(self):
        super().__init__()
        self.users = tf.keras.layers.Embedding(len(users) + 1, 8)
        self.movies = tf.keras.layers.Embedding(len(titles) + 1, 8)
        self.task = tfrs.tasks.Retrieval()

    def compute_loss(self, features, training=False):
        queries, movies = self.users(features["user"]), self.movies(features["movie"])
        return self.task(queries, movies, compute_metrics=False, compute_batch_metrics=False)


def views(context):
    rng = np.random.RandomState(10 + context.input_pipeline_id)
    found = {"user": rng.choice(users, 640), "movie": rng.choice(titles, 640)}
    views = tf.data.Dataset.from_tensor_slices(found).shuffle(64, seed=5).repeat().batch(16)
    return views.map(
        lambda view: {"user": of_users(view["user"]), "movie": of_titles(view["movie"])}
    )


with strategy.scope():
    model = Retrieval()
    ones = tf.ones([16], tf.int64)
    model.compute_loss({"user": ones, "movie": ones})
    optimizer = tf.keras.optimizers.Adagrad(0.1)
    optimizer.build(model.trainable_variables)

run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=views,
    save_every_steps=20,
    guards=options.guard,
)


def replica_step(features):
    with tf.GradientTape() as tape:
        loss = model.compute_loss(features, training=True) / run.replica_count
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return {"loss": loss, "rate": optimizer.learning_rate}


def bits():
    """Returns a checksum of all weights and slots; partitions come in the order of their rows."""
    value = 0
    for variable in [*model.variables, *optimizer.variables]:
        array = np.asarray(tf.convert_to_tensor(variable))
        value = google_crc32c.extend(value, array.tobytes())
    return value


train_step = run.function(replica_step)
index = int(os.environ["TFCKPT_WORKER_INDEX"])
with Path(f"{options.log}-{index}.jsonl").open("a", buffering=1) as log:
    for batch in run:
        loss = float(train_step(batch)["loss"])
        log.write(json.dumps([run.branch, run.step + 1, loss.hex(), bits()]) + "\n")
        time.sleep(options.call_seconds)
