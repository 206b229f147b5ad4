"""The Keras of this process, and what of it is not public. No other module imports Keras.

TensorFlow chooses it by `TF_USE_LEGACY_KERAS`: Keras 3, or Keras 2 in the package `tf_keras`. Both
can be installed, and Keras 3 always is. Its tools for data and nests work with models of either.
"""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import keras
import keras as keras_3
import tensorflow as tf

try:
    from keras import Variable
except ImportError:
    raise ImportError(
        "tfckpt_trainer.training needs TensorFlow 2.16 or newer and Keras 3, found TensorFlow "
        f"{tf.__version__} and Keras {keras.__version__}. Run `pip install --upgrade tensorflow`. "
        "A script stays with Keras 2 by `pip install tf_keras` and TF_USE_LEGACY_KERAS=1."
    ) from None
from keras.random import SeedGenerator
from keras.src.backend.common import global_state
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays
from keras.src.trainers.data_adapters.array_slicing import train_validation_split
from keras.src.trainers.data_adapters.data_adapter_utils import get_tensor_spec
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn
from keras.src.utils.naming import to_snake_case

if not TYPE_CHECKING and tf.keras.Model.__module__.startswith("tf_keras."):
    keras = import_module("tf_keras")

__all__ = [
    "BACKUPS_ARE_CHECKPOINTS",
    "OPTIMIZERS",
    "SCALED_OPTIMIZER",
    "ArrayDataAdapter",
    "PyDataset",
    "PyDatasetAdapter",
    "SeedGenerator",
    "Sequence",
    "Variable",
    "apply_gradients",
    "applying_method",
    "array_slicing",
    "as_array",
    "as_served",
    "begin_at_epoch",
    "build_optimizer",
    "build_symbolically",
    "can_convert_arrays",
    "count_step",
    "get_tensor_spec",
    "global_seed_generator",
    "has_value",
    "is_compiled",
    "is_keras_3",
    "is_legacy",
    "keras",
    "logs_of",
    "loss_scale_of",
    "make_class_weight_map_fn",
    "map_scheduled_rate",
    "may_look_at_batches",
    "metrics_of",
    "option_variables",
    "other_keras",
    "rate_of",
    "save_model_for_serving",
    "scheduled_rate",
    "seed_module",
    "steps_per_call",
    "titles_of_optimizers",
    "train_validation_split",
    "tree",
    "unnumbered",
    "variables_of",
]

tree = keras_3.tree
"""Functions for nests, with those of `optree` where TensorFlow has none."""

as_array = keras_3.ops.convert_to_numpy
"""Returns a variable or a tensor, also one of several replicas, as an array."""

BACKUPS_ARE_CHECKPOINTS = keras is not keras_3
"""Whether `BackupAndRestore` saves checkpoints of TensorFlow, and not files of weights."""

PyDataset = keras_3.utils.PyDataset

Sequence = keras.utils.Sequence
"""What Keras 2 has in place of a `PyDataset`, or the same in Keras 3."""

SCALED_OPTIMIZER = (
    keras.optimizers.LossScaleOptimizer
    if hasattr(keras.optimizers, "LossScaleOptimizer")
    else keras.mixed_precision.LossScaleOptimizer
)
"""The optimizer that scales the loss for another one."""

OPTIMIZERS = (
    keras.optimizers.Optimizer,
    SCALED_OPTIMIZER,
    # Keras 3 has this name for a class that refuses to be used.
    *(() if keras is keras_3 else (keras.optimizers.legacy.Optimizer,)),
)
"""What is an optimizer; they need not have a class in common."""


def unnumbered(name: str) -> str:
    """Returns a name without the number that Keras adds to tell objects of a class apart."""
    return re.sub(r"_\d+$", "", name)


def titles_of_optimizers() -> dict[str, str]:
    """Returns the name of each class of `keras.optimizers` by the usual name of its objects."""
    names = vars(keras.optimizers).items()
    return {to_snake_case(name): name for name, thing in names if isinstance(thing, type)}


def seed_module() -> Any:
    """Returns the module whose `global_seed_generator` functions without a seed draw from.

    Raises:
        ImportError: This release of Keras has none.
    """
    return import_module("keras.src.random.seed_generator")


def global_seed_generator() -> SeedGenerator | None:
    """Returns what functions of `keras.random` without a seed drew from; None before that."""
    return global_state.get_global_attribute("global_seed_generator")


def has_value(variable: Any) -> bool:
    """Whether a variable was created, also one that Keras creates at its first use."""
    return not isinstance(variable, Variable) or variable._value is not None


def begin_at_epoch(model: keras.Model, epoch: int) -> None:
    """Has `fit`, which has begun, go on with an epoch, counted from 0."""
    if keras is keras_3:
        model._initial_epoch = epoch
        return

    def counters(*_: object, **__: object) -> tuple[int, int]:
        # The next `fit` begins as its script says.
        model._training_state = None
        return epoch, 0

    # Keras 2 asks what `BackupAndRestore` has put here.
    model._training_state = SimpleNamespace(maybe_load_initial_counters_from_ckpt=counters)


def is_compiled(model: Any) -> bool:
    """Whether it is a model of the Keras of this process, and compiled."""
    # Keras 2 has no public name for it.
    return isinstance(model, keras.Model) and bool(
        model.compiled if hasattr(model, "compiled") else model._is_compiled
    )


def other_keras(thing: Any) -> str:
    """Returns what to do if an object is of the Keras that this process does not use."""
    packages = [kind.__module__.partition(".")[0] for kind in type(thing).__mro__]
    own = keras.__name__
    other = next((name for name in packages if name in {"keras", "tf_keras"} - {own}), "")
    if not other:
        return ""
    value = int(other == "tf_keras")
    return (
        f"The {type(thing).__name__} is of {other}, and TensorFlow uses {own} in this process. Set "
        f"`TF_USE_LEGACY_KERAS={value}` in the environment before the script imports TensorFlow."
    )


def count_step(model: keras.Model, step: int) -> None:
    """Tells a model of Keras 2 how many steps were done; its callbacks read it."""
    counter = getattr(model, "_train_counter", None)
    if counter is not None:
        counter.assign(step)


def may_look_at_batches(callbacks: Any) -> bool:
    """Whether a callback of a `CallbackList` may look at what a batch reports."""
    # Keras 3 takes values that are not computed yet.
    return bool(getattr(callbacks, "_should_call_train_batch_hooks", True))


def logs_of(result: Mapping[str, Any]) -> Any:
    """Returns what a step reported, as callbacks take it."""
    # Keras 2 makes another one of its type, with numbers in place of tensors.
    return result if keras is keras_3 else dict(result)


def steps_per_call(model: keras.Model) -> int:
    """Returns the argument `steps_per_execution` with which a model was compiled."""
    # Keras 2 has a variable, or none until the model is compiled.
    steps = model.steps_per_execution
    return int(steps.numpy() if isinstance(steps, tf.Variable) else steps or 1)


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer."""
    # Legacy optimizers of Keras 2 have a method of this name.
    found = optimizer.variables
    return list(found() if callable(found) else found)


def loss_scale_of(optimizer: Any) -> Any:
    """Returns the variable with the loss scale; None if it is constant, or not created yet."""
    if hasattr(optimizer, "dynamic_scale"):
        return optimizer.dynamic_scale if optimizer.built else None
    return getattr(optimizer._loss_scale, "current_loss_scale", None)


def is_keras_3(thing: Any) -> bool:
    """Whether an object is an optimizer or a model of Keras 3."""
    return isinstance(thing, (keras_3.optimizers.Optimizer, keras_3.Model))


def apply_gradients(
    optimizer: Any, gradients: abc.Sequence[Any], variables: abc.Sequence[Any]
) -> None:
    """Applies gradients to variables; call it on a replica."""
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def adds_repeated_rows(optimizer: Any) -> bool:
    """Whether an optimizer adds rows of `tf.IndexedSlices` with one number before it uses them.

    Those of Keras 2 do (`_deduplicate_sparse_grad`). Those of Keras 3 square each row alone, and
    make gradients of full size where they add a slot.
    """
    return not hasattr(optimizer, "apply")


@contextmanager
def applying_method(
    optimizer: Any, act: Callable[[Iterable[Any], Iterable[Any]], None]
) -> Iterator[None]:
    """Has an optimizer call `act` with gradients and variables in place of applying them.

    In Keras 3, `apply_gradients` and `minimize` call `apply`. Keras 2 has no `apply`.
    """

    def apply(gradients: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        variables = trainable_variables
        act(gradients, optimizer._trainable_variables if variables is None else variables)

    def apply_pairs(pairs: Iterable[tuple[Any, Any]], *_: object, **__: object) -> None:
        pairs = list(pairs)
        act([gradient for gradient, _ in pairs], [variable for _, variable in pairs])

    name, method = (
        ("apply", apply) if hasattr(optimizer, "apply") else ("apply_gradients", apply_pairs)
    )
    object.__setattr__(optimizer, name, method)
    try:
        yield
    finally:
        object.__delattr__(optimizer, name)


def is_legacy(optimizer: Any) -> bool:
    """Whether it is a legacy optimizer of Keras 2, which no script can build."""
    return hasattr(optimizer, "_create_all_weights")


def metrics_of(model: keras.Model) -> list[Any]:
    """Returns the metrics of a model, also those that it has before its first step.

    Raises:
        AttributeError: The model names its metrics itself, and cannot yet.
    """
    # Keras 2 does not name the metric of its loss before a step.
    loss = getattr(getattr(model, "compiled_loss", None), "_total_loss_mean", None)
    return [*model.metrics, *filter(None, [loss])]


def build_optimizer(optimizer: Any, variables: abc.Sequence[Any]) -> None:
    """Creates the variables of an optimizer, unless it has them.

    Args:
        optimizer: The optimizer.
        variables: What it trains.
    """
    if is_legacy(optimizer):
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", False):
        # That of Keras 2 knows itself whether it is built.
        optimizer.build(variables)


def option_variables(optimizer: Any) -> dict[str, Any]:
    """Returns the variables in which a legacy optimizer of Keras 2 has its options, by name."""
    options = getattr(optimizer, "_hyper", {})
    return {name: value for name, value in options.items() if isinstance(value, tf.Variable)}


def rate_of(optimizer: Any) -> Any:
    """Returns the learning rate of an optimizer: a variable, a schedule, or None without one."""
    if hasattr(optimizer, "_hyper"):
        return optimizer._hyper.get("learning_rate")
    return getattr(optimizer, "_learning_rate", None)


def scheduled_rate(optimizer: Any) -> Any:
    """Returns the learning rate that the schedule of an optimizer has at its present step."""
    if hasattr(optimizer, "_decayed_lr"):
        return optimizer._decayed_lr(tf.float32)
    return optimizer.learning_rate


def map_scheduled_rate(optimizer: Any, over: Callable[[Any], Any]) -> None:
    """Has an optimizer train with a function of each rate of its schedule.

    The schedule itself stays, so that Keras saves the model as it would.
    """
    if hasattr(optimizer, "_get_current_learning_rate"):
        scheduled = optimizer._get_current_learning_rate
        optimizer._get_current_learning_rate = lambda: over(scheduled())
    elif hasattr(optimizer, "_decayed_lr"):
        decayed = optimizer._decayed_lr
        optimizer._decayed_lr = lambda dtype: over(decayed(dtype))
    else:
        _map_property(optimizer, over)


def _map_property(optimizer: Any, over: Callable[[Any], Any]) -> None:
    """Does so for an optimizer of Keras 2, which reads its property `learning_rate`."""
    kind = type(optimizer)
    rate = kind.learning_rate
    mapped = property(lambda self: over(rate.fget(self)), rate.fset)
    # Keras saves an optimizer by the name of its class.
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    optimizer.__class__ = type(kind.__name__, (kind,), {**named, "learning_rate": mapped})


def save_model_for_serving(model: keras.Model, path: str) -> None:
    """Writes a SavedModel with the function that serves the model."""
    # Keras 2 prints nothing.
    model.export(path, **({"verbose": False} if keras is keras_3 else {}))


def as_served(inputs: Any) -> Any:
    """Returns the inputs of a model as the function takes them that serves it."""
    if keras is keras_3:
        return inputs
    # Keras 2 lists them.
    flat = tf.nest.flatten(inputs)
    return flat if len(flat) > 1 else flat[0]


def build_symbolically(model: keras.Model, specification: Any) -> None:
    """Creates the variables of a compiled model by a call without values.

    Args:
        model: The compiled model.
        specification: The `element_spec` of the batches.
    """
    model._symbolic_build(data_batch=tf.nest.map_structure(_symbol, specification))


def _symbol(specification: Any) -> SimpleNamespace | None:
    if not hasattr(specification, "dtype"):
        return None
    return SimpleNamespace(
        shape=tuple(specification.shape.as_list()), dtype=specification.dtype.name
    )
