"""Tries to train in object storage; prints each refusal."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.training.keras.fit import fit

URL = "gs://bucket/run"

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
dataset = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1))))
attempts = (
    lambda: TrainingRun(URL, model=model),
    lambda: TrainingRun("run", model=model, tensorboard=URL),
    lambda: TrainingRun("run", model=model, saving=SaveOptions(fallback_directory=URL)),
    lambda: fit(model, dataset, run_dir=URL, epochs=1),
)
for attempt in attempts:
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, str(error).split(";")[0])
