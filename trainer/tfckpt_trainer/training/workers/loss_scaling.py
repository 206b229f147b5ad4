"""Has all replicas agree on whether gradients are finite, for optimizers that scale the loss.

Keras 3 reduces gradients after a `LossScaleOptimizer` has checked them. If they overflow on one
replica alone, workers that skip the update leave the others waiting in the all-reduce, and
replicas of one process apply infinite gradients.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from tfckpt_trainer.training.keras_library import SCALED_OPTIMIZER


def check_finite_on_all_replicas(optimizers: Any) -> None:
    """Makes each `LossScaleOptimizer` skip an update if gradients overflow on any replica.

    Args:
        optimizers: One optimizer, several in a dictionary or list, or None.
    """
    for optimizer in tf.nest.flatten(optimizers):
        # Keras 2 does so itself.
        if isinstance(optimizer, SCALED_OPTIMIZER) and hasattr(optimizer, "check_finite"):
            optimizer.check_finite = partial(_check_finite_on_all, optimizer)


def _check_finite_on_all(optimizer: Any, gradients: Any) -> tf.Tensor:
    finite = type(optimizer).check_finite(optimizer, gradients)
    infinite = tf.cast(tf.logical_not(finite), tf.float32)
    context = tf.distribute.get_replica_context()
    return tf.equal(context.all_reduce(tf.distribute.ReduceOp.SUM, infinite), 0)
