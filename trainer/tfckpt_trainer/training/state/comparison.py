"""Compares live variables with a checkpoint: names, shapes and types first, values afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.index import Index, TensorEntry, read_index
from tfckpt_trainer.bundle.object_graph import Node, read_object_graph
from tfckpt_trainer.bundle.slices import WHOLE, Slice
from tfckpt_trainer.bundle.tensor_checksums import checksum_of_strings
from tfckpt_trainer.training.state.variables import (
    HOST,
    Rule,
    components,
    is_variable,
    live_variables,
    raw_variable,
    rule_of,
)

_CHUNK_BYTES = 64 << 20
"""Bytes per checksum call, during which no other thread of Python runs."""


@dataclass(frozen=True)
class Match:
    """A live variable and the key of its tensor in a checkpoint."""

    key: str
    variable: tf.Variable


@dataclass(frozen=True)
class Comparison:
    """How a checkpoint fits the live objects.

    Attributes:
        matched: Variables with their tensors.
        missing: Paths of live variables that are not in the checkpoint.
        extra: Keys of tensors that belong to no live variable.
        different: A sentence for each tensor of another shape or type.
    """

    matched: tuple[Match, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """A sentence for each difference; empty if the checkpoint fits."""
        return [
            *(f"{path} is missing in the checkpoint" for path in self.missing),
            *(f"{key} is in the checkpoint and not in the model" for key in self.extra),
            *self.different,
        ]


def compare(root: tf.train.Checkpoint, prefix: Path) -> Comparison:
    """Compares the object graph of a checkpoint with live objects, as a restore would match them.

    Raises:
        BundleError: The checkpoint is damaged.
        FileNotFoundError: There is no checkpoint at `prefix`.
    """
    return compare_graph(root, read_index(prefix), read_object_graph(prefix))


def compare_graph(root: Any, index: Index, nodes: tuple[Node, ...]) -> Comparison:
    """Compares an object graph that was read before with live objects, as `compare` does."""
    live = {id(variable): (path, variable) for path, variable in live_variables(root)}
    found = _variables_by_key(root, nodes)
    matched, different = [], []
    for key, variable in found.items():
        difference = describe_difference(key, variable, index)
        if difference:
            different.append(difference)
        else:
            matched.append(Match(key, variable))
    taken = {id(variable) for variable in found.values()}
    known = {node.checkpoint_key for node in nodes if node.checkpoint_key is not None}
    return Comparison(
        matched=tuple(matched),
        missing=tuple(path for number, (path, _) in live.items() if number not in taken),
        extra=tuple(sorted(known - set(found))),
        different=tuple(different),
    )


def wrong_values(
    matches: Iterable[Match], prefix: Path, ignored: Collection[int] = ()
) -> list[str]:
    """Compares variables in memory with the checksums that a checkpoint stores for them.

    Args:
        matches: The variables; each is compared on all replicas of this worker.
        prefix: Prefix of the checkpoint.
        ignored: Identities of variables that differ between workers by design.

    Returns:
        Keys of the variables whose value in memory differs from the checkpoint.
    """
    index = read_index(prefix)
    return [
        match.key
        for match in matches
        if id(raw_variable(match.variable)) not in ignored and not _is_equal(match, prefix, index)
    ]


def share_of(variable: Any, value: tf.Tensor) -> tf.Tensor:
    """Returns the part of a stored value that a restore gives to each replica.

    TensorFlow divides the value of an on-read sum, so that its sum is the stored value again.
    """
    if rule_of(variable) is not Rule.ON_READ_SUM:
        return value
    raw = raw_variable(variable)
    replicas = raw.distribute_strategy.num_replicas_in_sync
    with tf.device(HOST):
        return value if replicas == 1 else tf.cast(value / replicas, raw.dtype)


def _is_equal(match: Match, prefix: Path, index: Index) -> bool:
    """Whether all replicas of this worker have what the restore of a tensor gives them."""
    memories = (memory_of(component) for component in components(match.variable))
    if rule_of(match.variable) is not Rule.ON_READ_SUM:
        entry = index.entries[match.key]
        return all(_has_checksum(memory, index, entry) for memory in memories)
    share = checksum(share_of(match.variable, stored_value(prefix, match)).numpy())
    return all(checksum(memory) == share for memory in memories)


def stored_value(prefix: Path, match: Match) -> tf.Tensor:
    """Reads the tensor of a variable into main memory."""
    with tf.device(HOST):
        (value,) = tf.raw_ops.RestoreV2(
            prefix=str(prefix),
            tensor_names=[match.key],
            shape_and_slices=[""],
            dtypes=[raw_variable(match.variable).dtype],
        )
    return value


def memory_of(variable: Any) -> npt.NDArray[Any]:
    """Returns the memory of a variable as an array; variables on the CPU are not copied.

    Release the array before the variable is assigned to: until then the variable cannot be
    updated in place.
    """
    with tf.device(HOST):
        return np.asarray(variable.read_value())


def checksum(value: npt.NDArray[Any]) -> int:
    """Returns the checksum that TensorFlow would store for a value."""
    if value.dtype == object:
        return checksum_of_strings(value.reshape(-1).tolist())
    # The buffer protocol does not support every type of TensorFlow, but it supports bytes.
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    computed = 0
    for begin in range(0, data.size, _CHUNK_BYTES):
        computed = crc32c(data[begin : begin + _CHUNK_BYTES], computed)
    return computed


def _variables_by_key(root: Any, nodes: tuple[Node, ...]) -> dict[str, Any]:
    """Walks live objects and saved nodes in parallel; returns live variables by key."""
    view = tf.train.TrackableView(root)
    found: dict[str, Any] = {}
    seen = {0}
    waiting = deque([(root, 0)])
    while waiting:
        thing, number = waiting.popleft()
        key = nodes[number].checkpoint_key
        if key is not None and is_variable(thing):
            found[key] = thing
        children = view.children(thing)
        for name, child in nodes[number].children.items():
            if name in children and child not in seen:
                seen.add(child)
                waiting.append((children[name], child))
    return found


def describe_difference(key: str, variable: Any, index: Index) -> str:
    """Returns how shape or type of a stored tensor differ from a variable's; empty if equal."""
    raw, entry = raw_variable(variable), index.entries.get(key)
    if entry is None:
        return f"{key} is in the object graph and not in the index of the checkpoint"
    live = format_tensor(raw.dtype.name, raw.shape.as_list())
    saved = format_tensor(entry.dtype, entry.shape)
    return f"{key} is {saved} in the checkpoint and {live} in the model" if live != saved else ""


def _has_checksum(value: npt.NDArray[Any], index: Index, entry: TensorEntry) -> bool:
    """Whether a value in memory has the stored checksum, or that of each of its slices."""
    if not entry.slices:
        return checksum(value) == entry.crc32c
    return all(
        checksum(value[_slices_of(part)]) == index.parts[entry.name, part].crc32c
        for part in entry.slices
    )


def _slices_of(part: Slice) -> tuple[slice, ...]:
    return tuple(
        slice(None) if length == WHOLE else slice(start, start + length)
        for start, length in part.extents
    )
