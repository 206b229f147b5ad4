"""Each block of Python in the pages runs as it stands, with what its reader has by then."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from documentation import DOCS, ROOT, python_blocks
from reserved_ports import reserved_ports
from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow

PAGES = {
    "README": ROOT / "README.md",
    "where-to-start": DOCS / "get-started" / "where-to-start.md",
    **{
        name: DOCS / "how-to" / f"{name}.md"
        for name in (
            "change-a-run",
            "coming-from",
            "custom-loop",
            "guards",
            "input-pipelines",
            "keras",
            "retention",
            "saving",
        )
    },
}
BLOCKS = {
    f"{name}-{number}": block
    for name, page in PAGES.items()
    for number, block in enumerate(python_blocks(page), 1)
}
OF_A_NEW_PROCESS = {"keras-1"}
"""They choose threads, which is possible only before TensorFlow computes."""


def what_a_reader_has(block: str) -> dict[str, Any]:
    """Returns the names that a block uses and does not explain: model, data, and so on."""
    import keras
    import tensorflow as tf

    from tfckpt_trainer import BestBy, Policy, SaveOptions, TrainingRun, fit

    def build_model() -> keras.Model:
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    def optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
        made = keras.optimizers.Adam(1e-3)
        made.build(model.trainable_variables)
        return made

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch[0]) - batch[1]))
        of_model.apply_gradients(
            zip(
                tape.gradient(loss, model.trainable_variables),
                model.trainable_variables,
                strict=True,
            )
        )
        return loss

    class MyTrigger:
        def reason(self, step: int, metrics: Any) -> str | None:
            return None

    model, discriminator = build_model(), build_model()
    of_model = optimizer(model)
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2).repeat(4)
    base = keras.layers.Dense(2)
    tuned = keras.Sequential([keras.Input((2,)), base, keras.layers.Dense(1)])
    has: dict[str, Any] = {
        "BestBy": BestBy,
        "MyTrigger": MyTrigger,
        "Policy": Policy,
        "SaveOptions": SaveOptions,
        "TrainingRun": TrainingRun,
        "accuracy": keras.metrics.Mean(),
        "base": base,
        "build_model": build_model,
        "callbacks": [keras.callbacks.TerminateOnNaN()],
        "count": 8,
        "fit": fit,
        "curriculum": tf.Variable(1, trainable=False),
        "data": dataset,
        "dataset": dataset,
        "discriminator": discriminator,
        "discriminator_optimizer": optimizer(discriminator),
        "generator": model,
        "generator_optimizer": of_model,
        "images": tf.data.Dataset.from_tensor_slices(tf.ones((8, 4, 4, 3))),
        "keras": keras,
        "labeled": dataset,
        "load_example": lambda index: np.float32(index),
        "loss": "mse",
        "mean_loss": keras.metrics.Mean(),
        "model": model,
        "noise": tf.random.Generator.from_seed(1),
        "optimizer": of_model,
        "pipeline": SimpleNamespace(crop=64, set_crop=lambda size: None),
        "replica_step": replica_step,
        "run_dir": "run",
        "steps_per_epoch": 4,
        "strategy": tf.distribute.get_strategy(),
        "tf": tf,
        "unlabeled": dataset,
        "validate": lambda: 1.0,
        "x": x,
        "y": y,
    }
    tuned.compile("sgd", "mse")
    model.compile(of_model, "mse")
    if "backup" in block:
        callback = keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False)
        model.fit(x, y, epochs=2, callbacks=[callback], verbose=0)
    if "arrays[" in block:
        kernel, bias = np.ones((2, 1)), np.zeros(1)
        np.savez("weights.npz", **{"dense/kernel": kernel, "dense/bias": bias})
    if "base." in block:
        has["model"] = tuned
    if not re.search(r"^run = ", block, re.MULTILINE) and "run." in block:
        metrics = has["accuracy"] if "accuracy." in block else None
        has["run"] = TrainingRun(
            "begun", model=model, optimizer=of_model, dataset=dataset, metrics=metrics
        )
        has["train_step"] = has["run"].function(replica_step)
    if "steps_per_call" in block:
        has["run"] = TrainingRun("calls", model=model, optimizer=of_model, dataset=dataset)
    if "labeled" in block:
        has["train_step"] = len
    return {name: value for name, value in has.items() if re.search(rf"\b{name}\b", block)}


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - OF_A_NEW_PROCESS))
def test_a_block_of_a_page_runs_as_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = what_a_reader_has(BLOCKS[name])
    exec(compile(BLOCKS[name], name, "exec"), names)
    if "run" in names and not re.search(r"\bfor\b|SteeringCallback", BLOCKS[name]):
        # A run that has not begun would stay in this process.
        for _ in names["run"]:
            names["run"].finish("it works")


@pytest.mark.parametrize("name", sorted(OF_A_NEW_PROCESS))
def test_a_block_that_begins_a_process_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    head = (
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "import keras, numpy as np\n"
        "x, y, callbacks = np.ones((640, 2)), np.ones((640, 1)), []\n"
        "def build_model():\n"
        "    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
    )
    script.write_text(head + BLOCKS[name])
    with reserved_ports(1) as (port,):
        cluster = {"worker": [f"127.0.0.1:{port}"]}
        task = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
        done = run_with_tensorflow(script, TF_CONFIG=json.dumps(task))
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "runs" / "first" / "checkpoint").exists()
