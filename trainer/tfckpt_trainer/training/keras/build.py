"""Creates the variables of a model, its optimizers and metrics before the first restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import func_graph_from_py_func

from tfckpt_trainer.training.keras_library import build_symbolically, keras
from tfckpt_trainer.training.steps.inputs import input_type
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


def build(
    model: keras.Model,
    group: WorkerGroup,
    step: Callable[[Any], Any],
    specification: Any,
    *,
    inline: bool,
) -> None:
    """Creates all variables that a training step uses, without running it.

    `keras.Model.fit` creates them when it traces its first step, or by a symbolic call of the model
    under a strategy. A symbolic call fails, or creates variables of wrong shapes, if the model is
    not called on the inputs of a batch as they are. So the step is traced here too.

    Args:
        model: The compiled model.
        group: The workers.
        step: The training step of one replica, which takes a batch.
        specification: The `element_spec` of the batches.
        inline: Whether not to trace each `tf.function` that the step calls by itself. A trace is
            kept, and would draw random numbers as TensorFlow does, whatever the run is asked for.
    """
    strategy = model.distribute_strategy
    batch = input_type(specification, group.local_replicas)

    def on_all_replicas(batch: Any) -> None:
        strategy.run(step, args=(batch,))

    with strategy.scope(), _functions_inline(inline or tf.config.functions_run_eagerly()):
        try:
            # Not a `tf.function`: variables that it creates cannot be mirrored.
            func_graph_from_py_func("build", on_all_replicas, (batch,), {})
        except Exception:
            # The step needs values, or what a callback sets once training begins. If it is wrong,
            # the first step of the training says so.
            with suppress(Exception):
                build_symbolically(model, specification)


@contextmanager
def _functions_inline(inline: bool) -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(inline)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
