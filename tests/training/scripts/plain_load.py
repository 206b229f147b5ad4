"""Restores a checkpoint as any program does that never heard of our library."""

from __future__ import annotations

import sys

import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
checkpoint.restore(tf.train.latest_checkpoint(sys.argv[1])).assert_consumed()
print(int(step), float(tf.reduce_sum(tf.abs(optimizer.variables[2].value))) > 0)
