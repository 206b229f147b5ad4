"""Finds the variables of a checkpoint that a Keras file has too.

Keras 3 numbers the variables of each layer: trainable ones first, in the order in which the layer
made them. A file has the names of layers, and the attributes that lead to them. In a checkpoint,
the layers that a subclassed model makes have the name of the model alone, so attributes tell.
Older HDF5 files name variables as the program did. A checkpoint has both: the full names, and the
order in the object graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.analysis.contents import Contents, Role, SavedObjects, Variable

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Array

_OUTERMOST = 2
"""Outer groups that older files put around the full name of a variable."""


def find_keras_counterparts(arrays: Sequence[Array], contents: Contents) -> dict[str, str]:
    """Returns the variables that a file and a checkpoint share.

    Args:
        arrays: The tensors of the file.
        contents: The checkpoint.

    Returns:
        Paths in the checkpoint, by the names in the file.
    """
    paths = {variable.path for variable in contents.variables}
    full_names = _unique((variable.full_name, variable.path) for variable in contents.variables)
    counterparts = {}
    for array in arrays:
        candidates = (full_names[name] for name in _inner_names(array.name) if name in full_names)
        path = array.name if array.name in paths else next(candidates, "")
        if path:
            counterparts[array.name] = path
    for by_attributes in (False, True):
        rest = [array for array in arrays if array.name not in counterparts]
        counterparts |= _by_layer(
            rest, contents, set(counterparts.values()), by_attributes=by_attributes
        )
    return counterparts


def _inner_names(name: str) -> Iterator[str]:
    parts = name.removesuffix(":0").split("/")
    for cut in range(_OUTERMOST + 1):
        yield "/".join(parts[cut:])


def _unique(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    entries = list(pairs)
    counts = Counter(name for name, _ in entries)
    return {name: path for name, path in entries if name and counts[name] == 1}


def _by_layer(
    arrays: Iterable[Array], contents: Contents, matched_paths: Set[str], *, by_attributes: bool
) -> dict[str, str]:
    """Matches the layers whose names end alike and whose variables have the same shapes."""
    files: dict[str, list[Array]] = {}
    for array in arrays:
        owner = array.name.rpartition("/vars/")[0] if by_attributes else array.owner
        if owner:
            files.setdefault(owner, []).append(array)
    # The lists of an optimizer can hold the variables of one layer again.
    layers = {
        tuple(variable.path for variable in own): (_attributes(own) if by_attributes else name, own)
        for name, own in _layers(contents)
        if matched_paths.isdisjoint(variable.path for variable in own)
    }
    pairs = []
    for owner, own in files.items():
        shapes = [array.shape for array in own]
        fitting = [
            (name, variables)
            for name, variables in layers.values()
            if _ends_alike(owner, name)
            and [variable.entry.shape for variable in variables] == shapes
        ]
        exact = [layer for layer in fitting if layer[0] == owner] or fitting
        if len(exact) == 1:
            pairs.append((own, exact[0][1]))
    taken = Counter(variables[0].path for _, variables in pairs)
    return {
        array.name: variable.path
        for own, variables in pairs
        if taken[variables[0].path] == 1
        for array, variable in zip(own, variables, strict=True)
    }


def _ends_alike(name: str, other: str) -> bool:
    return f"/{name}".endswith(f"/{other}") or f"/{other}".endswith(f"/{name}")


def _attributes(variables: Iterable[Variable]) -> str:
    """Returns the attributes that lead to the layer of these variables; empty if they differ."""
    parents = {variable.object_path.rpartition("/")[0] for variable in variables}
    return parents.pop() if len(parents) == 1 else ""


def _layers(contents: Contents) -> Iterator[tuple[str, list[Variable]]]:
    """Yields the name of each layer and optimizer, and its variables in the order of Keras."""
    if contents.nodes is None:
        return
    objects = SavedObjects(contents.nodes)
    by_key = {variable.entry.name: variable for variable in contents.variables}
    trained: set[int] = set()
    for number in sorted(objects.optimizers):
        children = objects.nodes[number].children
        trained.update(objects.elements(children.get("_trainable_variables")))
        own = list(_known(objects, objects.elements(children.get("_variables")), by_key))
        if own:
            yield own[0].full_name.rpartition("/")[0], own
    for node in objects.nodes:
        inside = sorted(node.children.values(), key=lambda child: child not in trained)
        held: dict[str, list[Variable]] = {}
        for variable in _known(objects, inside, by_key):
            layer = variable.full_name.rpartition("/")[0]
            if variable.role is Role.WEIGHT and layer:
                held.setdefault(layer, []).append(variable)
        # The lists of an optimizer or a model hold the variables of several layers.
        if len(held) == 1:
            yield from held.items()


def _known(
    objects: SavedObjects, numbers: Iterable[int], by_key: Mapping[str, Variable]
) -> Iterator[Variable]:
    for number in dict.fromkeys(numbers):
        key = objects.nodes[number].checkpoint_key
        if key is not None and key in by_key:
            yield by_key[key]
