"""Trains in check mode once for each omission: twice, as a check starts a script twice."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.rundir.records.check import CHECK_VARIABLE, CheckOrder

STEPS = 3
tf.config.threading.set_intra_op_parallelism_threads(1)
calls = 0


def batches(seed=1):
    x = np.random.RandomState(1).randn(64, 4).astype("float32")
    return tf.data.Dataset.from_tensor_slices(x).shuffle(64, seed=seed).repeat().batch(8)


def dense(**options):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, **options)])


def train(omission: str) -> None:  # noqa: C901  every omission is one branch
    """Trains a model that `omission` changes, or that is left as it is."""
    global calls
    calls = 0
    # Each training begins as in a new process: a run stays in the handlers of its process.
    sys.excepthook = sys.__excepthook__
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    keras.utils.clear_session()
    # What is left of earlier trainings is looked at no more.
    gc.collect()
    gc.freeze()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])  # Its metrics are Keras's own.
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)
    head = dense()
    second_optimizer = keras.optimizers.Adam(1e-2) if omission == "optimizer" else None
    if second_optimizer is not None:
        second_optimizer.build(head.trainable_variables)
    noise = tf.random.Generator.from_seed(3) if omission == "generator" else None
    dropout = keras.layers.Dropout(0.3) if omission == "layer" else None
    accuracy = keras.metrics.Mean(name="mean") if omission == "metric" else None
    averages = [tf.Variable(v) for v in model.trainable_variables] if omission == "ema" else []
    seen = tf.Variable(0) if omission == "counter" else None
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    rng = np.random.default_rng(3) if omission == "rng" else None
    extra = {} if omission == "model" else {"head": head}
    dataset, last = batches(), 4 if omission == "total" else 100
    run = TrainingRun(
        "runs/passed",
        model=model,
        optimizer=optimizer,
        dataset={"data": dataset.take(4), "own_data": None}.get(omission, dataset),
        total_steps=last,
        extra=extra,
    )

    def replica_step(batch):
        if noise is not None:
            batch += noise.normal(tf.shape(batch))
        if omission == "operation":
            batch += tf.random.normal(tf.shape(batch))
        if dropout is not None:
            batch = dropout(batch, training=True)
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((model(batch, training=True) - 1) ** 2)
            other = tf.reduce_mean((head(batch) - 1) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        gradients = tape.gradient(other, head.trainable_variables)
        if second_optimizer is not None:
            second_optimizer.apply(gradients, head.trainable_variables)
        elif omission == "model":
            for variable, gradient in zip(head.trainable_variables, gradients, strict=True):
                variable.assign_sub(0.1 * gradient)
        if accuracy is not None:
            accuracy.update_state(loss)
        for average, variable in zip(averages, model.trainable_variables, strict=False):
            average.assign(0.9 * average + 0.1 * variable)
        if seen is not None:
            seen.assign_add(1)
        return loss

    train_step = run.function(replica_step)
    for batch in run:
        calls += 1
        position = run.step
        if omission == "own_data":
            mini_batches = batches(seed=None)
            batch = next(iter(mini_batches))
        if omission == "python":
            optimizer.learning_rate.assign(1e-2 / calls)
        if omission == "table":
            table.insert(tf.constant([0], tf.int64), tf.constant([calls], tf.int64))
        if rng is not None:
            batch = batch + rng.normal(size=batch.shape).astype("float32")
        result = train_step(batch)
        print(position, result["loss"])


directory = Path(sys.argv[1])
for name in sys.argv[2:]:
    place = directory / name
    (place / "trace").mkdir(parents=True)
    order = CheckOrder(directory=str(place / "trace"), warm_up=2, steps=STEPS)
    os.environ[CHECK_VARIABLE] = msgspec.json.encode(order).decode()
    os.environ["TFCKPT_RUN_DIR"] = str(place / "run")
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            train(name)
        assert end.value.code == 0
