"""Saves and restores the state of Keras callbacks, such as counters and best values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

_SKIPPED = {"params", "model", "validation_data", "monitor_op", "min_delta"}
"""Attributes that are not saved. Keras sets the last two together in each process."""


class CallbackState:
    """Saves and restores attributes of callbacks with JSON values.

    Only attributes that changed since the start of training are saved. So options that the script
    sets, such as the patience, keep the value in the script.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._first: list[dict[str, Any]] = [{} for _ in self._callbacks]

    def begin(self) -> None:
        """Records the attributes at the start of training."""
        self._first = [_plain_attributes(callback) for callback in self._callbacks]

    def text(self) -> str:
        """Returns the changed attributes as JSON. NaN and infinity are allowed."""
        return json.dumps(
            [
                {
                    name: value
                    for name, value in _plain_attributes(callback).items()
                    if name not in first or json.dumps(first[name]) != json.dumps(value)
                }
                for callback, first in zip(self._callbacks, self._first, strict=True)
            ]
        )

    def restore(self, text: str) -> None:
        """Sets the attributes in `text`, and all others to their values at the start.

        If the script has other callbacks now, callbacks are matched by position.
        """
        kept = json.loads(text) if text else []
        kept += [{}] * (len(self._callbacks) - len(kept))
        for callback, first, own in zip(self._callbacks, self._first, kept, strict=False):
            for name, value in {**first, **own}.items():
                if name in first:
                    setattr(callback, name, json.loads(json.dumps(value)))


def _plain_attributes(callback: keras.callbacks.Callback) -> dict[str, Any]:
    found = {}
    for name, value in vars(callback).items():
        if name in _SKIPPED or name.startswith("_"):
            continue
        plain = _plain(value)
        if plain is not _NOT_PLAIN:
            found[name] = plain
    return found


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    """Returns a copy of a JSON value, or `_NOT_PLAIN` for other values."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        inner = {name: _plain(item) for name, item in value.items()}
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in inner.values()) else inner
    return _NOT_PLAIN
