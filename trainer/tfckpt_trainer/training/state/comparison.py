"""Compares live variables with a checkpoint: names, shapes and types first, values afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.index import Index, TensorEntry, read_index
from tfckpt_trainer.bundle.object_graph import Node, read_object_graph, tensors_of
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.bundle.slices import WHOLE, Slice
from tfckpt_trainer.bundle.tensor_checksums import checksum_of_strings
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.training.state.device_checksums import DeviceChecksums
from tfckpt_trainer.training.state.optimizer_changes import (
    TRAINED,
    OptimizerChange,
    find_optimizer_changes,
)
from tfckpt_trainer.training.state.remote_rows import RemoteRows, is_remote
from tfckpt_trainer.training.state.variables import (
    HOST,
    ReplicaRule,
    components,
    has_slots,
    has_value_outside_variables,
    is_partitioned,
    is_variable,
    live_objects,
    live_variables,
    raw_variable,
    rule_of,
    slot_of,
    slot_path,
    variable_name,
)
from tfckpt_trainer.words.counts import few_of

SHOWN_PATHS = 3
"""How many tensors of an object are named that are missing or extra."""

_SLOT = "/_variables/"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_MISSING = "{} {} missing in the checkpoint"
_EXTRA = "{} {} in the checkpoint and not in the model"

_CHUNK_BYTES = 64 << 20
"""Bytes per checksum call, during which no other thread of Python runs."""


_Place = tuple[int, int]
"""Address and size of an array in memory, in bytes."""


@dataclass(frozen=True)
class VariableMatch:
    """A live variable and the key of its tensor in a checkpoint."""

    key: str
    variable: tf.Variable


@dataclass(frozen=True)
class StateComparison:
    """How a checkpoint fits the live objects.

    Attributes:
        matched: Variables with their tensors.
        missing: Paths of live variables, tables and iterators that are not in the checkpoint.
        extra: Keys of tensors that belong to no live variable.
        different: A sentence for each tensor of another shape or type, by its key.
        optimizers: Optimizers that are not those of the checkpoint.
        titles: What users call the missing and extra ones that have a number as their name.
        is_whole: Whether the checkpoint has numbers for the matched variables, and nothing else.
    """

    matched: tuple[VariableMatch, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    different: Mapping[str, str]
    optimizers: tuple[OptimizerChange, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False

    @property
    def problems(self) -> list[str]:
        """A sentence for each tensor that does not fit; empty if the checkpoint fits."""
        return [
            *(_MISSING.format(path, "is") for path in self.missing),
            *(_EXTRA.format(key, "is") for key in self.extra),
            *self.different.values(),
        ]

    @property
    def summary(self) -> list[str]:
        """The same in fewer sentences: what changed, and the tensors of each object together."""
        left, changes = self, []
        for change in self.optimizers:
            before = len(left.problems)
            left = left._without(f"{change.path}/")
            count = before - len(left.problems)
            changes += [f"{change.words}, so {count} of its variables do not fit"] if count else []
        return [
            *changes,
            # Those of the model explain those of its optimizer.
            *(left.different[key] for key in sorted(left.different, key=lambda k: _SLOT in k)),
            *left._grouped(left.missing, _MISSING),
            *left._grouped(left.extra, _EXTRA),
        ]

    def _without(self, beginning: str) -> StateComparison:
        """Returns the comparison without the differences below a path."""

        def rest(keys: Iterable[str]) -> tuple[str, ...]:
            return tuple(key for key in keys if not key.startswith(beginning))

        return replace(
            self,
            missing=rest(self.missing),
            extra=rest(self.extra),
            different={key: self.different[key] for key in rest(self.different)},
        )

    def _grouped(self, paths: Iterable[str], sentence: str) -> Iterator[str]:
        """Yields a sentence for the tensors of each object that was passed."""
        of_object: dict[str, list[str]] = {}
        for path in paths:
            shown = self.titles.get(path, path.removesuffix(_SUFFIX))
            of_object.setdefault(path.partition("/")[0], []).append(shown)
        for titles in of_object.values():
            names = few_of(titles, SHOWN_PATHS)
            yield sentence.format(names, "is" if len(titles) == 1 else "are")


def compare(root: tf.train.Checkpoint, prefix: Path, index: Index | None = None) -> StateComparison:
    """Compares the object graph of a checkpoint with live objects, as a restore would match them.

    Args:
        root: Tracks the live objects.
        prefix: Prefix of the checkpoint.
        index: Its index, if already read.

    Raises:
        BundleError: The checkpoint is damaged.
        FileNotFoundError: There is no checkpoint at `prefix`.
    """
    index = index if index is not None else read_index(prefix)
    return compare_graph(root, index, read_object_graph(prefix, index))


def compare_graph(root: Any, index: Index, nodes: tuple[Node, ...]) -> StateComparison:
    """Compares an object graph that was read before with live objects, as `compare` does."""
    live = {_identity(variable): (path, variable) for path, variable in live_variables(root)}
    pairs = list(_pairs(root, nodes))
    paired = {id(thing) for _, thing, _ in pairs}
    others = (
        path for path, thing in live_objects(root) if id(thing) not in paired and _is_other(thing)
    )
    variables = {
        key: thing
        for _, thing, node in pairs
        if (key := node.checkpoint_key) is not None and is_variable(thing)
    }
    optimizers = tuple(find_optimizer_changes(pairs, nodes))
    misfits = {key: optimizer for optimizer in optimizers for key in optimizer.misfits}
    matched, different = [], {}
    for key, variable in variables.items():
        difference = describe_difference(key, variable, index)
        if key in misfits and not difference:
            difference = f"{key} has another meaning, because {misfits[key].words}"
        if difference:
            different[key] = difference
        else:
            matched.append(VariableMatch(key, variable))
    taken = {_identity(variable) for variable in variables.values()}
    saved_nodes = {node.checkpoint_key: node for node in nodes if node.checkpoint_key is not None}
    saved_titles = {key: node.full_name for key, node in saved_nodes.items() if _is_numbered(key)}
    live_titles = {path: variable_name(v) for path, v in live.values() if _is_numbered(path)}
    return StateComparison(
        matched=tuple(matched),
        missing=(
            *(path for identity, (path, _) in live.items() if identity not in taken),
            *others,
        ),
        extra=tuple(sorted(set(saved_nodes) - set(variables))),
        different=different,
        optimizers=optimizers,
        titles=saved_titles | live_titles,
        is_whole=_is_whole(index, nodes, {match.key for match in matched}),
    )


def _identity(variable: Any) -> tuple[int, ...]:
    """Returns what is the same for two objects that hold the same partitions.

    Legacy optimizers of Keras 2 make a new object each time they are asked for a slot variable.
    """
    return tuple(map(id, components(variable))) if is_partitioned(variable) else (id(variable),)


def _is_other(thing: Any) -> bool:
    return not is_variable(thing) and has_value_outside_variables(thing)


def _is_whole(index: Index, nodes: Iterable[Node], matched: Collection[str]) -> bool:
    """Whether all that a checkpoint holds are numbers of variables that matched."""
    named = {attribute.checkpoint_key for node in nodes for attribute in node.attributes}
    tensors = tensors_of(index)
    return (
        named == matched == tensors.keys()
        and not index.parts
        and all(is_numeric(entry) for entry in tensors.values())
    )


def wrong_values(
    matches: Iterable[VariableMatch],
    prefix: Path,
    ignored: Collection[int] = (),
    *,
    index: Index | None = None,
    values: Sequence[tf.Tensor] | None = None,
) -> list[str]:
    """Compares variables in memory with the checksums that a checkpoint stores for them.

    Args:
        matches: The variables; each is compared on all replicas of this worker.
        prefix: Prefix of the checkpoint.
        ignored: Identities of variables that differ between workers by design.
        index: Its index, if already read.
        values: What `stored_values` returned for `matches`, if they were assigned. TensorFlow has
            compared the checksums of this memory, and does not write to it while it is held here.
            So a variable that is in the same memory has the stored value.

    Returns:
        Keys of the variables whose value in memory differs from the checkpoint.
    """
    index = index if index is not None else read_index(prefix)
    devices = DeviceChecksums()
    places = repeat(None) if values is None else (_place(np.asarray(value)) for value in values)
    return [
        match.key
        for match, place in zip(matches, places, strict=False)
        if id(raw_variable(match.variable)) not in ignored
        and not _is_equal(match, prefix, index, devices, place)
    ]


def share_of(variable: Any, value: tf.Tensor) -> tf.Tensor:
    """Returns the part of a stored value that a restore gives to each replica.

    TensorFlow divides the value of an on-read sum, so that its sum is the stored value again.
    """
    if rule_of(variable) is not ReplicaRule.ON_READ_SUM:
        return value
    raw = raw_variable(variable)
    replicas = raw.distribute_strategy.num_replicas_in_sync
    with tf.device(HOST):
        return value if replicas == 1 else tf.cast(value / replicas, raw.dtype)


def _is_equal(
    match: VariableMatch,
    prefix: Path,
    index: Index,
    devices: DeviceChecksums,
    compared: _Place | None,
) -> bool:
    """Whether all replicas of this worker have what the restore of a tensor gives them.

    Args:
        match: The variable.
        prefix: Prefix of the checkpoint.
        index: Its index.
        devices: Compares the replicas.
        compared: Memory that has the checksum of the tensor, and that nothing writes to.
    """
    entry = index.entries[match.key]
    if is_remote(match.variable):
        return _have_checksums(RemoteRows(match.variable), index, entry)
    replicas = components(match.variable)
    # Those that are equal to the first need not be copied to main memory.
    copied = replicas[:1] if devices.are_equal(match.variable) else replicas
    memories = (memory_of(replica) for replica in copied)
    if rule_of(match.variable) is not ReplicaRule.ON_READ_SUM:
        return all(
            _place(memory) == compared or _has_checksum(memory, index, entry) for memory in memories
        )
    (value,) = stored_values(prefix, [match])
    share = checksum(share_of(match.variable, value).numpy())
    return all(checksum(memory) == share for memory in memories)


def stored_values(prefix: Path, matches: Sequence[VariableMatch]) -> list[tf.Tensor]:
    """Reads the tensors of variables into main memory, and compares their checksums there.

    Raises:
        tf.errors.OpError: They cannot be read, or do not match their checksums.
        BundleError: The index is damaged.
        OSError: A file cannot be opened, or is none.
    """
    if not matches:
        return []
    with opened_checkpoint(prefix) as opened:
        return _read(opened, matches)


def each_stored_value(prefix: Path, matches: Iterable[VariableMatch]) -> Iterator[tf.Tensor]:
    """Reads the tensors of variables as `stored_values` does, one after another."""
    with opened_checkpoint(prefix) as opened:
        for match in matches:
            yield from _read(opened, [match])


def _read(opened: Path, matches: Sequence[VariableMatch]) -> list[tf.Tensor]:
    with tf.device(HOST):
        values: list[tf.Tensor] = tf.raw_ops.RestoreV2(
            prefix=str(opened),
            tensor_names=[match.key for match in matches],
            shape_and_slices=[""] * len(matches),
            dtypes=[raw_variable(match.variable).dtype for match in matches],
        )
    return values


def assign_values(matches: Iterable[VariableMatch], values: Iterable[tf.Tensor]) -> None:
    """Gives variables their stored values in place, on every replica of this worker."""
    for match, value in zip(matches, values, strict=True):
        share = share_of(match.variable, value)
        for component in components(match.variable):
            component.assign(share)


def _place(memory: npt.NDArray[Any]) -> _Place:
    return memory.ctypes.data, memory.nbytes


def memory_of(variable: Any) -> npt.NDArray[Any]:
    """Returns the memory of a variable as an array; variables on the CPU are not copied.

    Release the array before the variable is assigned to: until then the variable cannot be
    updated in place.
    """
    with tf.device(HOST):
        return np.asarray(variable.read_value())


def checksum(value: npt.NDArray[Any], before: int = 0) -> int:
    """Returns the checksum that TensorFlow would store for a value.

    Args:
        value: The value.
        before: The checksum of the numbers that come before it, if there are any.
    """
    if value.dtype == object:
        return checksum_of_strings(value.reshape(-1).tolist())
    # The buffer protocol does not support every type of TensorFlow, but it supports bytes.
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    computed = before
    for begin in range(0, data.size, _CHUNK_BYTES):
        computed = crc32c(data[begin : begin + _CHUNK_BYTES], computed)
    return computed


def _is_numbered(path: str) -> bool:
    """Whether Keras numbers a variable, so that its path does not tell what it is."""
    return _SLOT in path or f"/{TRAINED}/" in path


def _pairs(root: Any, nodes: tuple[Node, ...]) -> Iterator[tuple[str, Any, Node]]:
    """Walks live objects and saved nodes in parallel; yields path, object and node."""
    view = tf.train.TrackableView(root)
    seen = {0}
    waiting = deque([("", root, 0)])
    # An optimizer numbers what it trains. Which variable of the model that is, the model tells.
    numbered: deque[tuple[str, Any, int]] = deque()
    found: dict[int, tuple[str, Any]] = {}
    while waiting or numbered:
        path, thing, number = (waiting or numbered).popleft()
        found[number] = path, thing
        yield path, thing, nodes[number]
        children = view.children(thing)
        for name, child in nodes[number].children.items():
            if name in children and child not in seen:
                seen.add(child)
                place = numbered if name == TRAINED else waiting
                place.append((f"{path}/{name}" if path else name, children[name], child))
    for number, (owner, optimizer) in found.items():
        for saved in nodes[number].slot_variables if has_slots(optimizer) else ():
            path, variable = found.get(saved.variable_node, ("", None))
            slot = slot_of(optimizer, variable, saved.slot_name)
            if slot is not None:
                yield slot_path(path, owner, saved.slot_name), slot, nodes[saved.slot_node]


def describe_difference(key: str, variable: Any, index: Index) -> str:
    """Returns how shape or type of a stored tensor differ from a variable's; empty if equal."""
    raw, entry = raw_variable(variable), index.entries.get(key)
    if entry is None:
        return f"{key} is in the object graph and not in the index of the checkpoint"
    # A variable may leave lengths open, or all of its shape.
    if raw.dtype.name == entry.dtype and raw.shape.is_compatible_with(entry.shape):
        return ""
    shape = entry.shape if raw.shape.rank is None else raw.shape.as_list()
    live = format_tensor(raw.dtype.name, shape)
    saved = format_tensor(entry.dtype, entry.shape)
    shown = variable_name(variable) if _is_numbered(key) else key.removesuffix(_SUFFIX)
    return f"{shown} is {saved} in the checkpoint and {live} in the model"


def _has_checksum(value: npt.NDArray[Any], index: Index, entry: TensorEntry) -> bool:
    """Whether a value in memory has the stored checksum, or that of each of its slices."""
    if not entry.slices:
        return checksum(value) == entry.crc32c
    return all(
        checksum(value[_slices_of(part)]) == index.parts[entry.name, part].crc32c
        for part in entry.slices
    )


def _have_checksums(rows: RemoteRows, index: Index, entry: TensorEntry) -> bool:
    """Whether the rows of a value have the stored checksums; few are in this process at a time."""
    all_rows = 0, entry.shape[0] if entry.shape else 1
    stored = {_rows_of(part, entry): index.parts[entry.name, part] for part in entry.slices}
    for of_part, part in (stored or {all_rows: entry}).items():
        if of_part is None or entry.dtype == "string":
            return _has_checksum(rows.whole(), index, entry)
        computed = reduce(lambda before, block: checksum(block, before), rows.blocks(*of_part), 0)
        if computed != part.crc32c:
            return False
    return True


def _rows_of(part: Slice, entry: TensorEntry) -> tuple[int, int] | None:
    """Returns the rows of a part, from the first to before the second; None if some are cut."""
    (start, length), *others = part.extents
    if any(
        begin or wide not in {WHOLE, size}
        for (begin, wide), size in zip(others, entry.shape[1:], strict=True)
    ):
        return None
    return start, entry.shape[0] if length == WHOLE else start + length


def _slices_of(part: Slice) -> tuple[slice, ...]:
    return tuple(
        slice(None) if length == WHOLE else slice(start, start + length)
        for start, length in part.extents
    )
