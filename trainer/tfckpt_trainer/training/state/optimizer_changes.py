"""Finds out that the optimizer of a run is not the one whose state a checkpoint holds.

Keras numbers the variables of an optimizer. So those of another one may fit by their shapes, and
if they do not, their numbers say nothing to a user. The names of the saved variables tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfckpt_trainer.bundle.object_graph import Node
from tfckpt_trainer.training.keras_library import (
    OPTIMIZERS,
    keras,
    titles_of_optimizers,
    unnumbered,
)
from tfckpt_trainer.training.state.variables import variable_name
from tfckpt_trainer.words.counts import count

_TITLES = titles_of_optimizers()

_PARTITION = re.compile(r"/part_\d+$")
"""What TensorFlow adds to the name of a variable for each of its partitions."""

TRAINED = "_trainable_variables"
"""Where an optimizer has the variables that it trains, by their numbers."""


@dataclass(frozen=True)
class OptimizerChange:
    """What an optimizer was at the save, and is now.

    Attributes:
        path: Its path in the checkpoint.
        words: The change, as a clause.
        misfits: Keys of tensors that fit another variable by their shape alone.
    """

    path: str
    words: str
    misfits: tuple[str, ...] = ()


def find_optimizer_changes(
    pairs: Sequence[tuple[str, Any, Node]], nodes: Sequence[Node]
) -> Iterator[OptimizerChange]:
    """Yields the changes of all optimizers that a checkpoint and a run have at the same place.

    Args:
        pairs: Path, live object and saved node of each object that both have.
        nodes: All saved nodes.
    """
    saved_as = {id(thing): node for _, thing, node in pairs}
    for path, thing, node in pairs:
        # In Keras 2, the optimizer that scales the loss has none of its own.
        has_some = isinstance(thing, OPTIMIZERS) and hasattr(thing, "_iterations")
        if has_some and "_iterations" in node.children:
            change = _change(path, thing, node, nodes) or _other_trained(
                path, thing, node, nodes, saved_as
            )
            if change is not None:
                yield change


def _change(path: str, optimizer: Any, node: Node, nodes: Sequence[Node]) -> OptimizerChange | None:
    was = _optimizer_of(nodes[node.children["_iterations"]].full_name)
    now = _optimizer_of(variable_name(optimizer._iterations))
    subject = _subject(path)
    # Other versions of Keras name their variables otherwise.
    misfits = tuple(_misfits(optimizer, node, nodes)) if was in _TITLES else ()
    if was.lower() != now.lower():
        words = f"{subject} was {_TITLES.get(was, was)} and is {_TITLES.get(now, now)}"
        return OptimizerChange(path, words, misfits)
    rate = node.children.get("_learning_rate")
    was_number = rate is not None and nodes[rate].checkpoint_key is not None
    is_schedule = isinstance(
        optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule
    )
    if was_number == is_schedule:
        kinds = ("a number", "a schedule") if was_number else ("a schedule", "a number")
        words = f"the learning rate of {subject} was {kinds[0]} and is {kinds[1]}"
        return OptimizerChange(path, words, misfits)
    words = f"{subject} was created with other options, such as use_ema"
    return OptimizerChange(path, words, misfits) if misfits else None


def _other_trained(
    path: str,
    optimizer: Any,
    node: Node,
    nodes: Sequence[Node],
    saved_as: Mapping[int, Node],
) -> OptimizerChange | None:
    """Returns that an optimizer trains other variables, as after a layer was unfrozen."""
    live = getattr(optimizer, TRAINED, None)
    if not live or TRAINED not in node.children:
        return None
    saved = nodes[node.children[TRAINED]].children
    was = [nodes[saved[name]] for name in sorted(filter(str.isdecimal, saved), key=int)]
    now = [saved_as.get(id(variable)) for variable in live]
    if len(was) == len(now) and all(a is b or b is None for a, b in zip(was, now, strict=True)):
        return None
    numbers = f"{count(len(was), 'variable')} and trains {len(now):,}"
    words = f"{_subject(path)} trained {numbers if len(was) != len(now) else 'other variables'}"
    names = [one.full_name for one in was], [variable_name(variable) for variable in live]
    if len(was) != len(now) and _whole_names(names[0]) == _whole_names(names[1]):
        words += (
            " of the same, in other partitions (Keras 3 saves the state of its optimizers for each "
            "partition: use the partitioner of the save)"
        )
    return OptimizerChange(path, words, tuple(_keys_of_variables(node, nodes)))


def _whole_names(names: Iterable[str]) -> set[str]:
    """Returns the names of variables, of a partitioned one without the number of its partition."""
    return {_PARTITION.sub("", name) for name in names}


def _keys_of_variables(node: Node, nodes: Sequence[Node]) -> Iterator[str]:
    """Yields the keys of all variables that an optimizer had of its own."""
    children = nodes[node.children["_variables"]].children if "_variables" in node.children else {}
    for child in children.values():
        key = nodes[child].checkpoint_key
        if key is not None:
            yield key


def _subject(path: str) -> str:
    return "the optimizer" if path == "optimizer" else f"the optimizer {path}"


def _misfits(optimizer: Any, node: Node, nodes: Sequence[Node]) -> Iterator[str]:
    """Yields the keys of variables that hold something else, such as an average of squares."""
    saved = nodes[node.children["_variables"]].children if "_variables" in node.children else {}
    for number, variable in enumerate(optimizer._variables):
        if str(number) in saved:
            saved_node = nodes[saved[str(number)]]
            is_other = _role(saved_node.full_name) != _role(variable_name(variable))
            if saved_node.checkpoint_key is not None and is_other:
                yield saved_node.checkpoint_key


def _optimizer_of(name: str) -> str:
    """Returns the name of the optimizer of a variable."""
    return unnumbered(name.partition("/")[0])


def _role(name: str) -> str:
    """Returns what a variable is for its optimizer, such as `momentum`."""
    return name.rpartition("/")[2].rpartition("_")[2]
