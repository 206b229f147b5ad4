"""Digests of everything that training can change, between two steps."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.check import StateDigest, StateKind
from tfckpt_trainer.training.check.script_names import ScriptNames
from tfckpt_trainer.training.check.untracked import Untracked, find_untracked
from tfckpt_trainer.training.checkpoint.state import COUNTERS, TrainingState
from tfckpt_trainer.training.keras_library import Variable
from tfckpt_trainer.training.state.comparison import checksum, memory_of
from tfckpt_trainer.training.state.value_encoding import encode_value
from tfckpt_trainer.training.state.variables import components, is_variable
from tfckpt_trainer.training.state.walk import find_state

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
"""Types of random generators whose state no checkpoint holds."""


def saved_state(state: TrainingState) -> list[tuple[str, Any]]:
    """Returns path and object of all state in the objects that were passed to a run."""
    shared, iterators = state.shared, state.worker.inputs.iterators
    of_objects = find_state(tf.train.Checkpoint(), shared.user_objects.objects)
    pairs = [(value.path, value.thing) for value in (*shared.find(), *of_objects)]
    return [*pairs, *iterators.items()]


class StateDigests:
    """Digests the objects that were passed to a run, and stateful objects that were not."""

    def __init__(self, state: TrainingState, *, is_chief: bool) -> None:
        self._state = state
        self._is_chief = is_chief
        self._saved: dict[str, Any] = {}
        self._untracked: list[Untracked] = []
        self._generators: list[tuple[str, Any]] = []

    def find(self, names: ScriptNames) -> None:
        """Finds the objects to digest; repeat it when the script may have created others."""
        saved = saved_state(self._state)
        # A save between repeated steps changes the library's own counters, and nothing else.
        self._saved = {
            path: thing for path, thing in _variables_once(saved) if path not in COUNTERS
        }
        self._untracked = find_untracked((thing for _, thing in saved), names)
        self._generators = list(names.named(GENERATORS))

    @property
    def iterators(self) -> list[str]:
        """Names of iterators that the script reads itself and did not pass."""
        return [
            untracked.name for untracked in self._untracked if untracked.kind is StateKind.ITERATOR
        ]

    def digest(self) -> dict[str, StateDigest]:
        """Returns the digest of each object, by name."""
        user = self._state.user
        return {
            **{
                path: StateDigest(
                    kind=_kind(variable), digest=_of_variable(variable), title=_title(variable)
                )
                for path, variable in self._saved.items()
            },
            **{
                untracked.name: StateDigest(
                    kind=untracked.kind,
                    digest=" ".join(_of_variable(thing) for thing in untracked.things),
                    passed=False,
                    expression=untracked.expression,
                )
                for untracked in self._untracked
                if untracked.kind is not StateKind.ITERATOR
            },
            **{
                name: StateDigest(
                    kind=StateKind.PYTHON_GENERATOR,
                    digest=_of_generator(generator),
                    passed=False,
                    expression=name,
                )
                for name, generator in self._generators
            },
            "random": _plain(StateKind.RANDOM_STATE, random.getstate()),
            "np.random": _plain(StateKind.RANDOM_STATE, np.random.get_state(legacy=False)),
            # All workers get the values of the chief; others may have had what it has not.
            "run.state": _of_values(user.shared if self._is_chief else {}),
            "run.worker_state": _of_values(user.worker),
            "hyperparameters": _plain(StateKind.VALUES, user.hyperparameters.values()),
        }


def digits(metrics: Mapping[str, float]) -> dict[str, str]:
    """Returns metrics with all their digits."""
    return {name: float(value).hex() for name, value in metrics.items()}


def digest_of_batch(batch: Any) -> str:
    """Returns a digest of the input of a step, of all replicas of this worker."""
    parts = tf.nest.flatten(batch, expand_composites=True)
    return " ".join(f"{checksum(np.asarray(part)):08x}" for part in parts if part is not None)


def _variables_once(saved: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yields path and variable of all variables, each once."""
    seen: set[int] = set()
    for path, thing in saved:
        parts = set(map(id, components(thing))) if is_variable(thing) else set()
        if parts and not seen & parts:
            seen |= parts
            yield path, thing


def _title(variable: Any) -> str:
    if isinstance(variable, Variable):
        return str(variable.path)
    name = str(variable.name).removesuffix(":0")
    return "" if name.startswith("Variable") else name


def _kind(variable: Any) -> StateKind:
    is_seed = _title(variable).endswith("seed_generator_state")
    return StateKind.SEED_GENERATOR if is_seed else StateKind.VARIABLE


def _of_variable(thing: Any) -> str:
    if is_variable(thing):
        return ",".join(f"{checksum(memory_of(part)):08x}" for part in components(thing))
    keys, values = (np.asarray(part) for part in thing.export())
    pairs = sorted(zip(keys.tolist(), values.tolist(), strict=True), key=repr)
    return _of_text(repr(pairs))


def _of_generator(generator: Any) -> str:
    if isinstance(generator, np.random.Generator):
        return _of_text(repr(generator.bit_generator.state))
    if isinstance(generator, np.random.RandomState):
        return _of_text(_text(generator.get_state(legacy=False)))
    return _of_text(repr(generator.getstate()))


def _plain(kind: StateKind, value: Any) -> StateDigest:
    return StateDigest(kind=kind, digest=_of_text(_text(value)))


def _of_values(values: dict[str, Any]) -> StateDigest:
    # A save refuses what cannot be encoded, and names it.
    with suppress(UsageError):
        values = encode_value(values, "")
    return _plain(StateKind.VALUES, values)


def _text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=_as_plain).decode()


def _as_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


def _of_text(text: str) -> str:
    return f"{crc32c(text.encode()):08x}"
