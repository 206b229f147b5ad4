"""Objects of the script with `state_dict()` and `load_state_dict()`, stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfckpt_trainer.training.state.value_encoding import decode_value, encode_value


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
            name: encode_value(thing.state_dict(), f"extra[{name!r}].state_dict()")
            for name, thing in self.objects.items()
        }

    def missing(self, states: Mapping[str, Any]) -> list[str]:
        """Returns the names of objects that `states` lacks."""
        return [name for name in self.objects if name not in states]

    def load(self, states: Mapping[str, Any]) -> None:
        """Restores each object that `states` has."""
        for name, thing in self.objects.items():
            if name in states:
                thing.load_state_dict(decode_value(states[name]))
