"""Goes on with `fit` from what Keras's own `fit` has saved; prints what became of each case."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow import keras

from tfckpt_trainer import fit
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training import create_strategy
from tfckpt_trainer.training.keras_library import as_array, variables_of

parser = argparse.ArgumentParser()
parser.add_argument("cases", nargs="+")
parser.add_argument("--strategy", default="one-device")
parser.add_argument("--root", type=Path, default=Path.cwd())
options = parser.parse_args()
root = options.root
strategy = create_strategy(options.strategy, threads=1)
x = np.random.RandomState(1).randn(64, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)


def compiled(optimizer: Any = "adam", units: int = 8) -> keras.Model:
    keras.utils.set_random_seed(2)
    with strategy.scope():
        layers = [
            keras.layers.Dense(units),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile(optimizer, "mse")
    return model


MODELS = {
    "legacy": lambda: compiled(keras.optimizers.legacy.Adam()),
    "optimizer": lambda: compiled("rmsprop"),
    "other": lambda: compiled(units=9),
    "shapes": lambda: compiled(units=9),
}
"""The models of cases that do not go on with the one that was saved."""


def values(model: keras.Model) -> list[list[float]]:
    variables = [*model.weights, *variables_of(model.optimizer)]
    return [as_array(variable).ravel().tolist() for variable in variables]


def backup() -> keras.callbacks.Callback:
    return keras.callbacks.BackupAndRestore(str(root / "backup"), delete_checkpoint=False)


def save() -> list[list[float]]:
    """Trains with Keras, which saves after two of four epochs; returns the values at the end."""
    model, kept = compiled(), keras.callbacks.ModelCheckpoint(str(root / "kept.keras"))
    log = keras.callbacks.CSVLogger(str(root / "log.csv"))
    model.fit(x, y, epochs=2, shuffle=False, verbose=0, callbacks=[backup(), kept, log])
    # Without it, no model of Keras 2 trains after a backup.
    model._training_state = None
    model.fit(x, y, epochs=4, initial_epoch=2, shuffle=False, verbose=0)
    return values(model)


def keep() -> None:
    """Saves a file after a step, without a backup."""
    kept = keras.callbacks.ModelCheckpoint(str(root / "kept.keras"))
    compiled().fit(x, y, epochs=1, verbose=0, callbacks=[kept])


def go_on(case: str) -> dict[str, object]:
    run_dir = Path(os.environ.get("TFCKPT_RUN_DIR") or root / f"run-{case}")
    run_dir.mkdir(exist_ok=True)
    model = MODELS.get(case, compiled)()
    callbacks = [backup()]
    arguments = {}
    if case == "files":
        shutil.copy(root / "kept.keras", run_dir)
        (run_dir / "torn.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(80))
        callbacks = [keras.callbacks.CSVLogger(str(root / "log.csv"))]
    elif case == "torn":
        torn = root / "torn"
        shutil.copytree(root / "backup", torn, dirs_exist_ok=True)
        data = [*torn.glob("latest.weights.h5"), *torn.glob("chief/*.data-*")]
        os.truncate(data[0], 5000 if len(data[0].name) < 20 else 100)
        callbacks = [keras.callbacks.BackupAndRestore(torn)]
    elif case in {"legacy", "loaded", "other"}:
        shutil.copy(root / "kept.keras", run_dir)
        callbacks = []
        if case == "loaded":
            model.load_weights(run_dir / "kept.keras")
    elif case == "initial_epoch":
        arguments = {"initial_epoch": 1}
    elif case == "late":
        arguments = {"initial_epoch": 3}
    elif case == "own start":
        shutil.copy(root / "kept.keras", run_dir)
        callbacks, arguments = [], {"initial_epoch": 1}
    elif case == "without":
        callbacks = [keras.callbacks.BackupAndRestore(root / "empty")]
    try:
        history = fit(
            model, x, y, epochs=4, run_dir=run_dir, shuffle=False, verbose=0, callbacks=callbacks,
            **arguments,
        )  # fmt: skip
    except RefusedError as error:
        return {"refused": str(error)}
    messages = [entry.message for entry in read_entries(RunDirectory(run_dir))]
    return {"epochs": history.epoch, "values": values(model), "messages": messages}


SAVES = {"keras": save, "kept": keep}
for case in options.cases:
    print(json.dumps({case: SAVES[case]() if case in SAVES else go_on(case)}))
