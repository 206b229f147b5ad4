"""Trains numbers that tell each step: who took it, on which branch, with which batch and value.

The variables of a checkpoint hold one number for each step so far. A lost or repeated step, a
mixture of two checkpoints and a wrong branch show in them.
"""

from __future__ import annotations

import argparse
import os
import time

import tensorflow as tf

from tfckpt_trainer import Policy, SaveOptions, TrainingRun
from tfckpt_trainer.training import create_strategy

MOST_STEPS = 4096
STEP_SECONDS = 0.02
parser = argparse.ArgumentParser()
parser.add_argument("--strategy", required=True)
parser.add_argument("--start", type=int, required=True)
parser.add_argument("--save-every", type=int, required=True)
parser.add_argument("--keep-last", type=int)
parser.add_argument("--total-steps", type=int)
parser.add_argument("--background", action="store_true")
parser.add_argument("--spread", action="store_true")
parser.add_argument("--largest-shard", type=int)
options = parser.parse_args()
# A number that grows with each start of all processes of a run.
attempt = 1000 * options.start + 100 * int(os.environ.get("SLURM_RESTART_COUNT", 0))
attempt += int(os.environ["TFCKPT_ATTEMPT"])

strategy = create_strategy(options.strategy, threads=1)
with strategy.scope():
    model = tf.Module()
    model.now = tf.Variable(tf.zeros(3))
    model.told = [
        tf.Variable(tf.zeros(MOST_STEPS), name=name)
        for name in ("attempts", "branches", "values", "elements")
    ]
    model.weight = tf.Variable(0.0)
    optimizer = tf.keras.optimizers.SGD(1.0)
    optimizer.build([*model.told, model.weight])

run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=lambda context: tf.data.Dataset.range(MOST_STEPS).map(
        lambda element: element + 10_000 * context.input_pipeline_id
    ),
    total_steps=options.total_steps,
    save_every_steps=options.save_every,
    retention=Policy(keep_last=options.keep_last),
    # Longer than the clock is set forward: what was pruned must be somewhere.
    trash_hours=24.0,
    saving=SaveOptions(
        background=options.background,
        spread=options.spread,
        largest_shard=options.largest_shard,
    ),
)
values = [1.0]
run.tunable("value", lambda: values[-1], values.append, low=0)


def replica_step(element):
    """Adds a number for this step to each variable, and 1 to the weight.

    All by gradients: what a step assigns itself may be assigned twice on parameter servers.
    """
    at = tf.one_hot(tf.cast(optimizer.iterations, tf.int64), MOST_STEPS)
    values = [*tf.unstack(model.now), tf.cast(element, tf.float32)]
    added = [(-at * value, told) for value, told in zip(values, model.told, strict=True)]
    weight = tf.constant(-1.0 / run.replica_count), model.weight
    optimizer.apply_gradients([*added, weight])
    return {"element": tf.cast(element, tf.float32)}


train_step = run.function(replica_step)
for batch in run:
    model.now.assign([float(attempt), float(run.branch), values[-1]])
    train_step(batch)
    # At full speed it would take the processor from those who are to answer.
    time.sleep(STEP_SECONDS)
