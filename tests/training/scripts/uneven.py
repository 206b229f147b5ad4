"""Trains on datasets whose ends the workers reach at different steps, and logs each batch."""

from __future__ import annotations

import argparse
import json
import os

import tensorflow as tf
from shared_parts import request_restore

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy
from tfckpt_trainer.training.keras_library import build_optimizer, keras
from tfckpt_trainer.training.state.variables import raw_variable

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int, nargs="+", required=True, help="of each worker's dataset")
parser.add_argument("--unknown", action="store_true", help="the number of elements")
parser.add_argument("--stop-after", type=int, help="leave the loop after this step, saved before")
parser.add_argument("--restore-at", type=int, help="ckpt-4, in place, after this step")
parser.add_argument("--wait", action="store_true", help="for the workers that have more")
parser.add_argument("--plain", choices=["gradients", "step", "eager", "sum"], help="of the script")
parser.add_argument("--summing", action="store_true", help="by the optimizer of the script")
parser.add_argument("--changed", type=int, help="worker with another dataset than it had")
parser.add_argument("--log", required=True)
options = parser.parse_args()


def summing_optimizer():
    """Returns a legacy optimizer that sums the gradients of all workers itself."""

    class Summing(keras.optimizers.legacy.SGD):
        def apply_gradients(self, grads_and_vars, name=None, **_):
            gradients, variables = zip(*grads_and_vars, strict=True)
            summed = tf.distribute.get_replica_context().all_reduce("sum", list(gradients))
            pairs = zip(summed, variables, strict=True)
            return super().apply_gradients(pairs, name, experimental_aggregate_gradients=False)

    return Summing(1e-2)


strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = summing_optimizer() if options.summing else keras.optimizers.SGD(1e-2)
    build_optimizer(optimizer, model.trainable_variables)
    # It takes part in nothing but its statistics.
    norm = keras.layers.BatchNormalization(momentum=0.5)
    norm.build((None, 4))
    dropout = keras.layers.Dropout(0.5, seed=1)
    seen = keras.metrics.Sum()
model.norm, model.dropout, model.seen = norm, dropout, seen


def numbered_examples(context):
    """Batches of two; the last one of each worker has one example."""
    size = max(2 * options.steps[context.input_pipeline_id] - 1, 0)
    numbers = tf.data.Dataset.range(size).shuffle(8, seed=context.input_pipeline_id)
    if options.unknown:
        numbers = numbers.filter(lambda _: True)
    if options.changed == context.input_pipeline_id:
        numbers = numbers.prefetch(1)
    return numbers.batch(2).map(lambda n: (n, scaled(n)))


def scaled(numbers):
    rows = tf.cast(numbers, tf.float32)[:, tf.newaxis] / 10
    return rows * tf.constant([1.0, -1.0, 0.5, 2.0])


run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=numbered_examples,
    save_every_steps=4,
    **({"on_dataset_end": "wait"} if options.wait else {}),
)


def replica_step(batch):
    _, x = batch
    norm(x, training=True)
    dropout(x, training=True)
    seen.update_state(1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
        mean = loss / run.replica_count
    gradients = tape.gradient(mean, model.trainable_variables)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    if options.plain == "sum":
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
    elif options.plain != "gradients":
        optimizer.apply_gradients(pairs)
    return loss


@tf.function
def plain_step(batch):
    return strategy.reduce("MEAN", strategy.run(replica_step, args=(batch,)), axis=None)


def own(variable):
    """The value on this worker."""
    return strategy.experimental_local_results(raw_variable(variable))[0].numpy().tolist()


train_step = run.function(replica_step, run_eagerly=options.plain == "eager")
index = int(os.environ["TFCKPT_WORKER_INDEX"])
with open(f"{options.log}-{index}", "a", buffering=1) as log:
    for batch in run:
        if run.step == options.stop_after:
            break
        if options.plain == "step":
            plain_step(batch)
            continue
        line = {
            "step": run.step + 1,
            "batch": tf.nest.flatten(batch)[0].numpy().tolist(),
            "weights": [variable.numpy().tolist() for variable in model.trainable_variables[:2]],
            **train_step(batch),
        }
        if options.strategy == "multi-worker":
            line |= {"seen": own(seen.variables[0]), "moving": own(norm.moving_mean)}
            # Layers of Keras 2 have no seed that changes.
            seeds = getattr(dropout, "seed_generator", None)
            line["seed"] = own(seeds.state) if seeds else []
        log.write(json.dumps(line) + "\n")
        if run.step + 1 == options.restore_at and index == 0:
            options.restore_at = None
            request_restore(run.directory, "ckpt-4")
