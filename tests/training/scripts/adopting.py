"""Directories that plain TensorFlow programs wrote, and a run that goes on in each.

Writes one JSON object per form of directory into `results.json`: the steps and losses of the plain
program and of the run, and the names of the files at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import keras
import tensorflow as tf

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.tools.tensors.derived import add_derived_checkpoint
from tfckpt_trainer.training import TrainingRun

STEPS = 6
OTHER_USER = 54322
FEATURES = tf.reshape(tf.range(32.0), (8, 4)) / 32.0
LABELS = tf.reduce_sum(FEATURES, axis=1, keepdims=True)


def build(units: int = 3):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def train(model, optimizer) -> float:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(FEATURES) - LABELS))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return float(loss)


def tutorial(model, optimizer):
    return tf.train.Checkpoint(model=model, optimizer=optimizer)


def guide(model, optimizer):
    # As TensorFlow's guide to checkpoints does it; its step counts from 1.
    iterator = iter(tf.data.Dataset.range(100))
    return tf.train.Checkpoint(step=tf.Variable(1), optimizer=optimizer, net=model, data=iterator)


def multi_worker_tutorial(model, optimizer):
    epoch, step_in_epoch = tf.Variable(2, dtype=tf.int64), tf.Variable(3, dtype=tf.int64)
    return tf.train.Checkpoint(model=model, epoch=epoch, step_in_epoch=step_in_epoch)


def root(model, optimizer):
    return tf.train.Checkpoint(model)


def several(model, optimizer):
    # As programs with more than one model do it: each object has its name at the root.
    return tf.train.Checkpoint(net=model, net_optimizer=optimizer)


FORMS = {form.__name__: form for form in (tutorial, guide, multi_worker_tutorial, root, several)}


def write_plain(directory: Path, form, units: int = 3, numbers=(2, 8, 20)) -> list[float]:
    """Trains and saves with a plain manager; returns the losses of the steps that follow."""
    model, optimizer = build(units)
    checkpoint = FORMS[form](model, optimizer)
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=None)
    for step in range(1, STEPS + 1):
        train(model, optimizer)
        if "step" in checkpoint.__dict__:
            checkpoint.step.assign_add(1)
        if step % 2 == 0:
            manager.save(checkpoint_number=numbers[step // 2 - 1])
    return [train(model, optimizer) for _ in range(4)]


def go_on(directory: Path, *, by_name: bool = False) -> dict[str, object]:
    """Trains four steps with the library; returns what happened."""
    model, optimizer = build()
    steps, losses = [], []
    try:
        run = TrainingRun(
            directory,
            model={"net": model} if by_name else model,
            optimizer={"net_optimizer": optimizer} if by_name else optimizer,
            save_every_steps=2,
            total_steps=10**6,
        )
        for _ in run:
            steps.append(run.step)
            losses.append(train(model, optimizer))
            run.report(loss=losses[-1])
            if len(steps) == 4:
                run.stop()
    except TfckptError as error:
        return {"error": str(error)}
    return {
        "steps": steps,
        "losses": losses,
        "branch": run.branch,
        "journal": [entry.message for entry in read_entries(RunDirectory(directory))],
        "names": sorted(path.stem for path in directory.glob("*.index")),
    }


def keep_derived_alone(directory: Path, name: str) -> None:
    """Leaves a checkpoint that was made from one of the plain manager, and nothing else."""
    index = read_index(directory / name)

    def copy_all(writer, touch):
        for entry in index.entries.values():
            writer.copy(directory / name, index, entry)

    made = Derivation(operation="edit", sources=[SourceFacts(name=name)])
    record = CheckpointRecord(
        name="edited-20",
        step=20,
        branch=0,
        sequence=0,
        saved_at=0.0,
        trigger="edit",
        parent=name,
        derived=made,
    )
    add_derived_checkpoint(RunDirectory(directory), record, copy_all)
    for path in (*directory.glob("ckpt-*"), directory / "checkpoint"):
        path.unlink()


def main(directory: Path) -> None:
    results = {}
    derived = directory / "derived"
    for form in FORMS:
        target = directory / form
        expected = write_plain(target, form)
        if form == "tutorial":
            shutil.copytree(target, derived)
            keep_derived_alone(derived, "ckpt-20")
            results["derived"] = {"expected": expected, **go_on(derived)}
            odd = directory / "odd [1]*\\"
            odd.mkdir()
            for path in target.glob("ckpt-20.*"):
                copied = shutil.copy(path, odd / path.name.replace("ckpt", "[x]a\\b"))
                if os.geteuid() == 0:
                    os.chown(copied, OTHER_USER, -1)
            results["odd"] = {"expected": expected, **go_on(odd)}
        results[form] = {"expected": expected, **go_on(target, by_name=form == "several")}
    target = directory / "other shapes"
    write_plain(target, "tutorial", units=5)
    results["other shapes"] = go_on(target)
    shutil.rmtree(target)
    (directory / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
