"""Checks an index against the data files and the object graph, without reading tensors.

Only names, sizes and the object graph are read, so this takes milliseconds.
"""

from __future__ import annotations

import math
import os
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, format_shape, format_tensor
from tfckpt_trainer.bundle.index import Index, TensorEntry, index_path, shard_path
from tfckpt_trainer.bundle.links import check_fetched, stat_inside
from tfckpt_trainer.bundle.object_graph import KEY, read_object_graph
from tfckpt_trainer.bundle.slices import WHOLE, Slice
from tfckpt_trainer.errors import BundleError
from tfckpt_trainer.words.clean_text import is_utf8

UNREADABLE, UNSUPPORTED = "unreadable", "unsupported"

_Edges = tuple[tuple[int, int], ...]
"""Start and end of a part of a tensor in each dimension."""


class Finding(msgspec.Struct, frozen=True):
    """A problem that a check found.

    Attributes:
        severity: An error prevents a correct restore; a warning does not.
        kind: A short name for scripts, such as `checksum` or `shard-missing`. `UNREADABLE` means
            that a file could not be read; its content may still be good. `UNSUPPORTED` means that
            it is sound, and that only other programs read it.
        tensor: The affected tensor, if any.
    """

    severity: Literal["error", "warning"]
    kind: str
    file: str
    tensor: str | None
    message: str


def structure_findings(
    prefix: Path, index: Index, beside: Iterable[str] | None = None
) -> list[Finding]:
    """Checks an index against the sizes of the data files, and its entries for consistency.

    Args:
        prefix: The checkpoint.
        index: Its index.
        beside: The names of all files that begin like its data files; by default, lists its
            directory.
    """
    paths = [shard_path(prefix, number, index.shard_count) for number in range(index.shard_count)]
    return [
        *_size_findings(paths, index),
        *_extra_findings(prefix, paths, beside),
        *_entry_findings(f"{prefix.name}.index", index),
    ]


def graph_findings(prefix: Path, index: Index) -> list[Finding]:
    """Checks that the index has every tensor that the object graph names.

    Raises:
        OSError: The data file with the object graph is missing or cannot be read.
    """
    if KEY not in index.entries:
        return []
    file = index_path(prefix).name
    try:
        nodes = read_object_graph(prefix, index)
    except BundleError as error:
        return [Finding("error", "object-graph", file, KEY, str(error))]
    names = sorted(index.entries)
    findings = []
    for node in nodes:
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            if key not in index.entries and not component_keys(key, names):
                message = f"the object graph names {key}, which is not in the index"
                findings.append(Finding("error", "object-graph", file, key, message))
    return findings


def component_keys(key: str, names: Sequence[str]) -> list[str]:
    """Returns the tensors of an attribute that is stored as several, such as `table-keys`.

    Args:
        key: The checkpoint key of the attribute.
        names: The names of all tensors, sorted (for binary search).
    """
    keys = []
    for start in (f"{key}-", f"{key}_"):
        place = bisect_left(names, start)
        while place < len(names) and names[place].startswith(start):
            keys.append(names[place])
            place += 1
    return keys


def _size_findings(paths: Sequence[Path], index: Index) -> Iterator[Finding]:
    for path, expected in zip(paths, index.shard_sizes(), strict=True):
        try:
            found = stat_inside(path)
            if found.st_size != expected:
                check_fetched(path)
        except OSError:
            found = None
        if found is None or not stat.S_ISREG(found.st_mode):
            # Reading the tensors reports the reason.
            continue
        size = found.st_size
        if size < expected:
            message = f"{path.name} has {size} bytes; expected {expected}"
            yield Finding("error", "shard-short", path.name, None, message)
        elif size > expected:
            message = f"{path.name} has {size - expected} bytes that no tensor uses"
            yield Finding("warning", "shard-long", path.name, None, message)


def _extra_findings(
    prefix: Path, paths: Sequence[Path], beside: Iterable[str] | None
) -> Iterator[Finding]:
    count, expected = len(paths), {path.name for path in paths}
    start = f"{prefix.name}.data-"
    try:
        listed = os.listdir(prefix.parent) if beside is None else beside
        names = sorted(name for name in listed if name.startswith(start))
    except OSError:
        return
    for name in names:
        if name not in expected:
            message = f"{name} does not belong to the checkpoint, which has {count} data files"
            yield Finding("warning", "shard-extra", name, None, message)


def _entry_findings(file: str, index: Index) -> Iterator[Finding]:
    stored = index.stored()
    # Thousands of tensors share a few types, shapes and sizes.
    kinds = {(entry.dtype, entry.shape, entry.size) for entry in stored}
    wrong = {kind: problem for kind in kinds if (problem := _problem_of_kind(*kind))}
    for entry in stored if wrong else ():
        problem = wrong.get((entry.dtype, entry.shape, entry.size))
        if problem is not None:
            yield Finding("error", problem[0], file, entry.name, f"{entry.name} {problem[1]}")
    yield from _name_findings(file, index)
    for entry in index.entries.values():
        of_slices = slice_problem(index, entry) if entry.slices else ""
        if of_slices:
            yield Finding("error", "slice", file, entry.name, f"{entry.name}: {of_slices}")


def _problem_of_kind(dtype: str, shape: tuple[int, ...], size: int) -> tuple[str, str] | None:
    """Returns what is wrong with tensors of this type, shape and size in bytes; None if nothing."""
    item = ITEM_SIZES.get(dtype)
    expected = None if item is None else item * math.prod(shape)
    if expected is not None and size != expected:
        return "size", f"has {size} bytes; expected {expected} for {format_tensor(dtype, shape)}"
    if dtype == "resource":
        return "dtype", "is a resource, which TensorFlow cannot restore"
    return None


def _name_findings(file: str, index: Index) -> Iterator[Finding]:
    for name in index.entries if not is_utf8("".join(index.entries)) else ():
        if not is_utf8(name):
            message = f"{name} is not UTF-8; tf.train.load_checkpoint cannot list the checkpoint"
            yield Finding("warning", "name", file, name, message)
    parts = {(entry.name, part) for entry in index.entries.values() for part in entry.slices}
    for name, part in index.parts:
        if (name, part) not in parts:
            message = f"{name}: no tensor has the part {_format_slice(part)}"
            yield Finding("warning", "slice-unused", file, name, message)


def slice_problem(index: Index, entry: TensorEntry) -> str:
    """Returns why the parts do not form the whole tensor; empty if they do."""
    elements = 0
    if len(set(entry.slices)) < len(entry.slices):
        return "a part is listed twice"
    for part in entry.slices:
        if part.is_whole:
            return "a part is the whole tensor"
        if len(part.extents) != len(entry.shape):
            return f"a part has {len(part.extents)} dimensions; expected {len(entry.shape)}"
        stored = index.parts.get((entry.name, part))
        if stored is None:
            return f"part {_format_slice(part)} is missing"
        if stored.dtype != entry.dtype or stored.slices:
            return f"part {_format_slice(part)} is not a plain tensor of type {entry.dtype}"
        lengths = []
        for (start, length), size in zip(part.extents, entry.shape, strict=True):
            length = size if length == WHOLE else length
            if start < 0 or start + length > size:
                return f"part {_format_slice(part)} reaches beyond the tensor"
            lengths.append(length)
        if stored.shape != tuple(lengths):
            expected = format_shape(lengths)
            return (
                f"part {_format_slice(part)} has shape {format_shape(stored.shape)}; "
                f"expected {expected}"
            )
        elements += math.prod(lengths)
    if elements != entry.element_count:
        return f"its parts have {elements} elements; expected {entry.element_count}"
    return "its parts overlap" if _overlap(entry) else ""


def _overlap(entry: TensorEntry) -> bool:
    """Whether two parts share an element. Sweeps along the dimension with the most cuts."""
    boxes = [_edges(part, entry.shape) for part in entry.slices]
    axes = range(len(entry.shape))
    axis = max(axes, key=lambda axis: len({box[axis] for box in boxes}), default=None)
    if axis is None:
        return len(boxes) > 1
    beside: list[_Edges] = []
    for box in sorted(boxes, key=lambda box: box[axis]):
        beside = [other for other in beside if other[axis][1] > box[axis][0]]
        if any(_share(box, other) for other in beside):
            return True
        beside.append(box)
    return False


def _edges(part: Slice, shape: tuple[int, ...]) -> _Edges:
    return tuple(
        (start, start + (size if length == WHOLE else length))
        for (start, length), size in zip(part.extents, shape, strict=True)
    )


def _share(edges: _Edges, other: _Edges) -> bool:
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(edges, other, strict=True))


def _format_slice(part: Slice) -> str:
    return "×".join(
        "all" if length == WHOLE else f"{start}:{start + length}" for start, length in part.extents
    )
