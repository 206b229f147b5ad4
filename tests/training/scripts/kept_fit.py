"""Keras's own `fit`, steered by a callback."""

from __future__ import annotations

import argparse
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfckpt_trainer.training import SteeringCallback, TrainingRun, create_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="mirrored")
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--save-every", type=int)
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.random.RandomState(1).randn(80, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(8)
run = TrainingRun(
    model=model, optimizer=model.optimizer, strategy=strategy, save_every_steps=options.save_every
)
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
history = model.fit(data, epochs=options.epochs, callbacks=[slow, SteeringCallback(run)], verbose=0)
print("epochs", history.epoch[0], history.epoch[-1])
