"""How long it takes to find all state of a model with many variables.

Run it with `python tests/benchmarks/state_walk.py [VARIABLES]`. The aim is under one second for
5,000 variables; every save and every restore does it once.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from scripts.figures import report
from scripts.machine import on_quiet_machine

from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.state.measurement import find_differing
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


@on_quiet_machine
def main() -> None:
    """Builds models of dense layers, and of blocks with dropout, and times the walk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variables", nargs="?", type=int, default=5000)
    wanted = parser.parse_args().variables
    layers = wanted // 6
    blocks = [
        [keras.layers.Dense(2), keras.layers.LayerNormalization(), keras.layers.Dropout(0.1)]
        for _ in range(layers // 4)
    ]
    model = keras.Sequential([keras.Input((2,)), *(layer for block in blocks for layer in block)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    plain = tf.Module()
    plain.blocks = [
        {"weights": tf.Variable(tf.zeros(2)), "dropout": keras.layers.Dropout(0.1)}
        for _ in range(wanted - len(model.variables) - len(optimizer.variables))
    ]
    state = SharedState({"model": model, "plain": plain}, optimizer, {})
    group = WorkerGroup(tf.distribute.get_strategy())
    seconds = []
    for _ in range(3):
        began = time.process_time()
        found = state.find()
        walked = time.process_time() - began
        seconds.append(walked)
        find_differing(group, found)
    report("search for all state, processor time", seconds, "s", along="variables", at=len(found))


if __name__ == "__main__":
    main()
