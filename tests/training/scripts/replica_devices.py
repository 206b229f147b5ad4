"""Prints which operations of the second replica use variables on its own device, and which do not.

A replica on a TPU cannot reach a variable elsewhere, such as one made outside the strategy's scope.
"""

from __future__ import annotations

import json
import sys

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training import create_strategy

used = {"own": set(), "elsewhere": set()}


class WatchedStrategy(tf.distribute.MirroredStrategy):
    """Looks at the operations that the replicas add to the graph of a step."""

    def run(self, fn, args=(), kwargs=None, options=None):
        graph = tf.compat.v1.get_default_graph()
        before = set(graph.get_operations())
        result = super().run(fn, args, kwargs, options)
        devices = {id(inner): variable.device for variable, inner in graph.captures}
        for operation in set(graph.get_operations()) - before:
            for tensor in operation.inputs:
                if tensor.dtype == tf.resource and operation.name.startswith("replica_1/"):
                    is_own = devices[id(tensor)].endswith("CPU:1")
                    used["own" if is_own else "elsewhere"].add(operation.name)
        return result


create_strategy("mirrored", replicas=2)
strategy = WatchedStrategy(["/CPU:0", "/CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
run = TrainingRun(
    sys.argv[1],
    model=model,
    optimizer=optimizer,
    dataset=tf.data.Dataset.from_tensors(tf.ones((4, 1))).repeat(),
    strategy=strategy,
    total_steps=2,
)


@run.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch, training=True) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


for each in run:
    train_step(each)
print(json.dumps({where: sorted(operations) for where, operations in used.items()}))
