"""What preprocessing layers were adapted to, and what static lookup tables hold.

A script makes these from its data before it trains, and no variable has them. If the data has
changed since, a restart makes others: a token then has the row of another one in an embedding.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.state.comparison import checksum
from tfckpt_trainer.training.state.variables import HOST

KEYS = ".adapted/"
"""What begins the names of these values in the file beside the shared state."""

LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup)
"""The layers that hold a vocabulary; `TextVectorization` holds one of them."""

COUNTING = (*LOOKUPS, keras.layers.TextVectorization)
"""The layers whose training needs nothing of what they count with while they adapt."""


@dataclass(frozen=True)
class AdaptedContents:
    """Values by name; none if the script has not made them yet."""

    values: Mapping[str, npt.NDArray[Any]]

    @cached_property
    def digest(self) -> int:
        """A checksum of all values."""
        sums = (checksum(value).to_bytes(4, "big") for value in self.values.values())
        return crc32c(b"".join(sums))


_of_tables: weakref.WeakKeyDictionary[Any, AdaptedContents] = weakref.WeakKeyDictionary()
"""What static tables hold. Nothing changes it."""


@dataclass(frozen=True)
class Adapted:
    """A layer or table with values that the script made.

    Attributes:
        path: Names of the attributes that lead to it.
        thing: The layer or table.
    """

    path: str
    thing: Any

    @property
    def contents(self) -> AdaptedContents:
        """Its present values."""
        raise NotImplementedError

    @property
    def table(self) -> Any:
        """The static table that holds them, if one does."""
        return None

    def obstacle(self, saved: AdaptedContents) -> str:
        """Returns why it cannot take other values now, as a clause; empty if it can."""
        return ""

    def assign(self, saved: AdaptedContents) -> None:
        """Gives it the values that were saved, if there is no obstacle."""
        raise NotImplementedError


class _Lookup(Adapted):
    @property
    def contents(self) -> AdaptedContents:
        tokens = _of_table(self.table, self._tokens)
        # Keras 2 computes with a copy of the variable that it made while it adapted.
        weights = getattr(self.thing, "idf_weights_const", None)
        if weights is None or not tokens.values:
            return tokens
        return AdaptedContents({**tokens.values, "idf_weights": np.asarray(weights)})

    @property
    def table(self) -> Any:
        return self.thing.lookup_table

    def _tokens(self, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> AdaptedContents:
        tokens, indices = (values, keys) if self.thing.invert else (keys, values)
        return AdaptedContents({"vocabulary": tokens[np.argsort(indices)]})

    def obstacle(self, saved: AdaptedContents) -> str:
        layer, sizes = self.thing, (len(saved.values["vocabulary"]), len(self._vocabulary))
        if layer.output_mode != "int" and not layer.pad_to_max_tokens and len(set(sizes)) > 1:
            return "the layers after it expect its size"
        if is_used(self.table.resource_handle):
            return "an input pipeline or a traced function uses it already"
        return ""

    @property
    def _vocabulary(self) -> npt.NDArray[Any]:
        return self.contents.values["vocabulary"]

    def assign(self, saved: AdaptedContents) -> None:
        layer, tokens = self.thing, saved.values["vocabulary"]
        if layer.output_mode == "tf_idf":
            weights, unknown = layer.idf_weights, [layer.oov_token] * layer.num_oov_indices
            texts = [t.decode() if isinstance(t, bytes) else t for t in tokens.tolist()]
            every = [*unknown, *texts]
            layer.set_vocabulary(every, weights.numpy()[: len(every)])
            # The layer made another variable. The checkpoint tracks this one.
            layer.idf_weights = weights
        else:
            layer.set_vocabulary(tf.constant(tokens))
        if layer.input_vocabulary is not None:
            # An exported model has it in its configuration.
            shown = layer.get_vocabulary(include_special_tokens=False)
            layer.input_vocabulary = np.asarray(shown).tolist()


class _Bins(Adapted):
    @property
    def contents(self) -> AdaptedContents:
        # Without any, Keras 3 has None, and Keras 2 an empty list.
        boundaries = self.thing.bin_boundaries
        return AdaptedContents({"bin_boundaries": np.asarray(boundaries)} if boundaries else {})

    def assign(self, saved: AdaptedContents) -> None:
        self.thing.bin_boundaries = saved.values["bin_boundaries"].tolist()


class _Statistics(Adapted):
    @property
    def contents(self) -> AdaptedContents:
        # A layer of Keras 2 has none before it is built.
        if getattr(self.thing, "mean", None) is None:
            return AdaptedContents({})
        with tf.device(HOST):
            return AdaptedContents(
                {name: np.asarray(getattr(self.thing, name)) for name in ("mean", "variance")}
            )

    def obstacle(self, saved: AdaptedContents) -> str:
        return "" if self.thing.input_mean is None else "the script gives it"

    def assign(self, saved: AdaptedContents) -> None:
        for name, value in saved.values.items():
            setattr(self.thing, name, tf.convert_to_tensor(value))


class FixedTable(Adapted):
    """A static lookup table, whose values nothing can change."""

    @property
    def contents(self) -> AdaptedContents:
        """What it holds."""
        return _of_table(self.table, _sorted)

    @property
    def table(self) -> Any:
        """The table."""
        return self.thing

    def obstacle(self, saved: AdaptedContents) -> str:
        """Says so."""
        return "nothing can change a static table"


_KINDS: tuple[tuple[Any, type[Adapted]], ...] = (
    (LOOKUPS, _Lookup),
    (keras.layers.Discretization, _Bins),
    (keras.layers.Normalization, _Statistics),
    (tf.lookup.StaticHashTable, FixedTable),
)


def find_adapted(things: Iterable[tuple[str, Any]]) -> tuple[Adapted, ...]:
    """Returns what was adapted among objects, which come with their paths."""
    named = list(things)
    of_layers = {id(thing.lookup_table) for _, thing in named if isinstance(thing, LOOKUPS)}
    return tuple(
        kind(path, thing)
        for path, thing in named
        for types, kind in _KINDS
        if isinstance(thing, types) and id(thing) not in of_layers
    )


def counters(things: Iterable[Any]) -> set[int]:
    """Returns the identities of that in which layers count while they adapt: tokens, and steps."""
    names = ("token_counts", "token_document_counts", "_steps_per_execution")
    layers = [thing for thing in things if isinstance(thing, COUNTING)]
    return {id(getattr(layer, name)) for layer in layers for name in names if hasattr(layer, name)}


def adapted_values(adapted: Iterable[Adapted]) -> dict[str, tf.Tensor]:
    """Returns the values of all, by their names in the file."""
    with tf.device(HOST):
        return {
            _key(one, name): tf.constant(value)
            for one in adapted
            for name, value in one.contents.values.items()
        }


def adapted_digests(adapted: Iterable[Adapted]) -> dict[str, int]:
    """Returns the checksums of all that have values, by path."""
    return {one.path: one.contents.digest for one in adapted if one.contents.values}


@dataclass(frozen=True)
class AdaptedComparison:
    """How what was adapted compares with a checkpoint.

    Attributes:
        changed: What has other values and can take the saved ones, with these.
        missing: Paths of what the checkpoint lacks.
        problems: A sentence for each that has other values and cannot take the saved ones.
    """

    changed: tuple[tuple[Adapted, AdaptedContents], ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def compare_adapted(
    adapted: Iterable[Adapted], digests: Mapping[str, int], prefix: Path | None
) -> AdaptedComparison:
    """Compares what was adapted with what a checkpoint holds; changes nothing.

    Args:
        adapted: The layers and tables.
        digests: The checksums that this worker saved; the values are those of the chief.
        prefix: The file with the values; None without one.
    """
    changed, missing, problems = [], list[str](), list[str]()
    for one in adapted:
        live, digest = one.contents, digests.get(one.path)
        if not live.values or digest == live.digest:
            continue
        saved = None if prefix is None else _stored(one, live, prefix)
        if saved is None and digest is None:
            missing.append(one.path)
        elif saved is None or digest not in (None, saved.digest):
            problems.append(f"{one.path} has other values than in the checkpoint. {_REMEDY}")
        elif saved.digest != live.digest:
            obstacle = one.obstacle(saved)
            if obstacle:
                problems.append(_problem(one, live, saved, obstacle, prefix))
            else:
                changed.append((one, saved))
    return AdaptedComparison(tuple(changed), tuple(missing), tuple(problems))


_REMEDY = "Make them from the data that training had"


def is_used(handle: Any) -> bool:
    """Whether a graph that was traced, such as that of an input pipeline, uses a table."""
    gc.collect()
    return any(
        captured is handle
        for graph in gc.get_objects()
        if issubclass(type(graph), FuncGraph)
        for captured, _ in graph.captures
    )


def _of_table(table: Any, contents: Callable[..., AdaptedContents]) -> AdaptedContents:
    if table not in _of_tables:
        if not int(table.size()):
            # The script may still fill it.
            return AdaptedContents({})
        _of_tables[table] = contents(*(part.numpy() for part in table.export()))
    return _of_tables[table]


def _sorted(keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> AdaptedContents:
    order = np.argsort(keys)
    # By their values, which are the identifiers of tokens in a vocabulary.
    order = order[np.argsort(values[order], kind="stable")]
    return AdaptedContents({"keys": keys[order], "values": values[order]})


def _stored(one: Adapted, live: AdaptedContents, prefix: Path) -> AdaptedContents | None:
    keys = {name: _key(one, name) for name in live.values}
    with opened_checkpoint(prefix) as opened:
        reader = tf.train.load_checkpoint(str(opened))
        if not all(map(reader.has_tensor, keys.values())):
            return None
        return AdaptedContents(
            {name: np.asarray(reader.get_tensor(key)) for name, key in keys.items()}
        )


def _key(one: Adapted, name: str) -> str:
    return f"{KEYS}{one.path}/{name}"


def _problem(
    one: Adapted, live: AdaptedContents, saved: AdaptedContents, obstacle: str, prefix: Path | None
) -> str:
    pairs = ((name, live.values[name], saved.values[name]) for name in live.values)
    name, here, there = next(pair for pair in pairs if not np.array_equal(*pair[1:]))
    stored = f"tf.train.load_checkpoint({str(prefix)!r}).get_tensor({_key(one, name)!r})"
    return (
        f"{one.path}/{name} {_difference(here, there)}, and {obstacle}. {_REMEDY}, or from {stored}"
    )


def _difference(live: npt.NDArray[Any], saved: npt.NDArray[Any]) -> str:
    """Returns how an array differs from the saved one, as a predicate."""
    if live.shape != saved.shape:
        return f"has {live.size:,} values, and {saved.size:,} in the checkpoint"
    place = int(np.argmax(live.reshape(-1) != saved.reshape(-1)))
    here, there = (_shown(array.reshape(-1)[place]) for array in (live, saved))
    return f"is {here} at {place}, and {there} in the checkpoint"


def _shown(value: Any) -> str:
    return repr(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)
