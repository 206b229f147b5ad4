"""What in this process can make repeated steps differ, although all variables are equal."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from tfckpt_trainer.rundir.records.check import CheckFacts
from tfckpt_trainer.rundir.records.exactness import PipelineFacts
from tfckpt_trainer.training.check.script_names import is_of_script

SHOWN_OPERATIONS = 5

_RANDOM = {
    "Multinomial": "tf.random.categorical",
    "ParameterizedTruncatedNormal": "a random operation",
    "RandomGamma": "tf.random.gamma",
    "RandomPoissonV2": "tf.random.poisson",
    "RandomShuffle": "tf.random.shuffle",
    "RandomStandardNormal": "tf.random.normal",
    "RandomUniform": "tf.random.uniform",
    "RandomUniformInt": "tf.random.uniform",
    "TruncatedNormal": "tf.random.truncated_normal",
}
"""Operations with a counter of their own, which no checkpoint holds."""

_PYTHON = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}


def collect_facts(
    topology: Mapping[str, Any],
    *,
    has_dataset: bool,
    iterators: list[str],
    inputs: Sequence[PipelineFacts],
) -> CheckFacts:
    """Returns the facts of this process, after the script's functions have run."""
    in_step: list[str] = []
    in_input: list[str] = []
    for graph in gc.get_objects():
        if type(graph).__name__ == "FuncGraph":
            found = in_input if str(graph.name).startswith("Dataset") else in_step
            found.extend(_operations(graph))
    return CheckFacts(
        strategy=topology["strategy"],
        replicas=topology["replicas"],
        has_dataset=has_dataset,
        gpus=len(tf.config.list_logical_devices("GPU")),
        deterministic=bool(is_op_determinism_enabled()),
        threads=int(tf.config.threading.get_intra_op_parallelism_threads()),
        step_operations=sorted(set(in_step))[:SHOWN_OPERATIONS],
        input_operations=sorted(set(in_input))[:SHOWN_OPERATIONS],
        input_causes=[cause for one in inputs for cause in one.causes],
        input_remedies=list(dict.fromkeys(text for one in inputs for text in one.remedies)),
        iterators=iterators,
    )


def _operations(graph: Any) -> Iterator[str]:
    for operation in graph.get_operations():
        if operation.type in _RANDOM:
            yield f"{_RANDOM[operation.type]}{_place(operation)}"
        elif operation.type in _PYTHON:
            yield f"tf.py_function{_place(operation)}"


def _place(operation: Any) -> str:
    """Returns the line of the script that created an operation, if it is known."""
    lines = [frame for frame in operation.traceback or () if is_of_script(str(frame.filename))]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
