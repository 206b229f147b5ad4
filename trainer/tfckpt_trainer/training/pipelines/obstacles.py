"""Finds what prevents TensorFlow from saving the position of an input pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

_LIBRARIES = (Path(tf.__file__).parent, Path(keras.__file__).parent)

_STATELESS = (
    "Use tf.random.stateless_* or tf.image.stateless_random_* with a seed made from the index of "
    "the element, which `dataset.enumerate()` gives."
)
_INDEXED = (
    "Read elements by their index, as in `tf.data.Dataset.range(n).map(read)`, or from TFRecord "
    "files."
)
_CHANGING = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_REMOVE = "Remove it from the input pipeline."
_TENSORFLOW = "Use operations of TensorFlow in its place."


@dataclass(frozen=True)
class Obstacle:
    """A part of an input pipeline whose state TensorFlow cannot save.

    Attributes:
        cause: What it is and where, as a noun phrase.
        remedy: What to change in the script, as a sentence.
        hides_position: Whether the position of the whole pipeline cannot be saved either.
    """

    cause: str
    remedy: str
    hides_position: bool = False


_FROM_GENERATOR = Obstacle("from_generator", _INDEXED, hides_position=True)
_PREFETCH_TO_DEVICE = Obstacle(
    "prefetch_to_device or copy_to_device",
    "Use `prefetch(tf.data.AUTOTUNE)` in its place.",
    hides_position=True,
)


@dataclass(frozen=True)
class _Transformation:
    """One function of a pipeline, such as that of a `map`.

    Attributes:
        name: The method of `tf.data.Dataset` that took it.
        layer: The class of the Keras layer that is the function; empty if it is none.
        place: File and line of the function; empty if it is not the user's.
        operations: Types of all operations in it.
    """

    name: str
    layer: str
    place: str
    operations: frozenset[str]


def find_obstacles(dataset: tf.data.Dataset, error: tf.errors.OpError) -> tuple[Obstacle, ...]:
    """Returns what prevents saving the position of an iterator of `dataset`.

    Args:
        dataset: The dataset.
        error: The error of TensorFlow's attempt; it names the first operation.
    """
    found: list[Obstacle] = []
    named = re.search(r"(\w+) (is stateful|does not)", str(error.message))
    operation = named[1] if named else ""
    for part in _parts(dataset, set()):
        if type(part).__name__ == "_CopyToDeviceDataset":
            found.append(_PREFETCH_TO_DEVICE)
        for function in part._functions():
            transformation = _transformation(part, function)
            obstacle = _obstacle_in(transformation, operation)
            found += [obstacle] if obstacle is not None else []
    found += find_captured_obstacles(dataset)
    unknown = Obstacle(f"{str(error.message).splitlines()[0]}", _REMOVE)
    if operation:
        unknown = Obstacle(f"the operation {operation}", _REMOVE)
    return tuple(dict.fromkeys(found)) or (unknown,)


def find_captured_obstacles(dataset: tf.data.Dataset) -> tuple[Obstacle, ...]:
    """Returns obstacles in datasets that the functions of a pipeline use, such as of `flat_map`.

    Their iterators exist only after the first element, so a dry run does not notice them.
    """
    found: list[Obstacle] = []
    for part in _parts(dataset, set()):
        for function in part._functions():
            name = _name_of(part)
            for variant in function.function.captured_inputs:
                if variant.dtype == tf.variant and tf.executing_eagerly():
                    found += _obstacles_in_variant(name, variant)
    return tuple(dict.fromkeys(found))


def _obstacles_in_variant(name: str, variant: tf.Tensor) -> list[Obstacle]:
    try:
        text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1)
    except tf.errors.OpError as error:
        # `copy_to_device` is made of a generator. Others are not datasets, or are too large.
        return [_PREFETCH_TO_DEVICE] if "GeneratorDataset" in str(error.message) else []
    graph = tf.compat.v1.GraphDef.FromString(text.numpy())
    obstacle = _obstacle_in(_Transformation(name, "", "", _operations(graph)), "")
    return [obstacle] if obstacle is not None else []


def _parts(dataset: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the datasets that a dataset is made from, itself first."""
    if id(dataset) in seen:
        return
    seen.add(id(dataset))
    yield dataset
    for source in dataset._inputs():
        yield from _parts(source, seen)


def _name_of(part: Any) -> str:
    return type(part).__module__.rpartition(".")[2].removesuffix("_op")


def _operations(graph: Any) -> frozenset[str]:
    inner = (node for function in graph.library.function for node in function.node_def)
    return frozenset(node.op for node in (*graph.node, *inner))


def _transformation(part: Any, function: Any) -> _Transformation:
    python, name = function._func, _name_of(part)
    if getattr(python, "__qualname__", "").startswith("_filter_ds."):
        name = "rejection_resample"
    layer = type(python).__name__ if isinstance(python, keras.layers.Layer) else ""
    operations = _operations(function.function.graph.as_graph_def())
    return _Transformation(name, layer, _place(python), operations)


def _place(python: Any) -> str:
    code = getattr(python, "__code__", None)
    if code is None or any(Path(code.co_filename).is_relative_to(path) for path in _LIBRARIES):
        return ""
    return f"{Path(code.co_filename).name} line {code.co_firstlineno}"


def _obstacle_in(part: _Transformation, refused: str) -> Obstacle | None:
    """Returns the obstacle in one function, if there is one.

    Args:
        part: The function.
        refused: The operation that TensorFlow named; empty if it named none.
    """
    operations = part.operations
    if "GeneratorDataset" in operations:
        return _FROM_GENERATOR
    if part.name == "rejection_resample" and _random(operations):
        remedy = "Sample with `tf.data.Dataset.sample_from_datasets` and a seed."
        return Obstacle("rejection_resample, which draws random numbers", remedy)
    kind, detail, remedy = _kind_of(operations)
    if part.layer and kind:
        kind = f"the Keras layer {part.layer}"
    if not kind and refused in operations:
        kind, remedy = f"the operation {refused}", _REMOVE
    where = ", ".join(text for text in (detail, part.place) if text)
    return (
        Obstacle(f"{kind} in {part.name}" + f" ({where})" * bool(where), remedy) if kind else None
    )


def _kind_of(operations: frozenset[str]) -> tuple[str, str, str]:
    """Returns what a function does that cannot be saved, the operation, and a remedy."""
    random = _random(operations)
    variables = operations & _CHANGING
    if "EagerPyFunc" in operations:
        return "a py_function", "", _TENSORFLOW
    if "PyFunc" in operations:
        return "a numpy_function", "", _TENSORFLOW
    if any(name.startswith("Rng") for name in operations):
        return "a tf.random.Generator", "", _STATELESS
    if random:
        return "a random operation", random[0], _STATELESS
    if variables:
        remedy = f"Apply random Keras layers in the model. {_STATELESS}"
        return "a variable that changes, such as the seed of a Keras layer,", "", remedy
    if "ReadVariableOp" in operations:
        return "a variable", "", "Use a constant in place of the variable."
    return "", "", ""


def _random(operations: frozenset[str]) -> list[str]:
    pattern = r"(Random(?!Dataset|IndexShuffle).*|.*TruncatedNormal|Multinomial|StatefulRandom.*)$"
    return sorted(name for name in operations if re.match(pattern, name))
