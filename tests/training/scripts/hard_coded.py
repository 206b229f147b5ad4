"""Trains in a directory of its own choice, and forgets to pass a generator."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun

keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
noise = tf.random.Generator.from_seed(3)
run = TrainingRun(
    sys.argv[1], model=model, total_steps=9, save_every_steps=1, tensorboard=sys.argv[2]
)


@run.function
def train_step(_):
    loss = tf.reduce_mean(model(noise.normal((4, 2))) ** 2)
    for variable in model.trainable_variables:
        variable.assign(0.9 * variable)
    return loss


run.open()
while not run.is_over:
    train_step(tf.constant(run.step))
    run.step_done(0.01)
run.close()
Path(sys.argv[1], "after").touch()
