"""Renames, drops, casts and copies tensors of a checkpoint, into a new one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.analysis.tensor_names import (
    find_tensors,
    match_tensors,
    unknown_tensor,
)
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, format_tensor
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.object_graph import KEY, Node, tensors_of, unescaped
from tfckpt_trainer.bundle.structure import component_keys
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.bundle.writing.object_graph_builder import tensor_name, variable_path
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.tools.tensors.casting import CastLoss, can_be_cast, cast_chunks
from tfckpt_trainer.tools.tensors.graph_editor import GraphEditor
from tfckpt_trainer.words.counts import count


def find_named(variables: Sequence[Variable], path: str) -> list[Variable]:
    """Returns the variables at and below a path with names from Keras, without slot variables."""
    return [
        variable
        for variable in variables
        if variable.role is not Role.SLOT
        and variable.object_path
        and (variable.path == path or variable.path.startswith(f"{path}/"))
    ]


def find_attribute(variables: Sequence[Variable], named: Sequence[Variable], name: str) -> str:
    """Returns the path of the attribute with this name that holds exactly these variables.

    Args:
        variables: All variables of the checkpoint.
        named: Those to find.
        name: A name from Keras, such as `kernel`; the attribute may be `_kernel`.

    Returns:
        The path of the attribute; empty if no object of this name holds just these variables, such
        as a layer in a list.
    """
    wanted = {variable.entry.name for variable in named}
    path = named[0].object_path
    while path:
        held = {
            variable.entry.name
            for variable in variables
            if variable.object_path == path or variable.object_path.startswith(f"{path}/")
        }
        if not held <= wanted:
            return ""
        if held == wanted and unescaped(path.rpartition("/")[2]) in {name, f"_{name}"}:
            return path
        path = path.rpartition("/")[0]
    return ""


@dataclass(frozen=True)
class EditSource:
    """A checkpoint that tensors are taken from, with its variables."""

    prefix: Path
    index: Index
    variables: tuple[Variable, ...]


class EditedTensor(msgspec.Struct, frozen=True):
    """A tensor of the new checkpoint.

    Attributes:
        source: The checkpoint that it comes from.
        entry: The tensor there.
        dtype: Its new type.
    """

    source: EditSource
    entry: TensorEntry
    dtype: str

    @property
    def path(self) -> str:
        """Its path there, as `inspect` shows it."""
        paths = (
            variable.path
            for variable in self.source.variables
            if variable.entry.name == self.entry.name
        )
        return next(paths, self.entry.name)


class Edit:
    """A planned edit. All names are those before the edit.

    Call `copy`, `cast`, `drop` and `rename_all` in this order; `changes` says what they do.
    """

    def __init__(self, source: EditSource, nodes: tuple[Node, ...] | None) -> None:
        """Begins with everything as it is.

        Args:
            source: The checkpoint.
            nodes: Its object graph; None if it was saved by name.
        """
        self._source = source
        self._graph = None if nodes is None else GraphEditor(nodes)
        self._graph_changed = False
        self.tensors = {
            name: EditedTensor(source, entry, entry.dtype)
            for name, entry in tensors_of(source.index).items()
        }
        self.changes: list[str] = []
        # By the names of tensors before the edit: their names now, and the paths of variables.
        self._keys = {name: name for name in self.tensors}
        self._shown = {variable.entry.name: variable.path for variable in source.variables}

    @property
    def nodes(self) -> tuple[Node, ...] | None:
        """The new object graph; None if it did not change."""
        return self._graph.result() if self._graph is not None and self._graph_changed else None

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(
            ITEM_SIZES.get(tensor.entry.dtype, 0) * tensor.entry.element_count
            if tensor.entry.slices
            else tensor.entry.size
            for tensor in self.tensors.values()
        )

    def copy(self, other: EditSource, wanted: str, name: str) -> None:
        """Takes a tensor from another checkpoint.

        Raises:
            UsageError: The other checkpoint does not have it.
            RefusedError: There is a tensor of another type or shape, or no object to hold it.
        """
        taken = _exactly_one(other, wanted)
        entry, said = taken.entry, f"{taken.path} of {other.prefix.name}"
        own = find_tensors(self._source.variables, name)
        if own:
            old = own[0].entry
            if (old.dtype, old.shape) != (entry.dtype, entry.shape):
                raise RefusedError(
                    f"{said} is {format_tensor(entry.dtype, entry.shape)}; expected "
                    f"{format_tensor(old.dtype, old.shape)}, as {own[0].path} is."
                )
            self._take(old.name, own[0].path, EditedTensor(other, entry, entry.dtype))
            self.changes.append(f"{own[0].path} becomes {said}")
            return
        key = name
        if self._graph is not None:
            key = tensor_name(name)
            self._graph.add(variable_path(key), key)
            self._graph_changed = True
        self._take(key, name, EditedTensor(other, entry, entry.dtype))
        self.changes.append(f"{name} is added: {said}")

    def _take(self, key: str, shown: str, tensor: EditedTensor) -> None:
        taken = self.tensors.get(key)
        if taken is not None and taken.source is not self._source:
            raise UsageError(f"Two copies give {shown} its values. Give one.")
        self.tensors[key] = tensor

    def cast(self, pattern: str, dtype: str) -> None:
        """Changes the type of the tensors that match.

        Raises:
            UsageError: None matches, or the type is unknown.
            RefusedError: The values of one cannot be of this type.
        """
        if dtype not in ITEM_SIZES:
            raise UsageError(
                f"{dtype} is not a numeric TensorFlow type. Use a type such as float16."
            )
        for variable in self._matching(pattern):
            tensor = self.tensors[variable.entry.name]
            if not can_be_cast(tensor.entry.dtype, dtype):
                raise RefusedError(
                    f"{variable.path} is {tensor.entry.dtype} and cannot be cast to {dtype}. "
                    "Floating-point types can be cast only to floating-point types, integers only "
                    "to integers."
                )
            if tensor.entry.dtype != dtype:
                self.tensors[variable.entry.name] = replace(tensor, dtype=dtype)
                self.changes.append(f"{variable.path}: {tensor.entry.dtype} becomes {dtype}")

    def drop(self, pattern: str) -> None:
        """Leaves out the tensors that match.

        Raises:
            UsageError: None matches.
            RefusedError: None would be left, or one is part of a table that is kept.
        """
        keys = set()
        for variable in self._matching(pattern):
            keys.add(variable.entry.name)
            self.changes.append(f"{variable.path} is dropped")
        left = sorted(self.tensors.keys() - keys)
        if not left:
            raise RefusedError("No tensor would be left.")
        if self._graph is not None:
            self._graph.drop_tensors(keys | self._emptied(keys, left))
            self._graph_changed = True
        for key in keys:
            del self.tensors[key]

    def rename_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Gives variables, or objects with all below them, other paths or names, in this order.

        A name that a later pair gives up can be taken before, so that two can swap their names.

        Args:
            pairs: Old and new names.

        Raises:
            UsageError: There is nothing of a name.
            RefusedError: A new name is taken, or no object can hold it.
        """
        aside: dict[str, str] = {}
        for place, (old, new) in enumerate(pairs):
            target = variable_path(new)
            given_up = {variable_path(later) for later, _ in pairs[place + 1 :]}
            if target in given_up - {variable_path(old)} and self._has(target):
                aside[target] = f"{target}.aside"
                self._move(target, aside[target])
            self._rename(aside.pop(variable_path(old), old), new, shown=old)

    def _has(self, path: str) -> bool:
        if self._graph is not None:
            return self._graph.has(path)
        return any(name == path or name.startswith(f"{path}/") for name in self.tensors)

    def _rename(self, old: str, new: str, *, shown: str) -> None:
        shown = self._object_path(variable_path(shown))
        old, new = self._object_path(variable_path(old)), variable_path(new)
        if not new:
            raise UsageError(f"The new name of {old} is empty.")
        if new == old:
            raise UsageError(f"The new name of {old} is the same as the old one.")
        if self._graph is not None and not self._graph.has(old):
            self._rename_as_keras(old, new)
            return
        moved = self._move(old, new)
        # The tensors of a variable with several paths keep their names.
        what = f" ({count(moved, 'tensor')})" if moved else ""
        self.changes.append(f"{shown} becomes {new}{what}")

    def _move(self, old: str, new: str) -> int:
        """Moves an object or a name to another path; returns how many tensors get other names."""

        def renamed(name: str) -> str:
            inside = name == old or name.startswith(f"{old}/")
            return f"{new}{name.removeprefix(old)}" if inside else name

        if self._graph is not None:
            self._graph.move(old, new)
            self._graph.rename_tensors(renamed)
            self._graph_changed = True
        elif not self._has(old):
            raise unknown_tensor(self._source.prefix, self._source.variables, old)
        names = [renamed(name) for name in self.tensors]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise RefusedError(f"There is a tensor {twice[0]} already.")
        changed = {
            old_name: name
            for old_name, name in zip(self.tensors, names, strict=True)
            if old_name != name
        }
        self.tensors = dict(zip(names, self.tensors.values(), strict=True))
        self._keys = {entry_name: changed.get(key, key) for entry_name, key in self._keys.items()}
        return len(changed)

    def _rename_as_keras(self, old: str, new: str) -> None:
        """Gives variables that are known by names from Keras other such names."""
        assert self._graph is not None
        variables = self._left()
        named = find_named(variables, old)
        if not named:
            self._refuse_path(old)
        before, _, last = old.rpartition("/")
        if not before or new.rpartition("/")[0] != before:
            raise RefusedError(
                f"{old} is a name from Keras, and only its last part can be changed. "
                f"{named[0].path} is at {named[0].object_path}. To move it, rename that path, or "
                "an object above it."
            )
        paths = {
            variable.entry.name: f"{new}{variable.path.removeprefix(old)}" for variable in named
        }
        taken = {variable.path for variable in variables} & set(paths.values())
        if taken:
            raise RefusedError(f"There is a tensor {min(taken)} already.")
        child = f"{old.partition('/')[0]}/"
        self._graph.rename_variables(
            {self._keys[key]: path.removeprefix(child) for key, path in paths.items()}
        )
        self._graph_changed = True
        self._shown |= paths
        attribute = find_attribute(variables, named, last)
        if attribute and self._graph.has(attribute):
            holder, _, held = attribute.rpartition("/")
            wanted = new.rpartition("/")[2]
            target = f"{holder}/{'_' if held == f'_{last}' else ''}{wanted}"
            self._move(attribute, target)
            self.changes.append(f"{old} becomes {new}, held by {target} instead of {attribute}")
            return
        self.changes.append(f"{old} becomes {new}; the objects that hold it stay as they are")

    def _left(self) -> list[Variable]:
        """Returns the variables that were not dropped, with their paths after earlier renames."""
        return [
            replace(variable, path=self._shown[variable.entry.name])
            for variable in self._source.variables
            if self._keys.get(variable.entry.name) in self.tensors
        ]

    def _matching(self, pattern: str) -> list[Variable]:
        variables = [
            variable for variable in self._source.variables if variable.entry.name in self.tensors
        ]
        matches = match_tensors(variables, pattern)
        if not matches:
            raise unknown_tensor(self._source.prefix, self._source.variables, pattern)
        return matches

    def _emptied(self, keys: set[str], left: list[str]) -> set[str]:
        """Returns the attributes that are stored as several tensors of which none is left."""
        assert self._graph is not None
        attributes, names = self._graph.attribute_keys, sorted([*keys, *left])
        emptied = set()
        for key in sorted(keys - attributes):
            owners = {key.rpartition("-")[0], key.rpartition("_")[0]} & attributes
            for owner in owners:
                if not keys.issuperset(component_keys(owner, names)):
                    whole = shlex.quote(f"{owner}*")
                    raise RefusedError(f"{key} is one part of {owner}. Drop it all: --drop {whole}")
            emptied |= owners
        return emptied

    def _object_path(self, path: str) -> str:
        """Returns a path with the escapes of TensorFlow, if it lacks those of one variable."""
        for variable in self._source.variables:
            parts = variable.object_path.split("/")
            if variable.path == path == "/".join(map(unescaped, parts)):
                return variable.object_path
        return path

    def _refuse_path(self, path: str) -> NoReturn:
        """Raises an error about a path where no object is."""
        for variable in self._source.variables:
            if variable.path != path and not variable.path.startswith(f"{path}/"):
                continue
            if variable.role is not Role.SLOT:
                raise RefusedError(f"{variable.path} is dropped or renamed by the same edit.")
            raise RefusedError(
                f"{variable.path} is a slot variable, named after its variable: rename that. "
                f"It is held by {variable.object_path}."
            )
        raise unknown_tensor(
            self._source.prefix, self._source.variables, path, "object or variable"
        )


def write_edit(
    writer: BundleWriter, edit: Edit, source: EditSource, on_read: Callable[[int], None]
) -> int:
    """Writes the tensors of a planned edit, in bounded memory.

    Args:
        writer: The new checkpoint.
        edit: The plan.
        source: The checkpoint that is edited.
        on_read: Called after each chunk with its size in bytes.

    Returns:
        Number of finite elements that became infinite in a smaller type.

    Raises:
        RefusedError: An integer does not fit into its new type.
        BundleError: A tensor is damaged.
        OSError: A file cannot be read or written.
    """
    overflown = 0

    def note(loss: CastLoss) -> None:
        nonlocal overflown
        overflown += loss.overflown

    for name, tensor in edit.tensors.items():
        prefix, index = tensor.source.prefix, tensor.source.index
        if tensor.dtype == tensor.entry.dtype:
            writer.copy(prefix, index, tensor.entry, name=name, on_chunk=on_read)
        else:
            stored = row_major_chunks(prefix, index, tensor.entry)
            chunks = cast_chunks(tensor.path, stored, tensor.dtype, on_read, note)
            writer.add(name, tensor.dtype, tensor.entry.shape, chunks)
    if edit.nodes is not None:
        writer.add_object_graph(edit.nodes)
    elif KEY in source.index.entries:
        writer.copy(source.prefix, source.index, source.index.entries[KEY])
    return overflown


def _exactly_one(source: EditSource, wanted: str) -> Variable:
    matches = find_tensors(source.variables, wanted)
    if not matches:
        raise unknown_tensor(source.prefix, source.variables, wanted)
    return matches[0]
