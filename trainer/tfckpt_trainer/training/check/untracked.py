"""Finds objects with state that nothing passed to a run holds, so that no checkpoint has them."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfckpt_trainer.rundir.records.check import StateKind
from tfckpt_trainer.training.check.script_names import ScriptNames
from tfckpt_trainer.training.keras_library import (
    OPTIMIZERS,
    SeedGenerator,
    Variable,
    global_seed_generator,
    has_value,
    keras,
    metrics_of,
    variables_of,
)
from tfckpt_trainer.training.state.adapted import COUNTING, counters
from tfckpt_trainer.training.state.variables import (
    MutableTable,
    components,
    exempt_variables,
    is_variable,
    live_objects,
    live_variables,
    raw_variable,
    saves_nothing,
    variable_name,
)

_OWNERS: tuple[tuple[type, StateKind], ...] = (
    (keras.Model, StateKind.MODEL),
    *((kind, StateKind.OPTIMIZER) for kind in OPTIMIZERS),
    # Before layers: a metric of Keras 2 is one.
    (keras.metrics.Metric, StateKind.METRIC),
    (keras.layers.Layer, StateKind.LAYER),
    (SeedGenerator, StateKind.SEED_GENERATOR),
    (tf.random.Generator, StateKind.GENERATOR),
    (tf.Module, StateKind.MODULE),
    (tf.__internal__.tracking.AutoTrackable, StateKind.SAVED_MODEL),
)
"""Types that hold variables; of several that hold the same, the first is named."""

_INTERNAL = "tensorflow.python.distribute.cross_device"
"""Modules with objects that hold variables of their own, for the order of reductions."""

_UNINITIALIZED = "UninitializedVariable"
"""The type of what stands for a partitioned variable in exports, and of those of a SavedModel."""

_WANTED = (
    tf.Variable,
    Variable,
    MutableTable,
    tf.data.Iterator,
    *(kind for kind, _ in _OWNERS),
)


@dataclass(frozen=True)
class Untracked:
    """An object with state that nothing passed to the run holds.

    Attributes:
        kind: The kind of object.
        name: How the script names it, or its own name.
        expression: How the script can write it, such as `trainer.noise`; empty if it cannot.
        things: Its variables, or the table or iterator itself.
        by_keras: Whether Keras created it, and not the script.
    """

    kind: StateKind
    name: str
    expression: str
    things: tuple[Any, ...]
    by_keras: bool = False

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()

    @property
    def is_left_out(self) -> bool:
        """Whether it was made to be in no checkpoint, whoever holds it."""
        return any(map(saves_nothing, self.things))


@dataclass
class _Found:
    """Live objects, as the garbage collector lists them."""

    variables: list[Any] = field(default_factory=list)
    owners: list[tuple[Any, StateKind]] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether any has state."""
        return bool(self.variables or self.others)


def find_untracked(saved: Iterable[Any], names: ScriptNames | None = None) -> list[Untracked]:
    """Finds live objects with state that is not saved.

    An object that holds several variables is listed once, as the outermost object of which no
    variable is saved. Left out are variables of this library, and iterators and tables that the
    script has no name for.

    Args:
        saved: Variables, tables and iterators that are saved.
        names: Names of the script; by default those that it can see now.
    """
    known = _known([*saved, *exempt_variables()])
    if not _live(known):
        return []
    # Objects in cycles that nothing uses any more are listed too. To collect them takes longer than
    # to list all.
    gc.collect()
    live = _live(known)
    names = names or ScriptNames()
    left = {id(raw_variable(variable)): variable for variable in live.variables}
    untracked = []
    for owner, kind in _outermost_first(live.owners, names):
        own = _variables(owner)
        if own and all(id(raw_variable(variable)) in left for variable in own):
            untracked.append(_owned(owner, kind, own, names))
            for variable in own:
                left.pop(id(raw_variable(variable)), None)
    untracked += _ungrouped(list(left.values()), names)
    untracked += _of_others(live.others, names)
    return sorted(untracked, key=str)


def describe_untracked(untracked: Untracked) -> str:
    """Returns what is not saved and what to do, in one or two sentences."""
    why = "nothing that was passed to TrainingRun holds it"
    if untracked.is_left_out:
        why = "it was made to be in no checkpoint"
    subject = f"Not saved: {untracked}, because {why}."
    return f"{subject} If training changes it, {how_to_pass(untracked)}."


def how_to_pass(untracked: Untracked) -> str:
    """Returns how the script can have it saved, as a clause."""
    if untracked.is_left_out:
        return "make it with checkpoint=True"
    if not untracked.expression:
        return "pass the object that holds it in extra={…}"
    argument = "metrics" if untracked.kind is StateKind.METRIC else "extra"
    key = untracked.expression.rpartition(".")[2].partition("[")[0]
    return f"pass {argument}={{{key!r}: {untracked.expression}}}"


def _known(saved: Iterable[Any]) -> set[int]:
    """Returns the identities of saved objects, and of the variables behind saved variables."""
    identities: set[int] = set()
    for thing in saved:
        identities.update(_identities(thing) if is_variable(thing) else {id(thing)})
    return identities


def _identities(variable: Any) -> set[int]:
    return {id(variable), *_parts(variable)}


def _parts(variable: Any) -> set[int]:
    """Returns the identities of the variables behind a variable of Keras or of a strategy."""
    parts = [raw_variable(variable), *components(variable)]
    # With parameter servers, a variable wraps the one on its server. Not `getattr`: a variable
    # that is synchronized on read looks up attributes that it does not have by a collective.
    parts += [vars(part)["_v"] for part in parts if "_v" in vars(part)]
    return {id(part) for part in parts} - {id(variable)}


def _live(saved_ids: set[int]) -> _Found:
    """Returns live objects that are not saved."""
    live = _Found()
    excluded = set(saved_ids)
    objects = gc.get_objects()
    # Of so many objects, there are few types, and some base classes are slow to compare with.
    kinds = set(map(type, objects))
    # A class may have a property of this name for its objects.
    internal = {kind for kind in kinds if str(kind.__module__).startswith(_INTERNAL)}
    looked_at = internal | {kind for kind in kinds if issubclass(kind, _WANTED)}
    for thing in objects:
        kind = type(thing)
        if kind not in looked_at:
            continue
        if kind in internal:
            excluded.update(map(id, getattr(thing, "__dict__", {}).values()))
            continue
        if issubclass(kind, keras.Model):
            excluded.update(_of_metrics(thing))
        if issubclass(kind, COUNTING):
            excluded.update(counters([thing]))
        if id(thing) in saved_ids:
            continue
        if issubclass(kind, Variable | tf.Variable):
            if has_value(thing) and not _is_empty(thing):
                live.variables.append(thing)
                excluded.update(_parts(thing))
        elif issubclass(kind, MutableTable | tf.data.Iterator):
            live.others.append(thing)
        else:
            live.owners.append(
                (thing, next(owner_kind for base, owner_kind in _OWNERS if issubclass(kind, base)))
            )
    # A variable of Keras is excluded with the TensorFlow variable that it holds.
    live.variables = [
        v
        for v in live.variables
        if id(v) not in excluded and not saved_ids.intersection(_identities(v))
    ]
    live.others = [thing for thing in live.others if id(thing) not in excluded]
    return live


def _is_empty(variable: Any) -> bool:
    """Whether it is one that never gets a value: it stands for a partitioned one in exports."""
    is_eager = hasattr(getattr(variable, "handle", None), "numpy")
    return type(variable).__name__ == _UNINITIALIZED and is_eager and not variable.is_initialized()


def _of_metrics(model: keras.Model) -> set[int]:
    """Returns the variables of metrics that belong to a model: compiling creates some."""
    try:
        metrics = metrics_of(model)
    except AttributeError:
        # A script's own property, which needs what its `compile` creates.
        return set()
    variables = [variable for metric in metrics for variable in metric.variables]
    return {number for variable in variables for number in _identities(variable)}


def _outermost_first(
    owners: list[tuple[Any, StateKind]], names: ScriptNames
) -> list[tuple[Any, StateKind]]:
    ranks = {kind: rank for rank, (_, kind) in enumerate(_OWNERS)}
    return sorted(
        owners,
        key=lambda pair: (-len(_variables(pair[0])), not names.of(pair[0]), ranks[pair[1]]),
    )


def _variables(thing: Any) -> list[Any]:
    """Returns all variables of an object of Keras, of a module or of a generator."""
    if isinstance(thing, tf.random.Generator | SeedGenerator):
        return [thing.state]
    if isinstance(thing, OPTIMIZERS):
        return [v for v in variables_of(thing) if has_value(v)]
    if isinstance(thing, keras.layers.Layer | keras.metrics.Metric):
        return [v for v in thing.variables if has_value(v)]
    if isinstance(thing, tf.Module):
        return list(thing.variables)
    return [v for _, v in live_variables(thing)] if _is_loaded(thing) else []


def _is_loaded(thing: Any) -> bool:
    """Whether it comes from `tf.saved_model.load`, which makes a class for each object."""
    return type(thing).__name__ == "_UserObject"


def _owned(owner: Any, kind: StateKind, own: list[Any], names: ScriptNames) -> Untracked:
    expression = _public(names.of(owner)) or _common([names.of(variable) for variable in own])
    by_keras = owner is global_seed_generator()
    name = "of keras.random" if by_keras else ""
    name = name or expression or str(getattr(owner, "name", "")) or variable_name(own[0])
    return Untracked(kind, name, expression, tuple(own), by_keras)


def _ungrouped(variables: list[Any], names: ScriptNames) -> list[Untracked]:
    """Returns variables without an owner; those of one list or dictionary belong together."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for variable in sorted(variables, key=order_of_creation):
        expression = _public(names.of(variable)) or _public(names.of(raw_variable(variable)))
        expression = expression.partition("[")[0] if expression.endswith("]") else expression
        # Without a name in the script, each is for itself.
        groups.setdefault((expression, "" if expression else _unique(variable)), []).append(
            variable
        )
    return [
        Untracked(StateKind.VARIABLE, expression or variable_name(own[0]), expression, tuple(own))
        for (expression, _), own in groups.items()
    ]


def _of_others(others: list[Any], names: ScriptNames) -> list[Untracked]:
    """Returns iterators and tables; those that the script has one name for belong together."""
    groups: dict[tuple[StateKind, str], list[Any]] = {}
    of_holders: dict[int, str] | None = None
    for thing in others:
        kind = StateKind.TABLE if isinstance(thing, MutableTable) else StateKind.ITERATOR
        expression = _public(names.of(thing))
        if not expression and kind is StateKind.TABLE:
            if of_holders is None:
                of_holders = _names_of_holders(names)
            expression = of_holders.get(id(thing), "")
        if expression:
            groups.setdefault((kind, expression), []).append(thing)
    return [
        Untracked(kind, expression, expression, tuple(own))
        for (kind, expression), own in groups.items()
    ]


def _names_of_holders(names: ScriptNames) -> dict[int, str]:
    """Returns the names of the innermost objects that track tables, by the identity of these.

    The embedding variable of a package is such an object.
    """
    return {
        id(thing): _public(expression)
        for expression, holder in names.named((tf.__internal__.tracking.Trackable,))
        for _, thing in live_objects(holder)
        if isinstance(thing, MutableTable)
    }


def _public(expression: str) -> str:
    """Returns the part of an expression before the first private attribute."""
    return expression.partition("._")[0]


def _common(expressions: list[str]) -> str:
    """Returns the object that all variables are attributes of, if the script has a name for it."""
    holders = {_public(expression).rpartition(".")[0] for expression in expressions}
    return holders.pop() if len(holders) == 1 else ""


def _unique(variable: Any) -> str:
    return f"{variable_name(variable)} {order_of_creation(variable)}"


def order_of_creation(variable: Any) -> int:
    """Returns a number that grows with each variable of this process."""
    raw = components(variable)[0]
    number = str(getattr(raw, "_unique_id", "")).rpartition("_")[2]
    return int(number) if number.isdigit() else 0
