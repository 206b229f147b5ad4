"""Writes event files in each way that TensorFlow has, and a CSV file of Keras.

Prints what TensorBoard reads of them, and what Keras reported.

python event_files_of_others.py DIRECTORY
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

directory = Path(sys.argv[1])

writer = tf.summary.create_file_writer(str(directory / "loop"))
with writer.as_default():
    for step in range(50):
        tf.summary.scalar("loss", 1 / (step + 1), step=step)
        tf.summary.scalar("none", np.nan, step=step)
        tf.summary.histogram("weights", np.arange(step + 1.0), step=step)
        tf.summary.text("note", f"step {step}", step=step)
writer.close()

with tf.compat.v1.Graph().as_default():
    estimator = tf.compat.v1.summary.FileWriter(str(directory / "estimator" / "eval"))
    for step in range(0, 100, 10):
        value = tf.compat.v1.Summary.Value(tag="loss_1", simple_value=step / 3)
        estimator.add_summary(tf.compat.v1.Summary(value=[value]), step)
    estimator.close()

model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
inputs = np.random.default_rng(0).random((64, 4))
history = model.fit(
    inputs,
    inputs.sum(1),
    epochs=3,
    validation_split=0.25,
    verbose=0,
    callbacks=[
        tf.keras.callbacks.TensorBoard(directory / "keras", histogram_freq=1, update_freq=2),
        tf.keras.callbacks.CSVLogger(directory / "keras" / "training.log", separator=";"),
    ],
).history

read = {}
for place in sorted({path.parent for path in directory.rglob("*tfevents*")}):
    events = EventAccumulator(str(place), {"scalars": 0, "tensors": 0}, purge_orphaned_data=False)
    events.Reload()
    found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    for tag in events.Tags()["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            found[tag] = events.Tensors(tag)
    for tag, points in found.items():
        values = [
            float(p.value) if hasattr(p, "value") else float(tf.make_ndarray(p.tensor_proto))
            for p in points
        ]
        steps = [[p.step, p.wall_time] for p in points]
        read[f"{place.relative_to(directory)}/{tag}"] = [
            [*at, None if value != value else value]
            for at, value in zip(steps, values, strict=True)
        ]
for name, numbers in history.items():
    dated = [[epoch, time.time(), value] for epoch, value in enumerate(numbers)]
    read[f"keras/training/epoch_{name}"] = dated
print(json.dumps(read))
