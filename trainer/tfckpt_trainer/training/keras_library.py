"""The Keras of this process, and what of it is not public. No other module imports Keras."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays
from keras.src.trainers.data_adapters.array_slicing import train_validation_split
from keras.src.trainers.data_adapters.data_adapter_utils import get_tensor_spec
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn
from keras.src.utils.naming import to_snake_case

__all__ = [
    "OPTIMIZERS",
    "ArrayDataAdapter",
    "PyDatasetAdapter",
    "array_slicing",
    "begin_at_epoch",
    "build_symbolically",
    "can_convert_arrays",
    "get_tensor_spec",
    "global_seed_generator",
    "has_value",
    "keras",
    "make_class_weight_map_fn",
    "seed_module",
    "titles_of_optimizers",
    "train_validation_split",
]

OPTIMIZERS = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
"""What is an optimizer: the one that scales the loss need not be of the same class."""


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


def global_seed_generator() -> keras.random.SeedGenerator | None:
    """Returns what functions of `keras.random` without a seed drew from; None before that."""
    return global_state.get_global_attribute("global_seed_generator")


def has_value(variable: Any) -> bool:
    """Whether a variable was created, also one that Keras creates at its first use."""
    return not isinstance(variable, keras.Variable) or variable._value is not None


def begin_at_epoch(model: keras.Model, epoch: int) -> None:
    """Has `fit`, which has begun, go on with an epoch, counted from 0."""
    model._initial_epoch = epoch


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
