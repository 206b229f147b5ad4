"""Trains by `fit` on arrays with many callbacks; logs their state after each batch."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
from pathlib import Path

import numpy as np
from shared_parts import digest, request, request_restore
from tensorflow import keras

from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.training import create_strategy, fit

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--log", required=True)
parser.add_argument("--die-after", type=int, help="kill it after so many batches")
parser.add_argument("--restore-after", type=int, help="go back after so many batches")
parser.add_argument("--check-after", type=int, help="ask for a quick check after so many batches")
parser.add_argument("--restore", default="ckpt-7")
parser.add_argument("--monitored", help="address of a server for RemoteMonitor")
options = parser.parse_args()

HAS_SWAP = hasattr(keras.callbacks, "SwapEMAWeights")
"""Keras 2 lacks it."""

index = int(os.environ["TFCKPT_WORKER_INDEX"])
files = Path(options.log).parent / f"{Path(options.log).name}-files"
strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.3), keras.layers.Dense(4)])
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
random = np.random.RandomState(1)
x = random.randn(50, 6).astype("float32")
y = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0)


class Own(keras.callbacks.Callback):
    """A callback of the script, with a state of its own making."""

    def __init__(self):
        super().__init__()
        self.recent = (0.0,)

    def on_train_batch_end(self, batch, logs=None):
        self.recent = (*self.recent[-3:], logs["loss"])

    def state_dict(self):
        return {"recent": list(self.recent)}

    def load_state_dict(self, state):
        self.recent = tuple(state["recent"])


class Counting(keras.callbacks.Callback):
    """A callback of the script that keeps numbers in its attributes."""

    def __init__(self):
        super().__init__()
        self._batches = 0
        self.epochs = {"seen": []}

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs["seen"].append(epoch)

    def on_train_batch_end(self, batch, logs=None):
        self._batches += 1


class Tracked(keras.callbacks.Callback):
    """Sends metrics as those of a tracker do."""

    __module__ = "wandb.integration.keras.callbacks.metrics_logger"

    def on_epoch_end(self, epoch, logs=None):
        (files / f"tracked-by-{index}").touch()


class Log(keras.callbacks.Callback):
    """Writes a line for each batch and each epoch; kills and restores."""

    def __init__(self, others):
        super().__init__()
        self._others = {type(other).__name__: other for other in others}
        # Not a number: a restore would set it back.
        self._batches = itertools.count(1)
        self._path = Path(f"{options.log}-{index}.jsonl")

    def states(self):
        names = {
            "EarlyStopping": ["wait", "best", "best_epoch", "stopped_epoch"],
            "ReduceLROnPlateau": ["wait", "best", "cooldown_counter"],
            "ModelCheckpoint": ["best", "_batches_seen_since_last_saving", "_last_batch_seen"],
            "TensorBoard": ["_global_train_batch", "_global_test_batch"],
            "SwapEMAWeights": ["_ema_weights_in_model"],
            "Own": ["recent"],
            "Counting": ["_batches", "epochs"],
        }
        found = {
            f"{name}.{attribute}": repr(getattr(self._others[name], attribute))
            for name, attributes in names.items()
            for attribute in attributes
            if name in self._others and hasattr(self._others[name], attribute)
        }
        best = self._others["EarlyStopping"].best_weights or []
        return {**found, "best_weights": [part.tobytes().hex() for part in best]}

    def write(self, **line):
        value = digest(strategy, [*model.variables, *model.optimizer.variables])
        with self._path.open("a") as log:
            log.write(json.dumps({**line, "digest": value, "states": self.states()}) + "\n")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        batches = next(self._batches)
        self.write(epoch=self.epoch, batch=batch, logs={k: float(v).hex() for k, v in logs.items()})
        if batches == options.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if batches == options.restore_after and index == 0:
            request_restore(os.environ["TFCKPT_RUN_DIR"], options.restore)
        if batches == options.check_after and index == 0:
            request(os.environ["TFCKPT_RUN_DIR"], CommandKind.CHECK)

    def on_epoch_end(self, epoch, logs=None):
        self.write(epoch=epoch, end={k: float(v).hex() for k, v in logs.items()})


callbacks = [
    Tracked(),
    keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.2),
    keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True),
    *([keras.callbacks.SwapEMAWeights(swap_on_epoch=True)] if HAS_SWAP else []),
    keras.callbacks.ModelCheckpoint(
        files / "{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=3
    ),
    keras.callbacks.TensorBoard(files / "tensorboard", update_freq=3),
    keras.callbacks.CSVLogger(files / "epochs.csv"),
    keras.callbacks.TerminateOnNaN(),
    keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print("lambda", epoch)),
    keras.callbacks.ProgbarLogger(),
    keras.callbacks.History(),
    Own(),
    Counting(),
]
if options.monitored:
    callbacks.append(keras.callbacks.RemoteMonitor(options.monitored, send_as_json=True))
files.mkdir(exist_ok=True)
history = fit(
    model,
    x,
    y,
    batch_size=10,
    epochs=7,
    validation_split=0.2,
    validation_freq=2,
    class_weight={0: 0.5, 3: 2.0},
    callbacks=keras.callbacks.CallbackList([*callbacks, Log(callbacks)]),
    save_every_steps=7,
    verbose=2,
    # Layers of Keras 2 draw from operations that have no state of their own.
    random_seed=None if HAS_SWAP else 5,
)
print("history", json.dumps([history.epoch, history.history], default=float))
