"""Saves and restores the state of Keras callbacks, such as counters and best values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.state.value_encoding import decode_value, encode_value
from tfckpt_trainer.training.state.variables import HOST, exempt

_SKIPPED = {
    "params",
    "model",
    "_model",
    "validation_data",
    # Keras sets these two together in each process.
    "monitor_op",
    "min_delta",
    # Whether TensorBoard's profiler runs, in this process.
    "_is_tracing",
    "_profiler_started",
    "_should_trace",
    "_should_write_train_graph",
}
"""Attributes that are not saved."""

_OWN_STATE = "state_dict"

_MOST_BYTES = 12 << 20
"""Of an attribute; larger ones, such as a dataset in memory, are not saved."""

_WITHOUT_STATE = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType)
"""Types of attributes that a script sets and that no training changes."""


class CallbackState:
    """Saves and restores attributes of callbacks, with equal types and bits.

    Only attributes that changed since the start of training are saved. So options that the script
    sets, such as the patience, keep the value in the script. A callback with the methods
    `state_dict` and `load_state_dict` decides for itself.

    Attributes:
        variables: For each `EarlyStopping` that keeps the best weights, variables that a checkpoint
            holds them in, by the number of the callback among those.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._first: list[dict[str, Any]] = [{} for _ in self._callbacks]
        self._keepers = [callback for callback in self._callbacks if _keeps_weights(callback)]
        self.variables: dict[str, list[tf.Variable]] = {}

    def create_variables(self, model: keras.Model, sets: int | None) -> None:
        """Creates `variables` for the weights of a built model.

        Args:
            model: The model.
            sets: How many sets of weights the checkpoints of the run have; None if there are none.
        """
        with tf.device(HOST):
            for number in range(len(self._keepers) if sets is None else sets):
                self.variables[str(number)] = [
                    exempt(tf.Variable(np.zeros_like(weight), trainable=False))
                    for weight in model.get_weights()
                ]

    def begin(self) -> None:
        """Records the attributes at the start of training."""
        self._first = [_plain_attributes(callback) for callback in self._callbacks]

    def text(self) -> str:
        """Returns the changed attributes as JSON, and sets `variables`.

        Raises:
            UsageError: The state of a callback would not come back as it is.
        """
        for keeper, variables in zip(self._keepers, self.variables.values(), strict=False):
            best = keeper.best_weights or []
            with tf.device(HOST):
                for variable, weight in zip(variables, best, strict=False):
                    variable.assign(weight)
        return json.dumps(
            [
                {"callback": type(callback).__name__, "state": self._saved(callback, first)}
                for callback, first in zip(self._callbacks, self._first, strict=True)
            ]
        )

    def unsaved(self) -> list[str]:
        """Returns the attributes of the script's callbacks that `text` leaves out, with types."""
        return [
            f"{type(callback).__name__}.{name} ({type(value).__name__})"
            for callback in self._callbacks
            if not has_state(callback) and not _is_of_keras(callback)
            for name, value in vars(callback).items()
            if name not in _SKIPPED
            and not isinstance(value, _WITHOUT_STATE)
            and not (name == "best_weights" and callback in self._keepers)
            and _plain(value) is _NOT_PLAIN
        ]

    def restore(self, text: str) -> None:
        """Sets the attributes in `text`, and all others to their values at the start.

        If the script has other callbacks now, they are matched by class.
        """
        kept = _Kept(text)
        for number, (callback, first) in enumerate(zip(self._callbacks, self._first, strict=True)):
            own = kept.take(type(callback).__name__, number)
            if has_state(callback):
                if _OWN_STATE in own:
                    callback.load_state_dict(decode_value(own[_OWN_STATE]))
                continue
            for name, value in {**first, **own}.items():
                # One that holds something else by now, such as a file, is as new as the process.
                if name in first and _plain(getattr(callback, name, None)) is not _NOT_PLAIN:
                    setattr(callback, name, decode_value(value))
            if callback in self._keepers:
                self._restore_weights(callback, own.get("best_weights") is True)

    def _restore_weights(self, callback: keras.callbacks.EarlyStopping, were_kept: bool) -> None:
        variables = self.variables.get(str(self._keepers.index(callback)), [])
        with tf.device(HOST):
            weights = [variable.numpy() for variable in variables]
        callback.best_weights = weights if were_kept and weights else None

    def _saved(self, callback: keras.callbacks.Callback, first: dict[str, Any]) -> dict[str, Any]:
        if has_state(callback):
            return {_OWN_STATE: _own_state(callback)}
        changed = {
            name: value
            for name, value in _plain_attributes(callback).items()
            if name not in first or json.dumps(first[name]) != json.dumps(value)
        }
        if callback in self._keepers and callback.best_weights is not None:
            changed["best_weights"] = True
        return changed


class _Kept:
    """The saved states of callbacks, each of which is taken once."""

    def __init__(self, text: str) -> None:
        self._states: list[dict[str, Any]] = json.loads(text) if text else []

    def take(self, name: str, position: int) -> dict[str, Any]:
        """Returns the next state of a callback of this class; older texts have no classes."""
        if self._states and "callback" not in self._states[0]:
            return self._states[position] if position < len(self._states) else {}
        for number, saved in enumerate(self._states):
            if saved["callback"] == name:
                return dict(self._states.pop(number)["state"])
        return {}


def _keeps_weights(callback: keras.callbacks.Callback) -> bool:
    return (
        isinstance(callback, keras.callbacks.EarlyStopping)
        and bool(callback.restore_best_weights)
        and not has_state(callback)
    )


def _is_of_keras(callback: keras.callbacks.Callback) -> bool:
    return type(callback).__module__.partition(".")[0] in ("keras", "tf_keras")


def has_state(thing: Any) -> bool:
    """Whether an object of the script saves and restores its state itself."""
    return hasattr(thing, _OWN_STATE) and hasattr(thing, "load_state_dict")


def _own_state(callback: Any) -> Any:
    return encode_value(callback.state_dict(), f"{type(callback).__name__}.state_dict()")


def _plain_attributes(callback: keras.callbacks.Callback) -> dict[str, Any]:
    return {
        name: plain
        for name, value in _attributes(callback)
        if (plain := _plain(value)) is not _NOT_PLAIN
    }


def _attributes(callback: keras.callbacks.Callback) -> Iterator[tuple[str, Any]]:
    # A class can give an attribute its first value.
    kinds = reversed(type(callback).__mro__)
    defaults = {name: value for kind in kinds for name, value in vars(kind).items()}
    for name, value in {**defaults, **vars(callback)}.items():
        if name not in _SKIPPED and not name.startswith("__"):
            yield name, value


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    """Returns a value as what JSON supports, or `_NOT_PLAIN` if it would not come back."""
    try:
        # A variable would come back as an array, which its callback cannot assign to.
        return encode_value(value, "", tensors=False, most=_MOST_BYTES)
    except UsageError:
        return _NOT_PLAIN
