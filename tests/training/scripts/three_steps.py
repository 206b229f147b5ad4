"""Trains for three steps in the directory it is given."""

from __future__ import annotations

import sys

import keras

from tfckpt_trainer import TrainingRun

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
for _ in TrainingRun(sys.argv[1], model=model, optimizer=keras.optimizers.SGD(), total_steps=3):
    pass
