"""The steps of `fit`: how many an epoch has, how they are compiled, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import keras, steps_per_call
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.steps.inputs import input_type
from tfckpt_trainer.training.steps.step_functions import of_script
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

Logs = dict[str, Any]


def agreed_steps(
    group: WorkerGroup, available: int | None, given: int | None, what: str, argument: str
) -> int:
    """Returns the number of steps for which every worker has batches.

    Args:
        group: The workers.
        available: Steps in one pass over the data of this worker; None if unknown.
        given: The steps that the script asks for, if it does.
        what: The name of the data in messages.
        argument: The argument of `fit` for the number of steps.

    Raises:
        UsageError: The number is unknown or less than 1.
    """
    if given is not None:
        if given < 1:
            raise UsageError(f"{argument} is {given}; it must be at least 1.")
        return given
    counts = group.all_gather(-1 if available is None else available)
    if min(counts) < 0:
        raise UsageError(f"The number of steps in {what} is unknown. Pass {argument}.")
    if min(counts) == 0:
        raise UsageError(
            f"{what} has too few batches: the workers have {counts} steps. Each step takes a batch "
            "for each replica."
        )
    return min(counts)


def replica_step(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Turns `train_step` or `test_step` of a model into a step of one replica.

    Args:
        step: Takes a batch and returns metrics. A metric that has several results by name returns
            a dictionary of them.
    """

    def on_replica(batch: Any) -> Any:
        reported = of_script(step)(batch)
        return _flat(reported) if isinstance(reported, Mapping) else reported

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(on_replica)
    return unconverted


def step_function(
    run: TrainingRun,
    group: WorkerGroup,
    model: keras.Model,
    step: Callable[[Any], Any],
    specification: Any,
) -> Callable[[Any], Mapping[str, float]]:
    """Returns the training step of a run, compiled as the model is.

    It is traced for batches of any size that the dataset can have, as by `keras.Model.fit`. The
    size of one batch would be compiled into the graph, where it may change the last bits of a
    result. Which batch is the first depends on where a restart continues.

    Args:
        run: The run.
        group: The workers.
        model: The compiled model.
        step: The training step of one replica.
        specification: The `element_spec` of the dataset.
    """
    return run._steps.build(
        compiled_as(model, step),
        steps_per_call=steps_per_call(model),
        run_eagerly=model.run_eagerly,
        of_type=input_type(specification, group.local_replicas),
    )


def compiled_as(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a step of one replica, compiled by XLA if the model is."""
    if not model.jit_compile or model.run_eagerly:
        return step
    # What is around it, such as the reduction of metrics, XLA need not support.
    compiled: Callable[[Any], Any] = tf.function(
        step, jit_compile=True, reduce_retracing=True, autograph=False
    )
    return compiled


def _flat(metrics: Mapping[str, Any]) -> Logs:
    """Returns the metrics with those of inner dictionaries, as Keras reports them."""
    flat: Logs = {}
    for name, value in metrics.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def epoch_logs(model: keras.Model, logs: Mapping[str, Any]) -> Logs:
    """Returns the metrics over all replicas, as Keras reports them at the end of an epoch.

    All workers call it together: metrics are added over them.

    Args:
        model: The model.
        logs: What the last step returned; its own names take precedence.

    Returns:
        A number for each metric, or a list if its result is not a scalar.
    """
    results = model.get_metrics_result()
    if results.keys() != logs.keys():
        return dict(logs)
    return {name: np.asarray(results[name]).tolist() for name in logs}
