"""Each block of Python in the pages runs as it stands, with what its reader has by then."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from documentation import DOCS, ROOT, python_blocks
from reserved_ports import reserved_ports
from tensorflow_processes import python_with_tensorflow, run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

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
            "several-workers",
        )
    },
}
BLOCKS = {
    f"{name}-{number}": block
    for name, page in PAGES.items()
    for number, block in enumerate(python_blocks(page), 1)
}
OF_A_NEW_PROCESS = {"keras-1", "several-workers-1"}
"""They choose threads, which is possible only before TensorFlow computes."""
TRAIN = sorted(
    name
    for name, block in BLOCKS.items()
    if name not in OF_A_NEW_PROCESS and re.search(r"= TrainingRun\(|\bfit\(", block)
)
FIRST_PAGES = ("README", "where-to-start", "custom-loop")
"""Their blocks are launched at each change, those of other pages each week."""


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


def alone(name: str) -> None:
    """Runs a block in this process."""
    names = what_a_reader_has(BLOCKS[name])
    exec(compile(BLOCKS[name], name, "exec"), names)
    if "run" in names and needs_an_end(name):
        for _ in names["run"]:
            names["run"].finish("it works")


def launched(name: str) -> None:
    """Runs a block as the script of a worker that `tfckpt-tui launch` starts."""
    block = BLOCKS[name]
    has = (
        f"import sys; sys.path[:0] = {[str(ROOT / 'tests'), str(Path(__file__).parent)]}",
        "from test_pages import BLOCKS, what_a_reader_has",
        f"globals().update(what_a_reader_has(BLOCKS[{name!r}]))",
    )
    begun = "globals().get('run', ())" if needs_an_end(name) else "()"
    end = (f"for _ in {begun}:", "    run.finish('it works')")
    Path("script.py").write_text("\n".join((*has, block, *end)))
    root = "run" if re.search(r"\brun_dir\b(?!=)", block) else "runs/first"
    words = ("launch", root, "--foreground", "--max-restarts", "0", "--no-standby", "--")
    command = [sys.executable, "-m", "tfckpt_tui", *words, *python_with_tensorflow(), "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    run = RunDirectory(Path(root))
    log = run.worker_log(0)
    assert done.returncode == 0, (log.read_text() if log.exists() else done.stderr)[-2000:]
    assert load(run.run_file, RunInfo).strategy, "the chief has started there"


def needs_an_end(name: str) -> bool:
    """Whether a block begins no loop: a run that has not begun would stay in its process."""
    return re.search(r"^\s*for\b|SteeringCallback", BLOCKS[name], re.MULTILINE) is None


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *((name, alone) for name in sorted(BLOCKS.keys() - OF_A_NEW_PROCESS)),
        *((name, launched) for name in TRAIN if name.startswith(FIRST_PAGES)),
        *weekly(*((name, launched) for name in TRAIN if not name.startswith(FIRST_PAGES))),
    ],
)
def test_a_block_of_a_page_runs_as_it_stands(
    name: str, runs: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs(name)


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
        run_dir = str(tmp_path / "runs" / "first")
        done = run_with_tensorflow(script, TF_CONFIG=json.dumps(task), TFCKPT_RUN_DIR=run_dir)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "runs" / "first" / "checkpoint").exists()
