"""Finds what prevents TensorFlow from saving the position of an input pipeline."""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import script_ops

from tfckpt_trainer.training.graphs.places import is_of_script
from tfckpt_trainer.training.graphs.stateful_operations import PYTHON, draws_random_numbers
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.state.variables import MutableTable

_STATELESS = (
    "Use tf.random.stateless_* or tf.image.stateless_random_* with a seed made from the index of "
    "the element, which `dataset.enumerate()` gives."
)
_INDEXED = (
    "Read elements by their index, as in `tf.data.Dataset.range(n).map(read)`, or from TFRecord "
    "files."
)
_STATIC = "Use a tf.lookup.StaticHashTable, or look it up in the step."
_CHANGING = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_HARMLESS = re.compile(
    r"Assert|CheckNumerics(V2)?|Print(V2)?|WriteFile"
    r"|Write\w*Summary|(Create|Flush|Close)?Summary(File)?Writer"
    r"|(Anonymous)?(HashTable|LookupTable(Find|Size|Export))(V2)?|TensorArray\w*"
    r"|(Range|Tensor|TensorSlice|Reduce|TFRecord|TextLine|FixedLengthRecord)Dataset(V2)?"
    r"|DatasetToSingleElement|If|While|Case|StatefulPartitionedCall"
)
"""Operations that TensorFlow calls stateful and that have no state of their own: what they return
depends on their inputs alone. Operations of the functions that they call are looked at too."""

_IN_MEMORY = (
    "Call `cache()` without a name, or keep its files where each start finds them, and start again "
    "only once it is complete."
)
_OF_SHUFFLE = "DummySeedGenerator"
"""The operation that TensorFlow gives to a `shuffle` within a function of a pipeline."""

_SHUFFLE_AROUND = "Shuffle before or after it, with a seed, in place of within its function."
_REMOVE = "Remove it from the input pipeline."
_TENSORFLOW = "Use operations of TensorFlow in its place."


@dataclass(frozen=True)
class Obstacle:
    """A part of an input pipeline whose state TensorFlow cannot save.

    Attributes:
        cause: What it is and where, as a noun phrase.
        remedy: What to change in the script, as a sentence.
        hides_position: Whether the position of the whole pipeline cannot be saved either.
        is_python: Whether it is a function of Python, which may have no state.
    """

    cause: str
    remedy: str
    hides_position: bool = False
    is_python: bool = False


_REPEAT_FIRST = (
    "Call `repeat()` directly after `shuffle(…)`, before `batch` and `prefetch`; `fit` then needs "
    "steps_per_epoch. Or pass reshuffle_each_iteration=False."
)
_SEED = "Pass a seed to {}, or call `keras.utils.set_random_seed(…)` before it."
_UNSEEDED = {
    "_ShuffleDataset": ("shuffle", _SEED.format("`shuffle`")),
    "_RandomDataset": ("Dataset.random", _SEED.format("it")),
}
REPEATED_BY_FIT = "repeated_by_fit"
"""Name of the `repeat` that the script does not have."""
_READ_AHEAD = frozenset({"_PrefetchDataset", "_ParallelMapDataset"})
_END_WITH_THEIR_INPUT = frozenset(
    {"_MapDataset", "_FilterDataset", "_FlatMapDataset", "_TakeDataset", "_SkipDataset"}
    | {"_ShardDataset", "_UnbatchDataset", "_AssertCardinalityDataset"}
)
"""Parts that keep the iterator of their input until they are asked for one element too many."""

_BATCHES = frozenset({"_BatchDataset", "_PaddedBatchDataset"})
_ANY_ORDER = Obstacle("deterministic=False", "Leave `deterministic` at True.")
_UNKNOWN_ORDER = Obstacle(
    "a parallel interleave of large arrays, whose order is not known",
    "Interleave names of files or indexes, as in `tf.data.Dataset.range(n).interleave(read, …)`.",
)
_LARGEST_GRAPH = 64 << 20
"""Bytes of tensors in a graph that is looked at. Its copies take memory and time."""

_FROM_GENERATOR = Obstacle("from_generator", _INDEXED, hides_position=True)
_PREFETCH_TO_DEVICE = Obstacle(
    "prefetch_to_device or copy_to_device",
    "Use `prefetch(tf.data.AUTOTUNE)` in its place.",
    hides_position=True,
)
_SNAPSHOT = Obstacle(
    "snapshot, which TensorFlow ends with an error once its position was saved",
    "Write the elements once with `dataset.save(DIR)`, and read them with "
    "`tf.data.Dataset.load(DIR)`.",
    hides_position=True,
)


class ReadsInPython:
    """Has methods that read elements in Python, and knows more of that code than TensorFlow does.

    Attributes:
        obstacle: What prevents that the same elements are read again; None if nothing does.
    """

    obstacle: Obstacle | None = None


@dataclass(frozen=True)
class _Transformation:
    """One function of a pipeline, such as that of a `map`.

    Attributes:
        name: The method of `tf.data.Dataset` that took it.
        layer: The class of the Keras layer that is the function; empty if it is none.
        place: File and line of the function; empty if it is not the user's.
        operations: Types of all operations in it, without those of `readers`.
        readers: The known Python code that it calls.
        changes: Whether it reads a table that training may change.
    """

    name: str
    layer: str
    place: str
    operations: frozenset[str]
    readers: tuple[ReadsInPython, ...]
    changes: bool


def find_obstacles(dataset: tf.data.Dataset, error: tf.errors.OpError) -> tuple[Obstacle, ...]:
    """Returns what prevents saving the position of an iterator of `dataset`.

    Nothing does if TensorFlow refuses because of operations without a state of their own.

    Args:
        dataset: The dataset.
        error: The error of TensorFlow's attempt; it names the first operation.
    """
    named = re.search(r"(\w+) (is stateful|does not)", str(error.message))
    operation = named[1] if named else ""
    obstacles = _obstacles_in(_parts(dataset), operation) + find_late_obstacles(dataset)
    is_harmless = _HARMLESS.fullmatch(operation) or (operation == "PyFunc" and _reads(dataset))
    if not obstacles and is_harmless and not _hides_functions(dataset):
        return ()
    unknown = f"the operation {operation}" if operation else str(error.message).splitlines()[0]
    other = Obstacle(PYTHON.get(operation, unknown), _REMOVE, is_python=operation in PYTHON)
    return tuple(dict.fromkeys(obstacles)) or (other,)


def find_late_obstacles(dataset: tf.data.Dataset) -> tuple[Obstacle, ...]:
    """Returns obstacles that a dry run does not notice.

    Those are below a `shuffle`, or in datasets that functions of a pipeline use, such as that of
    `flat_map`: their iterators exist only after the first element. Some random operations count
    as stateless.
    """
    return tuple(dict.fromkeys(_obstacles_in(_all_parts(dataset), "")))


def find_order_obstacles(dataset: tf.data.Dataset) -> tuple[Obstacle, ...]:
    """Returns what makes the order of the elements differ after a restore in a new process.

    A saved position has the seeds of the present epoch. Without a seed of the script, the seeds
    of the next one belong to the process.
    """
    parts = _parts(dataset)
    # What the script itself repeats is told so, although `fit` repeats all of it.
    repeats = sorted(filter(_repeats, parts), key=_is_of_fit)
    unseeded: dict[int, Obstacle] = {}
    for repeat in repeats:
        for part in filter(_is_unseeded, _parts(repeat)):
            unseeded.setdefault(id(part), _unseeded(part, repeat))
    obstacles = [
        *unseeded.values(),
        *(order for repeat in repeats for order in _lost_orders(repeat)),
    ]
    if dataset.options().deterministic is False:
        obstacles.append(_ANY_ORDER)
    obstacles += (order for part in _all_parts(dataset) for order in _any_order(part))
    return tuple(dict.fromkeys(obstacles))


def find_cache_obstacles(dataset: tf.data.Dataset) -> tuple[Obstacle, ...]:
    """Returns the caches of a pipeline in files, which the position of an iterator only names."""
    return tuple(
        Obstacle(f"cache({file!r}), of which a checkpoint holds no files", _IN_MEMORY)
        for file in file_caches(dataset)
    )


def file_caches(dataset: tf.data.Dataset) -> list[str]:
    """Returns the names of the caches of a pipeline in files."""
    names = [
        tf.get_static_value(part._filename)
        for part in _all_parts(dataset)
        if type(part).__name__ == "CacheDataset"
    ]
    return list(dict.fromkeys(os.fsdecode(name) for name in names if name))


def _any_order(part: Any) -> Iterator[Obstacle]:
    """Yields what lets a part, or an operation in its functions, return elements in any order."""
    graphs = [function.function.graph.as_graph_def() for function in part._functions()]
    if type(part).__name__ == "_ParallelInterleaveDataset":
        # Python does not keep how it was built.
        if sum(map(_held_bytes, _all_parts(part))) > _LARGEST_GRAPH:
            yield _UNKNOWN_ORDER
        else:
            graphs.append(_graph_of(part))
    operations = (operation for graph in graphs for operation in _operations(graph))
    any_order = (operation.attr["deterministic"].s == b"false" for operation in operations)
    if getattr(part, "_deterministic", None) == "false" or any(any_order):
        yield _ANY_ORDER


def _graph_of(dataset: Any) -> Any:
    """Returns a dataset as TensorFlow built it, with the values of its tensors."""
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    serialized = dataset._as_serialized_graph(external_state_policy=policy)
    return tf.compat.v1.GraphDef.FromString(serialized.numpy())


def _held_bytes(part: Any) -> int:
    """Returns the size of the numbers that a part and its functions hold, in bytes."""
    captured = (function.function.captured_inputs for function in part._functions())
    tensors = itertools.chain(getattr(part, "_tensors", ()), *captured)
    return sum((tensor.shape.num_elements() or 0) * (tensor.dtype.size or 0) for tensor in tensors)


def _reads(dataset: tf.data.Dataset) -> bool:
    """Whether a pipeline calls known Python code."""
    functions = [(part, function) for part in _parts(dataset) for function in part._functions()]
    return any(_transformation(*pair).readers for pair in functions)


def _hides_functions(dataset: tf.data.Dataset) -> bool:
    """Whether a part of a pipeline has functions that Python does not know."""
    return any(type(part).__name__ == "_VariantDataset" for part in _parts(dataset))


def _repeats(part: Any) -> bool:
    return type(part).__name__ == "_RepeatDataset" and int(part._count) != 1


def _is_of_fit(repeat: Any) -> bool:
    return getattr(repeat, "_name", None) == REPEATED_BY_FIT


def _unseeded(part: Any, repeat: Any) -> Obstacle:
    what, remedy = _UNSEEDED[type(part).__name__]
    if _is_of_fit(repeat):
        return Obstacle(f"a {what} without a seed, which `fit` repeats", remedy)
    return Obstacle(f"a repeated {what} without a seed", remedy)


def _lost_orders(repeat: Any) -> Iterator[Obstacle]:
    """Yields the parts because of which a position may lack the order of the next pass.

    TensorFlow saves the seeds of the next pass with the iterator of a `shuffle`. A part between
    it and `repeat` may destroy that iterator before the next pass begins: `batch` does when it
    returns a smaller last batch, and anything below a part that reads ahead. A position saved
    then has no seeds, and later passes have an order of other passes.
    """
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(inner, ()) for inner in repeat._inputs()]
    while waiting:
        part, above = waiting.pop()
        # A cache returns the order of the first pass in all passes.
        if _repeats(part) or type(part).__name__ == "CacheDataset":
            continue
        if type(part).__name__ == "_ShuffleDataset" and not _is_unseeded(part):
            early = _ends_early(above) if part._reshuffle_each_iteration else None
            if early is not None:
                name = _name_of(early)
                which = "the repeat of `fit`" if _is_of_fit(repeat) else "repeat"
                yield Obstacle(f"a shuffle that {name} separates from {which}", _REPEAT_FIRST)
        elif type(part).__name__ == "_OptionsDataset":
            waiting += [(inner, above) for inner in part._inputs()]
            continue
        waiting += [(inner, (*above, part)) for inner in part._inputs()]


def _ends_early(above: Sequence[Any]) -> Any | None:
    """Returns a part that may end its input before it is asked for an element after the last."""
    for part in above:
        kind = type(part).__name__
        is_full = kind in _BATCHES and (bool(part._drop_remainder) or _divides(part))
        if not is_full and kind not in _END_WITH_THEIR_INPUT | _READ_AHEAD:
            return part
    ahead = [part for part in above if type(part).__name__ in _READ_AHEAD]
    return ahead[0] if ahead and len(above) > 1 else None


def _divides(batch: Any) -> bool:
    """Whether all batches are known to have the same size."""
    (source,) = batch._inputs()
    elements = int(source.cardinality())
    return elements >= 0 and elements % int(batch._batch_size) == 0


def _is_unseeded(part: Any) -> bool:
    if type(part).__name__ not in _UNSEEDED:
        return False
    return not int(part._seed) and not int(part._seed2)


def _obstacles_in(parts: Iterable[Any], refused: str) -> tuple[Obstacle, ...]:
    obstacles: list[Obstacle] = []
    for part in parts:
        if type(part).__name__ == "_CopyToDeviceDataset":
            obstacles.append(_PREFETCH_TO_DEVICE)
        if type(part).__name__ == "_SnapshotDataset":
            obstacles.append(_SNAPSHOT)
        for function in part._functions():
            obstacle = _obstacle_in(_transformation(part, function), refused)
            obstacles += [obstacle] if obstacle is not None else []
    return tuple(obstacles)


def _parts(dataset: Any) -> list[Any]:
    """Returns the datasets that a dataset is made from, itself first, each once."""
    parts: dict[int, Any] = {}
    waiting = [dataset]
    while waiting:
        part = waiting.pop()
        if id(part) not in parts:
            parts[id(part)] = part
            waiting += part._inputs()
    return list(parts.values())


def _all_parts(dataset: Any) -> list[Any]:
    """Returns the parts of a dataset, and of those that its functions use, each once."""
    parts: dict[int, Any] = {}
    waiting = [dataset]
    while waiting:
        new = [part for part in _parts(waiting.pop()) if id(part) not in parts]
        parts.update((id(part), part) for part in new)
        waiting += (inner for part in new for inner in _captured(part))
    return list(parts.values())


def _captured(part: Any) -> Iterator[tf.data.Dataset]:
    """Yields the datasets that functions of a part use, as far as Python tells."""
    for function in part._functions():
        for thing in _used_by(_python_function(function)):
            if isinstance(thing, tf.data.Dataset):
                yield thing


def _used_by(python: Any) -> list[Any]:
    """Returns the variables around a function that it uses."""
    try:
        used = inspect.getclosurevars(python)
    except (TypeError, ValueError):
        # Not a function of Python, or one that uses a variable without a value.
        return []
    return [*used.nonlocals.values(), *used.globals.values()]


def _python_function(function: Any) -> Any:
    """Returns what the script passed, without `tf.function` and `functools.partial`."""
    python = function._func
    python = getattr(python, "python_function", python)
    return getattr(python, "func", python)


def _name_of(part: Any) -> str:
    return type(part).__module__.rpartition(".")[2].removesuffix("_op")


def _operations(graph: Any) -> list[Any]:
    inner = (node for function in graph.library.function for node in function.node_def)
    return [*graph.node, *inner]


def _reader(operation: Any) -> ReadsInPython | None:
    """Returns the known Python code that an operation calls."""
    if operation.op != "PyFunc":
        return None
    registered = script_ops._py_funcs.get(operation.attr["token"].s.decode())
    owner = getattr(getattr(registered, "__wrapped__", None), "__self__", None)
    return owner if isinstance(owner, ReadsInPython) else None


def _transformation(part: Any, function: Any) -> _Transformation:
    python, name = _python_function(function), _name_of(part)
    if getattr(python, "__qualname__", "").startswith("_filter_ds."):
        name = "rejection_resample"
    layer = type(python).__name__ if isinstance(python, keras.layers.Layer) else ""
    readers, others = list[ReadsInPython](), set[str]()
    for operation in _operations(function.function.graph.as_graph_def()):
        reader = _reader(operation)
        if reader is None:
            others.add(operation.op)
        else:
            readers.append(reader)
    looks_up = any(name.startswith("LookupTable") for name in others)
    # Looking for tables goes over all objects of the process.
    changes = looks_up and bool(_tables_of([function], MutableTable))
    return _Transformation(name, layer, _place(python), frozenset(others), tuple(readers), changes)


def static_tables(dataset: tf.data.Dataset) -> list[Any]:
    """Returns the lookup tables that a pipeline uses and that nothing can change, each once."""
    functions = [function for part in _all_parts(dataset) for function in part._functions()]
    return _tables_of(functions, tf.lookup.StaticHashTable)


def _tables_of(functions: Iterable[Any], base: type) -> list[Any]:
    """Returns the lookup tables of a kind that functions use, in the order of their use."""
    captured = (one for function in functions for one in function.function.captured_inputs)
    handles = {id(one): number for number, one in enumerate(captured) if one.dtype == tf.resource}
    if not handles:
        return []
    live = [thing for thing in gc.get_objects() if issubclass(type(thing), base)]
    tables = {handles.get(id(table.resource_handle)): table for table in live}
    return [tables[number] for number in sorted(number for number in tables if number is not None)]


def _place(python: Any) -> str:
    code = getattr(python, "__code__", None)
    if code is None or not is_of_script(code.co_filename):
        return ""
    return f"{Path(code.co_filename).name} line {code.co_firstlineno}"


def _obstacle_in(part: _Transformation, refused: str) -> Obstacle | None:
    """Returns the obstacle in one function, if there is one.

    Args:
        part: The function.
        refused: The operation that TensorFlow named; empty if it named none.
    """
    operations = part.operations
    for reader in part.readers:
        if reader.obstacle is not None:
            return reader.obstacle
    if "GeneratorDataset" in operations:
        return _FROM_GENERATOR
    if part.name == "rejection_resample" and _random(operations):
        remedy = "Sample with `tf.data.Dataset.sample_from_datasets` and a seed."
        return Obstacle("rejection_resample, which draws random numbers", remedy)
    kind, detail, remedy = _kind_of(operations)
    if not kind and part.changes:
        kind, remedy = "a table that can change", _STATIC
    if part.layer and kind:
        kind = f"the Keras layer {part.layer}"
    unsaved = _stateful(operations) if refused else []
    if not kind and unsaved:
        kind, remedy = f"the operation {unsaved[0]}", _REMOVE
        if unsaved[0] == _OF_SHUFFLE:
            kind, remedy = "a shuffle", _SHUFFLE_AROUND
    where = ", ".join(text for text in (detail, part.place) if text)
    if not kind:
        return None
    cause = f"{kind} in {part.name}" + f" ({where})" * bool(where)
    return Obstacle(cause, remedy, is_python=kind in PYTHON.values())


def _kind_of(operations: frozenset[str]) -> tuple[str, str, str]:
    """Returns what a function does that cannot be saved, the operation, and a remedy."""
    random = _random(operations)
    variables = operations & _CHANGING
    if any(name.startswith("Rng") for name in operations):
        return "a tf.random.Generator", "", _STATELESS
    if random:
        return "a random operation", random[0], _STATELESS
    if variables:
        remedy = f"Apply random Keras layers in the model. {_STATELESS}"
        return "a variable that changes, such as the seed of a Keras layer,", "", remedy
    if "ReadVariableOp" in operations:
        return "a variable", "", "Use a constant in place of the variable."
    for python in operations & PYTHON.keys():
        return PYTHON[python], "", _TENSORFLOW
    return "", "", ""


def _stateful(operations: frozenset[str]) -> list[str]:
    """Returns the operations that have a state of their own."""
    definitions = ((name, op_def_registry.get(name)) for name in operations)
    return sorted(
        name
        for name, definition in definitions
        if definition is not None and definition.is_stateful and not _HARMLESS.fullmatch(name)
    )


def _random(operations: frozenset[str]) -> list[str]:
    return sorted(filter(draws_random_numbers, operations))
