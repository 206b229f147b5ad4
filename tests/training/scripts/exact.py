"""Trains with everything that makes exact resumption hard, and logs each step bit by bit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time

import keras
import numpy as np
import tensorflow as tf
from shared_parts import digest, request_restore

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.training import create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--restore-at", type=int)
parser.add_argument("--restore", default="ckpt-20")
parser.add_argument("--die-at", type=int, help="after the restore")
parser.add_argument("--die-with", default="ckpt-b1-40", help="the checkpoint that is there then")
parser.add_argument("--hold-at", type=int, nargs="*", default=[], help="until LOG-hold-N exists")
parser.add_argument("--in-parts", action="store_true", help="beside training, by all workers")
parser.add_argument("--plain", action="store_true", help="nothing that draws or averages")
parser.add_argument("--directory", help="of the run, whatever the launcher says")
parser.add_argument("--tensorboard")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    hard = (
        []
        if options.plain
        else [keras.layers.BatchNormalization(momentum=0.9), keras.layers.Dropout(0.3)]
    )
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            *hard,
            keras.layers.Dense(4),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)
    generator = tf.random.Generator.from_seed(11)
model.noise = generator


def shuffled_examples(context):
    random = np.random.RandomState(100 + context.input_pipeline_id)
    x = random.randn(200, 8).astype(np.float32)
    y = random.randint(0, 4, 200)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    # Each epoch has another order, and a thread reads ahead, also beyond the end of an epoch.
    dataset = dataset.shuffle(64, seed=5 + context.input_pipeline_id).repeat()
    dataset = dataset.map(lambda x, y: (x * 2, y), num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(16, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


run = TrainingRun(
    options.directory,
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=shuffled_examples,
    tensorboard=options.tensorboard,
    total_steps=options.steps,
    save_every_steps=options.save_every,
    saving=SaveOptions(background=True, spread=True, largest_shard=900)
    if options.in_parts
    else None,
)


def replica_step(batch):
    x, y = batch
    with tf.GradientTape() as tape:
        noise = 0.0 if options.plain else 0.1 * generator.normal(tf.shape(x))
        logits = model(x + noise, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        scaled = loss / run.replica_count
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


index = int(os.environ["TFCKPT_WORKER_INDEX"])
train_step = run.function(replica_step)
with open(f"{options.log}-{index}.jsonl", "a", buffering=1) as log:
    for batch in run:
        metrics = train_step(batch)
        step = run.step + 1
        run.state["count"] = run.state.get("count", 0) + 1
        run.worker_state["mine"] = run.worker_state.get("mine", 0) + 1 + index
        line = {"step": step, "branch": run.branch, "loss": metrics["loss"].hex()}
        line["kept"] = [run.state["count"], run.worker_state["mine"]]
        value = digest(strategy, [*model.variables, *optimizer.variables])
        log.write(json.dumps({**line, "digest": value}) + "\n")
        while step in options.hold_at and not os.path.exists(f"{options.log}-hold-{step}"):
            time.sleep(0.01)
        if step == options.restore_at and run.branch == 0 and index == 0:
            request_restore(run.directory, options.restore)
        if step == options.die_at and run.branch == 1:
            while not (run.directory / f"{options.die_with}.index").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
