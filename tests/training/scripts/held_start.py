"""Trains; each part of its start waits while a file of that name exists in a directory."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

PLACE = Path(sys.argv[1])
PAUSE_SECONDS = 0.1
"""Others need the processor meanwhile."""


def hold(part: str) -> None:
    """Waits while a file of this name exists, in any worker or in this one."""
    own = f"{part}-{os.environ['TFCKPT_WORKER_INDEX']}"
    while (PLACE / part).exists() or (PLACE / own).exists():
        time.sleep(PAUSE_SECONDS)


hold("import")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfckpt_trainer import TrainingRun  # noqa: E402
from tfckpt_trainer.training import create_strategy  # noqa: E402

hold("prepare")
strategy = create_strategy("multi-worker", threads=1)
hold("build")
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)
run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=tf.data.Dataset.from_tensors(tf.ones((4, 2))).repeat(),
    save_every_steps=5,
    total_steps=1_000_000,
)


@run.function
def train_step(batch):
    loss = tf.reduce_mean(model(batch) ** 2)
    optimizer.apply([tf.zeros_like(one) for one in model.trainable_variables])
    return loss


for batch in run:
    hold("step")
    train_step(batch)
    time.sleep(PAUSE_SECONDS)
