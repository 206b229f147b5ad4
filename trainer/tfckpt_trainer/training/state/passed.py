"""Checks the objects that a script passes to `TrainingRun`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import (
    SeedGenerator,
    Variable,
    is_keras_3,
    keras,
    other_keras,
)
from tfckpt_trainer.training.state.variables import is_partitioned, is_variable

_Trackable = tf.__internal__.tracking.Trackable

ACCEPTED = (
    "a trackable object such as a model, a tf.Module, a variable or a generator, a Keras metric, "
    "or an object with state_dict() and load_state_dict()"
)


def saves_itself(thing: Any) -> bool:
    """Whether its state is taken from `state_dict()` and given back to `load_state_dict()`."""
    return not isinstance(thing, (_Trackable, *_UNTRACKED)) and all(
        callable(getattr(thing, name, None)) for name in ("state_dict", "load_state_dict")
    )


def is_tracked_as(name: str, thing: Any) -> bool:
    """Whether a `tf.train.Checkpoint` takes it; metrics are stored beside the checkpoint."""
    return name != "metrics" and isinstance(thing, (_Trackable, dict, list))


def check_passed(passed: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Makes sure that the state of each object can be found.

    Args:
        passed: All objects by name, without those that save themselves.
        extra: Those of the argument `extra`.

    Raises:
        UsageError: Nothing would be saved of an object.
    """
    for name in ("model", "optimizer"):
        _check_members(name, passed.get(name), (_Trackable,), "an object that TensorFlow tracks")
        for thing in tf.nest.flatten(passed.get(name)):
            if problem := other_keras(thing):
                raise UsageError(problem)
    _check_members("metrics", passed.get("metrics"), _METRICS, "a Keras metric")
    for name, thing in extra.items():
        if name in {"model", "optimizer", "metrics", "step"}:
            raise UsageError(f"extra[{name!r}] has the name of an argument. Choose another name.")
        if name in passed and not _is_accepted(thing):
            raise UsageError(f"extra[{name!r}] is a {type(thing).__name__}; expected {ACCEPTED}.")


def check_partitions(variables: Iterable[Any]) -> None:
    """Makes sure that TensorFlow can compute gradients of all variables.

    Raises:
        UsageError: A variable of Keras 3 is partitioned.
    """
    for variable in variables:
        if isinstance(variable, Variable) and is_partitioned(variable):
            raise UsageError(
                f"{variable.path} is a partitioned variable of Keras 3, of which "
                "TensorFlow computes no gradients. Train with Keras 2, by "
                "TF_USE_LEGACY_KERAS=1, hold it as a tf.Variable of a tf.Module, or leave out "
                "variable_partitioner."
            )


def only_optimizer(optimizer: Any) -> Any:
    """Returns the optimizer of a step with parameter servers.

    Raises:
        UsageError: There are several.
    """
    if not isinstance(optimizer, dict):
        return optimizer
    if len(optimizer) != 1:
        raise UsageError(
            f"optimizer has {len(optimizer)} optimizers: {', '.join(optimizer)}. With parameter "
            "servers, a step applies gradients once: pass one optimizer."
        )
    return next(iter(optimizer.values()))


def check_asynchronous(optimizers: Iterable[tuple[str, Any]]) -> None:
    """Makes sure that workers can apply the gradients of their own steps.

    Args:
        optimizers: What may be an optimizer of the run, by name.

    Raises:
        UsageError: One is an optimizer of Keras 3.
    """
    for name, optimizer in optimizers:
        if is_keras_3(optimizer):
            raise UsageError(
                f"asynchronous=True does not go with {name}, which is the "
                f"{type(optimizer).__name__} of Keras 3: it reads a variable and then writes it, "
                "so workers overwrite the updates of others. Leave asynchronous out. Or use the "
                "optimizers of Keras 2: `pip install tf-keras`, and set TF_USE_LEGACY_KERAS=1 "
                "before the script imports TensorFlow."
            )


_UNTRACKED = (keras.metrics.Metric, keras.losses.Loss, SeedGenerator)
_METRICS = (keras.metrics.Metric, _Trackable)


def _check_members(name: str, given: Any, kinds: tuple[type, ...], expected: str) -> None:
    if given is None:
        return
    several = isinstance(given, (dict, list, tuple))
    items = given.items() if isinstance(given, dict) else enumerate(given if several else [given])
    for key, thing in items:
        place = f"{name}[{key!r}]" if several else name
        if isinstance(given, dict) and not isinstance(key, str):
            raise UsageError(f"{place} has a name that is not a string. Use a string.")
        if not isinstance(thing, kinds):
            raise UsageError(
                f"{place} is a {type(thing).__name__}; expected {expected}, or a dictionary of "
                "them by name."
            )


def _is_accepted(thing: Any) -> bool:
    if isinstance(thing, dict):
        named = all(isinstance(name, str) for name in thing)
        return bool(thing) and named and all(map(_is_accepted, thing.values()))
    if isinstance(thing, (list, tuple)):
        return bool(thing) and all(map(_is_accepted, thing))
    return isinstance(thing, (_Trackable, *_UNTRACKED)) or is_variable(thing)
