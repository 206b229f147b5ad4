"""Finds where a checkpoint of another program keeps the objects of this run.

Programs name their objects as they like: TensorFlow's guide tracks `net`, its tutorials `model`,
and `tf.train.Checkpoint(model)` tracks the layers at the root. An object is adopted from the only
place in the checkpoint whose names, shapes and types fit all of its variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.bundle.object_graph import Node, read_object_graph
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.bundle.tensors import read_integer
from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_trainer.training.state.comparison import StateComparison, VariableMatch, compare_graph
from tfckpt_trainer.training.state.variables import raw_variable

STEP_NAMES = ("step", "global_step")
"""Names of the step in the checkpoints of other programs."""

Place = tuple[str, ...]
"""Names of the objects on the way from the root of a checkpoint."""

_COUNTERS = frozenset({"step", "save_counter"})


@dataclass(frozen=True)
class Adoption:
    """What a checkpoint of another program has for the objects of this run.

    Attributes:
        roots: What to read it into, one root for each adopted object.
        comparison: The variables that are adopted, and what does not fit.
        step: The step at which training goes on.
        notes: What was adopted from where, and what was not, as sentences.
    """

    roots: tuple[Any, ...]
    comparison: StateComparison
    step: int
    notes: tuple[str, ...]

    def restore(self, prefix: Path) -> None:
        """Restores the adopted objects in place."""
        with opened_checkpoint(prefix) as opened:
            for root in self.roots:
                # Whether all variables of the object are there was compared before.
                tf.train.Checkpoint(root).read(str(opened)).expect_partial()


@dataclass(frozen=True)
class _Saved:
    """What another program saved, read once."""

    prefix: Path
    index: Index
    nodes: tuple[Node, ...]

    @property
    def children(self) -> Mapping[str, int]:
        """The objects at the root, by name."""
        return self.nodes[0].children


@dataclass(frozen=True)
class _Found:
    """An object of this run and its place in the checkpoint."""

    name: str
    place: Place
    root: Any
    comparison: StateComparison


def plan_adoption(root: tf.train.Checkpoint, prefix: Path) -> Adoption:
    """Compares a checkpoint that another program saved with the objects of this run.

    Args:
        root: The objects of this run; `model` has to be found, others may start over.
        prefix: The checkpoint.

    Raises:
        BundleError: The checkpoint is damaged, or was saved by name (TensorFlow 1).
        FileNotFoundError: There is no checkpoint at `prefix`.
    """
    objects = {
        name: child
        for name, child in tf.train.TrackableView(root).children(root).items()
        if name not in _COUNTERS
    }
    saved = _Saved(prefix, read_index(prefix), read_object_graph(prefix))
    pairings = {name: _find(name, thing, objects, saved) for name, thing in objects.items()}
    adopted = [pairing for pairing in pairings.values() if pairing is not None]
    matched = {match.key: match for pairing in adopted for match in pairing.comparison.matched}
    problems = {
        key: text for pairing in adopted for key, text in pairing.comparison.different.items()
    }
    missing = [path for pairing in adopted for path in pairing.comparison.missing]
    if "model" in pairings and pairings["model"] is None:
        problems["model"] = _no_model(saved)
    step, source = _step(saved, adopted, objects.get("optimizer"))
    return Adoption(
        roots=tuple(pairing.root for pairing in adopted),
        comparison=StateComparison(
            matched=tuple(matched.values()),
            missing=tuple(missing),
            extra=tuple(_extra_layers(pairings.get("model"), matched)),
            different=problems,
        ),
        step=step,
        notes=(
            *(f"{pairing.name} from {_shown(pairing.place)}" for pairing in adopted),
            f"step {step} from {source}",
            *(f"{name} starts over" for name, pairing in pairings.items() if pairing is None),
            *_left(saved.children, adopted),
        ),
    )


def _find(name: str, thing: Any, objects: Mapping[str, Any], saved: _Saved) -> _Found | None:
    """Returns where the checkpoint has an object, or None if that is nowhere or not clear."""
    if name in saved.children:
        return _compared(name, thing, (name,), saved)
    fitting = []
    for place in _places(name, thing, objects, saved.children):
        pairing = _compared(name, thing, place, saved)
        if (
            pairing.comparison.matched
            and not pairing.comparison.missing
            and not pairing.comparison.different
        ):
            fitting.append(pairing)
    return fitting[0] if len(fitting) == 1 else None


def _places(
    name: str, thing: Any, objects: Mapping[str, Any], saved: Mapping[str, int]
) -> Iterator[Place]:
    others = [child for child in saved if child not in objects and child not in _COUNTERS]
    yield from ((child,) for child in others)
    if name == "model" or isinstance(thing, Mapping):
        # Objects passed by name may have had their names at the root.
        yield ()
    elif name == "optimizer":
        # A compiled Keras model tracks its optimizer.
        yield from ((child, "optimizer") for child in ("model", *others) if child in saved)


def _compared(name: str, thing: Any, place: Place, saved: _Saved) -> _Found:
    root = thing
    for child in reversed(place):
        root = tf.train.Checkpoint(**{child: root})
    return _Found(name, place, root, compare_graph(root, saved.index, saved.nodes))


def _step(saved: _Saved, adopted: Iterable[_Found], optimizer: Any) -> tuple[int, str]:
    """Returns the step of a checkpoint and where it was found."""
    prefix, entries, children = saved.prefix, saved.index.entries, saved.children
    for name in STEP_NAMES:
        key = saved.nodes[children[name]].checkpoint_key if name in children else None
        value = read_integer(prefix, entries[key]) if key in entries else None
        if value is not None:
            return value, name
    optimizers = optimizer.values() if isinstance(optimizer, Mapping) else [optimizer]
    counters = [getattr(owner, "iterations", None) for owner in optimizers]
    iterations = {id(raw_variable(counter)) for counter in counters if counter is not None}
    for match in _matches(adopted):
        if id(raw_variable(match.variable)) in iterations:
            value = read_integer(prefix, entries[match.key])
            if value is not None:
                return value, match.key.partition("/.ATTRIBUTES")[0]
    said = parse_checkpoint_name(prefix.name)
    return (said.step, "its name") if said is not None else (0, "the start: it names none")


def _matches(adopted: Iterable[_Found]) -> Iterator[VariableMatch]:
    return (match for pairing in adopted for match in pairing.comparison.matched)


def _extra_layers(model: _Found | None, matched: Mapping[str, VariableMatch]) -> Iterator[str]:
    """Yields keys of the saved model that no object of this run has."""
    if model is None or not model.place:
        return
    inside = "/".join(model.place) + "/"
    for key in model.comparison.extra:
        is_layer = key.startswith(inside) and not key.startswith(f"{inside}optimizer/")
        if is_layer and key not in matched:
            yield key


def _left(saved: Mapping[str, int], adopted: Iterable[_Found]) -> Iterator[str]:
    places = [pairing.place for pairing in adopted]
    if () in places:
        return
    taken = {place[0] for place in places}
    left = [name for name in saved if name not in taken and name not in _COUNTERS]
    if left:
        yield f"not adopted: {', '.join(sorted(left))}"


def _no_model(saved: _Saved) -> str:
    names = ", ".join(sorted(saved.children)) or "nothing"
    return (
        f"{saved.prefix.name} has {names}, and not exactly one of them has the variables of this "
        "model; name the model as the program did that saved it"
    )


def _shown(place: Place) -> str:
    return "/".join(place) or "the root"
