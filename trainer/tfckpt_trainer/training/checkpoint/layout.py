"""What a checkpoint holds under which keys, learned from TensorFlow, and its values at one step.

`tf.train.Checkpoint.write` reads the variables and writes them in one go, in one process. A save
in the background, or one that several workers write, needs the values apart from the writing.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import KEY, read_object_graph
from tfckpt_trainer.bundle.tensors import read_strings
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.checkpoint.variables import (
    components,
    is_read_by_all,
    is_variable,
    live_objects,
    raw_variable,
)


@dataclass(frozen=True)
class Snapshot:
    """The values of all variables at one moment; later steps do not change them.

    Attributes:
        graph: The object graph, as TensorFlow stores it.
        tensors: In the memory of this machine, by their keys.
    """

    graph: bytes
    tensors: Mapping[str, tf.Tensor]


class CheckpointLayout:
    """The layout that TensorFlow gives a `tf.train.Checkpoint`.

    TensorFlow is asked for it: a copy of the structure, with a number in the place of each
    variable, is saved once, and its object graph is the one of the real thing, byte by byte.

    Attributes:
        variables: Those that the checkpoint holds, by their keys.
    """

    def __init__(self, root: tf.train.Checkpoint) -> None:
        """Takes the layout of `root`.

        Raises:
            UsageError: It tracks something beside variables that has a value.
        """
        _refuse_other_values(root)
        with tempfile.TemporaryDirectory() as scratch:
            prefix = Path(scratch) / "layout"
            _copy_of_structure(root).write(str(prefix))
            self._graph = read_strings(prefix, read_index(prefix).entries[KEY])[0]
            nodes = read_object_graph(prefix)
        self.variables: dict[str, Any] = {}
        view = tf.train.TrackableView(root)
        waiting, seen = deque([(root, 0)]), {0}
        while waiting:
            thing, number = waiting.popleft()
            key = nodes[number].checkpoint_key
            if key is not None:
                self.variables[key] = thing
                continue
            children = view.children(thing)
            for name, child in nodes[number].children.items():
                if child not in seen:
                    seen.add(child)
                    waiting.append((children[name], child))

    def take(self) -> Snapshot:
        """Returns the values of now.

        On a CPU nothing is copied: TensorFlow copies a variable when the next step changes it
        while somebody still holds its value. From a GPU the values come into main memory.
        """
        with tf.device("/CPU:0"):
            return Snapshot(
                self._graph, {key: tf.identity(_read(v)) for key, v in self.variables.items()}
            )


def _read(variable: Any) -> tf.Tensor:
    if is_read_by_all(variable):
        return raw_variable(variable).read_value()
    return components(variable)[0].read_value()


def _copy_of_structure(root: Any) -> tf.train.Checkpoint:
    """Returns the same tree of names, with an empty node for each object."""
    view = tf.train.TrackableView(root)
    top = tf.train.Checkpoint()
    copies: dict[int, Any] = {id(root): top}
    waiting = deque([root])
    while waiting:
        thing = waiting.popleft()
        for name, child in view.children(thing).items():
            if id(child) not in copies:
                copies[id(child)] = _empty_copy(child)
                if not is_variable(child):
                    waiting.append(child)
            copies[id(thing)]._track_trackable(copies[id(child)], name)
    return top


def _empty_copy(thing: Any) -> Any:
    if is_variable(thing):
        return tf.Variable(0.0, trainable=False, name=raw_variable(thing).name.split(":")[0])
    return tf.train.Checkpoint()


def _refuse_other_values(root: Any) -> None:
    """Makes sure that nothing would be left out: tables and the slots of old optimizers would.

    TensorFlow has no public way to ask an object whether it has a value of its own.
    """
    for path, thing in live_objects(root):
        if is_variable(thing):
            continue
        has_slots = hasattr(thing, "get_slot_names")
        has_value = any(
            getattr(type(thing), hook, None) is not getattr(tf.Module, hook, None)
            for hook in ("_serialize_to_tensors", "_gather_saveables_for_checkpoint")
        )
        if has_slots or has_value:
            raise UsageError(
                f"{path} is a {type(thing).__name__}, whose value is no variable: it can be saved "
                "in the foreground only, by one worker. Leave out `background`, `spread` and "
                "`largest_shard` of SaveOptions."
            )
