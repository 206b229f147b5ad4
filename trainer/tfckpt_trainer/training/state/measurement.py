"""Measures which values differ between workers or replicas, at the moment of a save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.training.state.comparison import checksum, memory_of
from tfckpt_trainer.training.state.device_checksums import DeviceChecksums, result_of
from tfckpt_trainer.training.state.variables import (
    ReplicaRule,
    components,
    raw_variable,
    replicas_of,
)
from tfckpt_trainer.training.state.walk import Found
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

DIFFERS = -1
"""Stands for the checksum of a value that differs between the replicas of one worker."""


@dataclass(frozen=True)
class Differing:
    """What a comparison of all replicas found.

    Attributes:
        paths: Those of the values that must be stored for each worker.
        checksums: CRC32C of variables that were compared in main memory, if all replicas of this
            worker are equal, by the identity of the variable.
    """

    paths: list[str]
    checksums: Mapping[int, int] = field(default_factory=dict)


def find_differing(group: WorkerGroup, states: Sequence[Found]) -> Differing:
    """Finds all values that must be stored for each worker.

    Those are the values that are not equal on all replicas, all on-read variables, whose replicas
    have values of their own, and all iterators. Objects that do not give their value away are
    left out, such as iterators of stateful pipelines. All workers call it together.

    Args:
        group: The workers.
        states: What this worker found.

    Raises:
        tf.errors.OpError: Another worker is gone.
    """
    states = [
        state for state in states if state.tracked or state.rule.is_variable or _is_storable(state)
    ]
    alone = group.size == 1
    if alone and not any(
        state.rule.is_variable and len(replicas_of(state.thing)) > 1 for state in states
    ):
        return Differing(
            [state.path for state in states if not (state.tracked or state.rule.is_variable)]
        )
    devices = DeviceChecksums()
    # All are started before the first result is waited for, so that all devices compute together.
    started = [
        devices.start(state.thing) if state.rule is ReplicaRule.MIRRORED else None
        for state in states
    ]
    mine = [
        _measure(state, alone=alone) if sums is None else _common(map(result_of, sums))
        for state, sums in zip(states, started, strict=True)
    ]
    paths = [state.path for state in states]
    checksums = {
        id(raw_variable(state.thing)): value
        for state, sums, value in zip(states, started, mine, strict=True)
        if state.rule is ReplicaRule.MIRRORED and sums is None and value != DIFFERS
    }
    summary = [crc32c("\n".join(paths).encode()), crc32c(np.array(mine, np.int64).tobytes())]
    summaries = group.all_gather(summary)
    if any(other != summary for other in summaries):
        return Differing(_compare(group, dict(zip(paths, mine, strict=True))), checksums)
    differing = [path for path, value in zip(paths, mine, strict=True) if value == DIFFERS]
    return Differing(differing, checksums)


def _is_storable(state: Found) -> bool:
    """Whether an object that keeps its value outside variables can be saved at present."""
    try:
        state.thing._serialize_to_tensors()
    except (tf.errors.OpError, NotImplementedError, TypeError, ValueError):
        return False
    except AttributeError:
        return True  # It has the older interface of `tf.train.Saver`.
    return True


def _compare(group: WorkerGroup, mine: dict[str, int]) -> list[str]:
    """Compares value by value; a path that a worker lacks counts as different."""
    of_all = group.all_gather(mine)
    return [
        path
        for path, value in mine.items()
        if value == DIFFERS or any(other.get(path) != value for other in of_all)
    ]


def _common(checksums: Iterable[int]) -> int:
    """Returns the checksum that all replicas of this worker have, or `DIFFERS`."""
    different = set(checksums)
    return different.pop() if len(different) == 1 else DIFFERS


def _measure(state: Found, *, alone: bool) -> int:
    """Returns the checksum of a value in main memory, or `DIFFERS`."""
    if alone and state.tracked and not state.rule.is_variable:
        return 0
    if state.rule is ReplicaRule.MIRRORED:
        return _common(checksum(memory_of(component)) for component in components(state.thing))
    if state.rule is ReplicaRule.OTHER and state.tracked:
        return _checksum_of_object(state.thing)
    return DIFFERS


def _checksum_of_object(thing: Any) -> int:
    """Returns a checksum of what an object would store, or `DIFFERS` if that fails."""
    try:
        tensors = tf.nest.flatten(thing._serialize_to_tensors())
        return crc32c(b"".join(checksum(np.asarray(t)).to_bytes(4, "big") for t in tensors))
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return DIFFERS
