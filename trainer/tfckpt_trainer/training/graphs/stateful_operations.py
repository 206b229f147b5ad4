"""Finds operations in a traced graph whose state no checkpoint can hold."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tfckpt_trainer.training.graphs.calls import reached_operations

_FUNCTIONS = {
    "FixedUnigramCandidateSampler": "tf.random.fixed_unigram_candidate_sampler",
    "FractionalAvgPool": "tf.nn.fractional_avg_pool",
    "FractionalMaxPool": "tf.nn.fractional_max_pool",
    "LearnedUnigramCandidateSampler": "tf.random.learned_unigram_candidate_sampler",
    "LogUniformCandidateSampler": "tf.random.log_uniform_candidate_sampler",
    "Multinomial": "tf.random.categorical",
    "RandomGamma": "tf.random.gamma",
    "RandomPoissonV2": "tf.random.poisson",
    "RandomShuffle": "tf.random.shuffle",
    "RandomStandardNormal": "tf.random.normal",
    "RandomUniform": "tf.random.uniform",
    "RandomUniformInt": "tf.random.uniform",
    "SampleDistortedBoundingBoxV2": "tf.image.sample_distorted_bounding_box",
    "TruncatedNormal": "tf.random.truncated_normal",
    "UniformCandidateSampler": "tf.random.uniform_candidate_sampler",
}
"""The public function of an operation."""

PYTHON = {"EagerPyFunc": "tf.py_function", "PyFunc": "tf.numpy_function"}
"""Operations that call Python. One with `stateful=False` is another, `PyFuncStateless`."""

_DRAWS_WITHOUT_SEED = frozenset({"NonDeterministicInts"})
_DRAWS_BY_OPTION = frozenset({"FractionalAvgPool", "FractionalMaxPool"})
"""Operations that count as stateless, but draw unless they are told to be deterministic."""


@functools.cache
def draws_random_numbers(kind: str) -> bool:
    """Whether operations of this type draw random numbers and keep the state themselves.

    Such an operation has a seed and counts its draws. Operations that take a seed or a generator
    as input keep no state.
    """
    definition = op_def_registry.get(kind)
    if definition is None:
        return False
    has_seed = any(attribute.name == "seed" for attribute in definition.attr)
    return kind in _DRAWS_WITHOUT_SEED | _DRAWS_BY_OPTION or (has_seed and definition.is_stateful)


class StatefulOperation(NamedTuple):
    """An operation with state that TensorFlow does not know.

    Attributes:
        name: The public function that made it.
        place: The line of the script, such as `train.py:12`; empty if none is known.
        kind: Its type in TensorFlow.
    """

    name: str
    place: str
    kind: str

    @property
    def is_python(self) -> bool:
        """Whether it calls Python. Otherwise it draws random numbers."""
        return self.kind in PYTHON


def find_stateful_operations(graph: Any) -> Iterator[StatefulOperation]:
    """Yields what a graph and the functions that it calls draw, and which Python they call."""
    for reached in reached_operations(graph):
        operation = reached.operation
        kind = operation.type
        if kind in PYTHON:
            yield StatefulOperation(PYTHON[kind], reached.place, kind)
        elif draws_random_numbers(kind):
            if not _is_deterministic(operation):
                name = _FUNCTIONS.get(kind, f"the operation {kind}")
                yield StatefulOperation(name, reached.place, kind)
        elif _is_unseeded_dataset(operation):
            yield StatefulOperation(f"an unseeded {kind}", reached.place, kind)


def _is_deterministic(operation: Any) -> bool:
    """Whether an operation that can draw does not, because of its attributes."""
    if operation.type in _DRAWS_BY_OPTION:
        return bool(operation.get_attr("deterministic"))
    # An LSTM of cuDNN has a seed for its dropout.
    return operation.type.startswith("CudnnRNN") and not operation.get_attr("dropout")


@functools.cache
def _seed_inputs(kind: str) -> tuple[int, ...]:
    definition = op_def_registry.get(kind)
    if definition is None or not definition.is_stateful:
        return ()
    names = [argument.name for argument in definition.input_arg]
    return tuple(names.index(name) for name in ("seed", "seed2") if {"seed", "seed2"} <= {*names})


def _is_unseeded_dataset(operation: Any) -> bool:
    """Whether it is a dataset in the graph, or the source of its seeds, without a seed."""
    numbers = _seed_inputs(operation.type)
    seeds = [tf.get_static_value(operation.inputs[number]) for number in numbers]
    return bool(seeds) and all(seed is not None and int(seed) == 0 for seed in seeds)
