"""What Keras's callbacks remember from batch to batch: their counters and best values so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

_PASSED_OVER = {"params", "model", "validation_data", "monitor_op", "min_delta"}
"""Keras sets the last two at the first end of an epoch, together and in each process anew."""


class CallbackStates:
    """Keeps the plain attributes of callbacks that training changes.

    What a person sets, such as a patience, stays as the script has it now: only attributes that
    differ from what they were when training began are kept. Weights and open files are not.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._first: list[dict[str, Any]] = [{} for _ in self._callbacks]

    def begin(self) -> None:
        """Notes the attributes with which training begins."""
        self._first = [_plain_attributes(callback) for callback in self._callbacks]

    def text(self) -> str:
        """Returns what differs now, as text; not-a-number and infinity are kept."""
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
        """Gives the callbacks back what `text` holds, and the rest as training began.

        Where the script now has other callbacks, those that are in the same place are served.
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
        if name in _PASSED_OVER or name.startswith("_"):
            continue
        plain = _plain(value)
        if plain is not _NOT_PLAIN:
            found[name] = plain
    return found


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    """Returns a copy of a value that JSON has, or `_NOT_PLAIN`."""
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
