"""Finds the same variables in two checkpoints.

TensorFlow names a tensor after the first path to its variable. That path changes if the script
passes another object, such as the optimizer. TensorFlow therefore restores by the object graph: it
follows attributes of the same name, from the root object. So does this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.contents import Contents, SavedObjects
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.object_graph import KEY
from tfckpt_trainer.bundle.structure import component_keys


def has_same_graph(before: Index, after: Index) -> bool:
    """Whether the object graphs of two checkpoints are equal, and so the names of variables."""
    graphs = [index.entries.get(KEY) for index in (before, after)]
    checksums = [(graph.size, graph.crc32c) for graph in graphs if graph is not None]
    return len(checksums) == 2 and checksums[0] == checksums[1]


def find_counterparts(
    before: Contents, after: Contents, *, as_restored: bool = False
) -> dict[str, str]:
    """Returns the tensors that two checkpoints share, by their names in the first.

    Variables are matched by the object graph. The rest is matched by tensor name, then by the
    path that is shown: a checkpoint made from arrays has the names of layers as attributes.

    Args:
        before: The first checkpoint.
        after: The second checkpoint.
        as_restored: Whether to match only what TensorFlow restores, so not by shown path.

    Returns:
        Names of tensors in the second checkpoint, by those in the first.
    """
    if has_same_graph(before.index, after.index):
        return {name: name for name in before.index.entries if name in after.index.entries}
    counterparts = (
        {KEY: KEY} if all(KEY in contents.index.entries for contents in (before, after)) else {}
    )
    if before.nodes is not None and after.nodes is not None:
        _add(counterparts, _by_graph(before, after))
    _add(
        counterparts,
        ((entry, entry) for entry in before.index.entries if entry in after.index.entries),
    )
    if not as_restored:
        names = {variable.path: variable.entry.name for variable in after.variables}
        paths = [(variable.entry.name, names.get(variable.path)) for variable in before.variables]
        _add(counterparts, ((old, new) for old, new in paths if new is not None))
    return counterparts


def renamed_index(index: Index, names: Mapping[str, str]) -> Index:
    """Returns an index whose tensors have other names; they are read as before.

    Args:
        index: An index.
        names: New names by old ones. A tensor that is not listed keeps its name unless it is
            taken; then it gets one that is not.
    """
    taken, chosen = set(names.values()), dict(names)
    for name in index.entries.keys() - names.keys():
        free = name
        while free in taken:
            free += " (removed)"
        taken.add(free)
        chosen[name] = free
    if all(old == new for old, new in chosen.items()):
        return index
    return replace(
        index,
        entries={chosen[name]: _renamed(entry, chosen) for name, entry in index.entries.items()},
        parts={
            (chosen[name], part): _renamed(entry, chosen)
            for (name, part), entry in index.parts.items()
            if name in chosen
        },
    )


def _renamed(entry: TensorEntry, names: Mapping[str, str]) -> TensorEntry:
    return msgspec.structs.replace(entry, name=names.get(entry.name, entry.name))


def _add(counterparts: dict[str, str], pairs: Iterable[tuple[str, str]]) -> None:
    """Adds pairs of names that are both still free."""
    taken = set(counterparts.values())
    for old, new in pairs:
        if old not in counterparts and new not in taken:
            counterparts[old] = new
            taken.add(new)


def _by_graph(before: Contents, after: Contents) -> Iterator[tuple[str, str]]:
    sides = [SavedObjects(contents.nodes or ()) for contents in (before, after)]
    names = sorted(before.index.entries)
    for left, right in _same_objects(*sides).items():
        keys = {
            attribute.name: attribute.checkpoint_key
            for attribute in sides[1].nodes[right].attributes
        }
        for attribute in sides[0].nodes[left].attributes:
            old, new = attribute.checkpoint_key, keys.get(attribute.name)
            if new is None:
                continue
            own = [old] if old in before.index.entries else component_keys(old, names)
            for name in own:
                target = new + name.removeprefix(old)
                if target in after.index.entries:
                    yield name, target


def _same_objects(before: SavedObjects, after: SavedObjects) -> dict[int, int]:
    """Returns the nodes that are the same object, by their numbers in the first graph.

    An object is found outside optimizers first, as for its path: the lists of an optimizer are
    in another order if another variable is trained.
    """
    pairs, taken = {0: 0}, {0}

    def add(left: int, right: int) -> bool:
        if left in pairs or right in taken:
            return False
        pairs[left] = right
        taken.add(right)
        return True

    def walk(starts: Iterable[tuple[int, int]], enter: Callable[[int, int], bool]) -> None:
        waiting = deque(starts)
        while waiting:
            left, right = waiting.popleft()
            if enter(left, right):
                others = after.nodes[right].children
                for name, child in before.nodes[left].children.items():
                    if name in others and add(child, others[name]):
                        waiting.append((child, others[name]))

    walk(
        [(0, 0)],
        lambda left, right: left not in before.optimizers and right not in after.optimizers,
    )
    optimizers = [
        (optimizer, pairs[optimizer])
        for optimizer in sorted(before.optimizers)
        if optimizer in pairs
    ]
    slots = {(owner, of, name): slot for owner, slot, of, name in after.slots()}
    for owner, slot, of, name in before.slots():
        other = slots.get((pairs.get(owner, -1), pairs.get(of, -1), name))
        if other is not None:
            add(slot, other)
    walk(optimizers, lambda left, right: True)
    return pairs
