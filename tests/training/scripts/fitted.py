"""Trains a compiled Keras model by `fit`; logs what its callbacks see."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from shared_parts import digest, request_restore
from tensorflow import keras

from tfckpt_trainer.training import SaveOptions, create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--log", required=True)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--save-every", type=int, default=7)
parser.add_argument("--die-after", type=int, help="kill it after so many batches")
parser.add_argument("--restore-after", type=int, help="go back after so many batches")
parser.add_argument("--restore", default="ckpt-7")
parser.add_argument("--patience", type=int)
parser.add_argument("--slow", action="store_true")
parser.add_argument("--in-parts", action="store_true", help="beside training, by all workers")
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--partial", action="store_true")
parser.add_argument("--steps-per-execution", type=int, default=1)
parser.add_argument("--arrays", action="store_true", help="for training, in place of a function")
options = parser.parse_args()

strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(options.width, activation="relu"),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=options.steps_per_execution,
    )


def examples(context, seed):
    random = np.random.RandomState(seed + context.input_pipeline_id)
    x = random.randn(80 * context.num_replicas_in_sync, 8).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)


def training(context):
    return examples(context, 100).shuffle(64, seed=5).batch(8, drop_remainder=True)


def validation(context):
    return examples(context, 900).batch(8, drop_remainder=True)


index = int(os.environ["TFCKPT_WORKER_INDEX"])


class Log(keras.callbacks.Callback):
    """Writes a line for each batch and each epoch; kills, restores and slows down."""

    def __init__(self):
        super().__init__()
        # Not a number: a restore would set it back.
        self._batches = itertools.count(1)
        self._path = Path(f"{options.log}-{index}.jsonl")

    def write(self, **line):
        with self._path.open("a") as log:
            log.write(json.dumps(line) + "\n")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        batches = next(self._batches)
        value = digest(strategy, [*model.variables, *model.optimizer.variables])
        self.write(
            epoch=self.epoch,
            batch=batch,
            digest=value,
            logs={k: float(v).hex() for k, v in logs.items()},
        )
        if options.slow:
            time.sleep(0.05)
        if batches == options.die_after:
            # Saves beside training may be slower than this training.
            while not (
                Path(os.environ["TFCKPT_RUN_DIR"]) / f"ckpt-{options.save_every}.index"
            ).exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if batches == options.restore_after and index == 0:
            request_restore(os.environ["TFCKPT_RUN_DIR"], options.restore)

    def on_epoch_end(self, epoch, logs=None):
        rate = float(model.optimizer.learning_rate.numpy())
        self.write(epoch=epoch, end={k: float(v).hex() for k, v in logs.items()}, rate=rate)


callbacks = [
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=10),
    Log(),
]
if options.patience:
    callbacks.append(
        keras.callbacks.EarlyStopping(monitor="loss", patience=options.patience, min_delta=10)
    )
arrays = np.random.RandomState(7).randn(80, 8).astype(np.float32)
history = fit(
    model,
    *((arrays, (arrays[:, 0] > 0).astype(int), 8) if options.arrays else (training,)),
    epochs=options.epochs,
    callbacks=callbacks,
    validation_data=validation,
    save_every_steps=options.save_every,
    saving=SaveOptions(background=True, spread=True, largest_shard=900)
    if options.in_parts
    else None,
    partial=options.partial,
    # Layers of Keras 2 draw from operations that have no state of their own.
    random_seed=5 if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else None,
)
print("history", json.dumps(history.history["loss"]))
