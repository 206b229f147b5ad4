"""What a checkpoint holds: the state all workers share, and what each worker has alone.

The shared state is a plain `tf.train.Checkpoint(model=…, optimizer=…, step=…)`; nothing else
is in it, so any program can restore it without this library. What TensorFlow leaves out or
cannot share goes into a file of each worker: the position of its input, and every variable of
the model that is updated without the others (Dropout's seeds, which Keras does not track, and
the moving statistics of an unsynchronised batch normalisation), one value for each replica.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.bundle.object_graph import Node, read_object_graph
from tfckpt_trainer.rundir.documents import SealedDocument, load, store
from tfckpt_trainer.training.checkpoint.variables import (
    byte_size,
    components,
    is_read_by_all,
    is_variable,
    live_variables,
    raw_variable,
)
from tfckpt_trainer.training.loop.iterators import renew_all


@dataclass(frozen=True)
class Match:
    """A live variable and the tensor of a checkpoint that belongs to it."""

    key: str
    variable: tf.Variable


@dataclass(frozen=True)
class Comparison:
    """How a checkpoint fits the live objects.

    Attributes:
        matched: Variables with their tensors.
        missing: Paths of live variables that the checkpoint does not have.
        extra: Tensors of the checkpoint that no live variable takes.
        different: Tensors of another shape or type, with both.
    """

    matched: tuple[Match, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """One sentence for each thing that does not fit; empty if all does."""
        return [
            *(f"{path} is missing in the checkpoint" for path in self.missing),
            *(f"{key} is in the checkpoint and not in the model" for key in self.extra),
            *self.different,
        ]


class RandomState(SealedDocument, frozen=True, kw_only=True):
    """The state of the random generators of Python and NumPy in one worker."""

    python: list[Any]
    numpy: list[Any]


class SharedState:
    """Model, optimizer, step and what else the person named: equal on all workers."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        extra: Mapping[str, Any],
    ) -> None:
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        objects = {"model": model, "optimizer": optimizer, **extra}
        self.checkpoint = tf.train.Checkpoint(
            step=self._step, **{name: value for name, value in objects.items() if value is not None}
        )
        # Created here, on all workers: created by the first save it would need a collective.
        self._counter = self.checkpoint.save_counter
        self.contents = [*(name for name, value in objects.items() if value is not None), "step"]

    @property
    def step(self) -> int:
        """The step as restored or last set."""
        return int(self._step.numpy())

    @property
    def size(self) -> int:
        """Bytes that the variables take in a checkpoint."""
        return sum(byte_size(variable) for _, variable in live_variables(self.checkpoint))

    @property
    def needs_all_workers(self) -> bool:
        """Whether reading it is a collective: some variable is synchronised on read."""
        return any(is_read_by_all(variable) for _, variable in live_variables(self.checkpoint))

    def arrive(self, step: int) -> None:
        """Makes what is saved next the state of `step`."""
        self._step.assign(step)
        self._counter.assign_add(1)

    def write(self, prefix: Path) -> None:
        """Writes the state under `prefix`."""
        self.checkpoint.write(str(prefix))

    def compare(self, prefix: Path) -> Comparison:
        """Compares the checkpoint at `prefix` with the live objects; touches nothing."""
        return compare(self.checkpoint, prefix)

    def read(self, prefix: Path) -> None:
        """Restores the state in place, on every replica of this worker."""
        renew_all(self.checkpoint)
        self.checkpoint.read(str(prefix)).assert_existing_objects_matched()

    def read_only(self, prefix: Path, matches: Iterable[Match]) -> None:
        """Restores these variables in place, and leaves all others as they are."""
        for match in matches:
            raw = raw_variable(match.variable)
            (value,) = tf.raw_ops.RestoreV2(
                prefix=str(prefix),
                tensor_names=[match.key],
                shape_and_slices=[""],
                dtypes=[raw.dtype],
            )
            raw.assign(value)


class WorkerState:
    """What only this worker has: input position, unsynchronised variables, random state."""

    def __init__(self, model: Any, iterator: Any, extra: Mapping[str, Any]) -> None:
        self._variables = [v for v in getattr(model, "variables", []) if not v.trainable]
        replica_values = [list(components(variable)) for variable in self._variables]
        objects = {"input": iterator, "replica_values": replica_values, **extra}
        self._checkpoint = tf.train.Checkpoint(
            **{name: value for name, value in objects.items() if value is not None}
        )
        self.contents = [
            *(["input position"] if iterator is not None else []),
            *(["unsynchronised variables and seeds"] if self._variables else []),
            "random state",
            *extra,
        ]

    @property
    def own_variables(self) -> set[int]:
        """The identities of variables whose value may differ from worker to worker."""
        return {id(raw_variable(variable)) for variable in self._variables}

    def write(self, prefix: Path) -> None:
        """Writes the state under `prefix`."""
        self._checkpoint.write(str(prefix))
        python_state = random.getstate()
        kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
        store(
            self.random_state_path(prefix),
            RandomState(
                python=[python_state[0], list(python_state[1]), python_state[2]],
                numpy=[str(kind), np.asarray(keys).tolist(), position, has_gauss, gauss],
            ),
        )

    @staticmethod
    def random_state_path(prefix: Path) -> Path:
        """Returns where the state of Python's and NumPy's generators is, beside `prefix`."""
        return prefix.with_name(f"{prefix.name}.json")

    def compare(self, prefix: Path) -> Comparison:
        """Compares what was saved at `prefix` with the live objects; touches nothing."""
        return compare(self._checkpoint, prefix)

    def random_state(self, prefix: Path) -> RandomState:
        """Returns what was saved at `prefix` of the random generators; touches nothing.

        Raises:
            DamagedFileError: It cannot be read.
        """
        return load(self.random_state_path(prefix), RandomState)

    def read(self, prefix: Path, saved: RandomState) -> None:
        """Restores the state in place; iterators begin anew for it.

        Args:
            prefix: Where it was saved.
            saved: What `random_state` returned.
        """
        renew_all(self._checkpoint)
        self._checkpoint.read(str(prefix)).assert_existing_objects_matched()
        version, keys, gauss = saved.python
        random.setstate((version, tuple(keys), gauss))
        np.random.set_state((saved.numpy[0], np.array(saved.numpy[1], np.uint32), *saved.numpy[2:]))


def compare(root: tf.train.Checkpoint, prefix: Path) -> Comparison:
    """Holds the object graph of a checkpoint against live objects, as a restore would.

    Raises:
        BundleError: The checkpoint is damaged.
        FileNotFoundError: It is not there.
    """
    index = read_index(prefix)
    nodes = read_object_graph(prefix)
    live = {id(variable): (path, variable) for path, variable in live_variables(root)}
    found = _pair(root, nodes)
    matched, different = [], []
    for key, variable in found.items():
        difference = _difference(key, variable, index)
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


def _pair(root: Any, nodes: tuple[Node, ...]) -> dict[str, Any]:
    """Walks live objects and saved nodes side by side; returns live variables by key."""
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


def _difference(key: str, variable: Any, index: Index) -> str:
    raw, entry = raw_variable(variable), index.entries.get(key)
    if entry is None:
        return f"{key} is named by the object graph and not in the index"
    live = format_tensor(raw.dtype.name, raw.shape.as_list())
    saved = format_tensor(entry.dtype, entry.shape)
    return f"{key} is {saved} in the checkpoint and {live} in the model" if live != saved else ""
