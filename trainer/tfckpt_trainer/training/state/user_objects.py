"""Objects of the script with `state_dict()` and `load_state_dict()`, stored as JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.state.variables import is_variable, raw_variable

_LARGEST_INTEGER = 1 << 63
_SPECIAL = "$"


class UserObjects:
    """Saves and restores objects by their own methods, with equal types and bits."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Takes objects by name, each with `state_dict()` and `load_state_dict()`.

        Raises:
            UsageError: A state has a value that cannot be saved.
        """
        self.objects = dict(objects)
        self.states()

    def __bool__(self) -> bool:
        return bool(self.objects)

    def states(self) -> dict[str, Any]:
        """Returns the state of each object, of types that JSON supports.

        Raises:
            UsageError: A state has a value that cannot be saved.
        """
        return {
            name: _encode(thing.state_dict(), f"extra[{name!r}].state_dict()")
            for name, thing in self.objects.items()
        }

    def missing(self, states: Mapping[str, Any]) -> list[str]:
        """Returns the names of objects that `states` lacks."""
        return [name for name in self.objects if name not in states]

    def load(self, states: Mapping[str, Any]) -> None:
        """Restores each object that `states` has."""
        for name, thing in self.objects.items():
            if name in states:
                thing.load_state_dict(_decode(states[name]))


def _encode(value: Any, place: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return (
            value if abs(value) < _LARGEST_INTEGER else {_SPECIAL: "integer", "value": str(value)}
        )
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {_SPECIAL: "float", "value": repr(value)}
    if isinstance(value, dict):
        items = [
            [_encode(key, place), _encode(item, f"{place}[{key!r}]")] for key, item in value.items()
        ]
        if all(isinstance(key, str) for key in value) and _SPECIAL not in value:
            return dict(items)
        return {_SPECIAL: "dictionary", "value": items}
    if isinstance(value, (list, tuple)):
        listed = [_encode(item, f"{place}[{number}]") for number, item in enumerate(value)]
        return listed if isinstance(value, list) else {_SPECIAL: "tuple", "value": listed}
    return _encode_array(value, place)


def _encode_array(value: Any, place: str) -> Any:
    if isinstance(value, tf.Tensor) or is_variable(value):
        value = raw_variable(value).numpy()
    array = np.asarray(value)
    if not isinstance(value, (np.ndarray, np.generic)) or array.dtype.hasobject:
        raise UsageError(
            f"{place} is a {type(value).__name__}, which cannot be saved. Use numbers, texts, "
            "lists, tuples, dictionaries and arrays of NumPy or TensorFlow."
        )
    return {
        _SPECIAL: "array",
        "dtype": array.dtype.name if array.dtype.kind == "V" else array.dtype.str,
        "shape": list(array.shape),
        "value": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
        "scalar": isinstance(value, np.generic),
    }


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_SPECIAL)
    if kind is None:
        return {name: _decode(item) for name, item in value.items()}
    return _DECODERS[kind](value)


def _decode_array(value: Mapping[str, Any]) -> npt.NDArray[Any]:
    data = base64.b64decode(value["value"])
    array = np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
    return array[()] if value["scalar"] else array


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "integer": lambda value: int(value["value"]),
    "float": lambda value: float(value["value"]),
    "dictionary": lambda value: {_decode(key): _decode(item) for key, item in value["value"]},
    "tuple": lambda value: tuple(_decode(item) for item in value["value"]),
    "array": _decode_array,
}
