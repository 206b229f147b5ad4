"""The state that a checkpoint holds: shared by all workers, of each worker, and of the script.

The shared state is a plain `tf.train.Checkpoint(model=…, optimizer=…, step=…)`. Any program can
restore it without this library. Variables that it does not track, such as seeds of Dropout and
Keras metrics, are in a file beside it, by their paths. Each worker writes the position of its
input pipeline to a file of its own, and the values that are not equal on all replicas. Which
those are is measured at each save.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from tfckpt_trainer.bundle.index import Index
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts
from tfckpt_trainer.rundir.records.exactness import Exactness, StepFacts, exactness_of
from tfckpt_trainer.rundir.storage.documents import SealedDocument, load, store
from tfckpt_trainer.training.hyperparameters.hyperparameters import (
    Hyperparameters,
    ValueChange,
)
from tfckpt_trainer.training.pipelines.input_state import InputState, RestoredInputs
from tfckpt_trainer.training.pipelines.iterators import recreate_iterators
from tfckpt_trainer.training.pipelines.pipeline import POSITION_ERRORS
from tfckpt_trainer.training.pipelines.skips import InputSkips
from tfckpt_trainer.training.state.adapted import Adapted, adapted_digests
from tfckpt_trainer.training.state.comparison import (
    StateComparison,
    VariableMatch,
    compare,
    each_stored_value,
)
from tfckpt_trainer.training.state.late_variables import LateVariables
from tfckpt_trainer.training.state.passed import (
    check_partitions,
    check_passed,
    is_tracked_as,
    saves_itself,
)
from tfckpt_trainer.training.state.user_objects import UserObjects
from tfckpt_trainer.training.state.value_encoding import decode_value, encode_value
from tfckpt_trainer.training.state.variables import (
    byte_size,
    components,
    exempt,
    live_variables,
    raw_variable,
)
from tfckpt_trainer.training.state.walk import Found, FoundState, find_state

COUNTERS = frozenset({"step", "save_counter"})
"""Paths of the variables of a checkpoint that are not the script's."""

SEEDS = "seeds"
"""The name of random generators of the script in the contents of a checkpoint."""


class RandomState(SealedDocument, frozen=True, kw_only=True):
    """What one worker stores as JSON.

    Attributes:
        python: The state of Python's random generator.
        numpy: The state of NumPy's random generator.
        objects: The states of objects of the script, by name.
        elements_read: Number of elements that each input pipeline read, by name.
        per_worker: Paths of the values that this worker stored.
        adapted: Checksums of what was adapted before training, by path.
    """

    python: list[Any]
    numpy: list[Any]
    elements_read: dict[str, int] = {}
    objects: dict[str, Any] = {}
    per_worker: list[str] = []
    adapted: dict[str, int] = {}


@dataclass
class Position:
    """Where the run is in its history; equal on all workers.

    Attributes:
        step: Steps done.
        branch: The branch on which the next save is.
        parent: The checkpoint that was saved or restored last.
        sequence: Number of saves and restores of the run so far.
        best: The best value so far of each metric that triggers a save when it improves.
    """

    step: int = 0
    branch: int = 0
    parent: str | None = None
    sequence: int = 0
    best: dict[str, float] = field(default_factory=dict)

    def copy(self) -> Position:
        """Returns a copy that does not change with this one."""
        return replace(self, best=dict(self.best))

    def go_back_to(self, earlier: Position) -> None:
        """Takes the values of an earlier copy."""
        self.step, self.branch, self.parent = earlier.step, earlier.branch, earlier.parent
        self.sequence, self.best = earlier.sequence, dict(earlier.best)


class SharedState:
    """Model, optimizer, step and further objects of the script.

    Attributes:
        model: The model, or several by name.
        checkpoint: The `tf.train.Checkpoint` that tracks them.
        user_objects: Those that save and restore themselves.
        contents: Names of the contents, for the record of a checkpoint.
        late_variables: Refuses variables that are created after the start.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        extra: Mapping[str, Any],
        metrics: Any = None,
    ) -> None:
        """Takes the objects; each argument but `extra` is one object or a dictionary by name.

        Raises:
            UsageError: The state of an object cannot be saved.
        """
        self.model = model
        self._step = exempt(tf.Variable(0, dtype=tf.int64, trainable=False, name="step"))
        own = {name: thing for name, thing in extra.items() if saves_itself(thing)}
        objects = {"model": model, "optimizer": optimizer, "metrics": metrics, **extra}
        self._passed = {
            name: thing for name, thing in objects.items() if thing is not None and name not in own
        }
        check_passed(self._passed, extra)
        self.checkpoint = tf.train.Checkpoint(
            step=self._step,
            **{name: thing for name, thing in self._passed.items() if is_tracked_as(name, thing)},
        )
        check_partitions(variable for _, variable in live_variables(self.checkpoint))
        # Created now on all workers: when the first save creates it, that takes a collective.
        self._counter = exempt(self.checkpoint.save_counter)
        self.user_objects = UserObjects(own)
        self.contents = [*self._passed, *own, "step"]
        self.late_variables = LateVariables()

    @property
    def step(self) -> int:
        """The step as restored or last set."""
        return int(self._step.numpy())

    @property
    def size(self) -> int:
        """Size of the variables in a checkpoint, in bytes."""
        return sum(byte_size(variable) for _, variable in live_variables(self.checkpoint))

    def find(self) -> FoundState:
        """Returns everything with a value that is reachable from the objects, each once."""
        return find_state(self.checkpoint, self._passed)

    def set_step(self, step: int) -> None:
        """Sets the step that the next save stores."""
        self._step.assign(step)
        self._counter.assign_add(1)

    @property
    def saves(self) -> int:
        """Number of saves so far, as `tf.train.Checkpoint` counts them."""
        return int(self._counter.numpy())

    def set_saves(self, saves: int) -> None:
        """Sets the number of saves, such as after one that does not count."""
        self._counter.assign(saves)

    def write(self, prefix: Path) -> None:
        """Writes the state under `prefix`."""
        self.checkpoint.write(str(prefix))

    def compare(self, prefix: Path, index: Index | None = None) -> StateComparison:
        """Compares the checkpoint at `prefix` with the live objects; changes nothing.

        Args:
            prefix: Prefix of the checkpoint.
            index: Its index, if already read.
        """
        return compare(self.checkpoint, prefix, index)

    def restore(self, prefix: Path, *, by_name: bool = False) -> None:
        """Restores the state in place, on every replica of this worker.

        Args:
            prefix: Prefix of the checkpoint.
            by_name: Whether other processes read it too, as parameter servers do.
        """
        recreate_iterators(self.checkpoint)
        with nullcontext(prefix) if by_name else opened_checkpoint(prefix) as opened:
            self.checkpoint.read(str(opened)).assert_existing_objects_matched()

    def restore_variables(self, prefix: Path, matches: Sequence[VariableMatch]) -> None:
        """Restores only these variables in place."""
        for match, value in zip(matches, each_stored_value(prefix, matches), strict=True):
            raw_variable(match.variable).assign(value)


class SavedWorkerState:
    """The state of one worker: input position, values of its own, random state.

    Attributes:
        inputs: The input pipelines.
    """

    def __init__(
        self, inputs: InputState | None = None, user_objects: UserObjects | None = None
    ) -> None:
        self.inputs = inputs or InputState()
        self._user_objects = user_objects or UserObjects({})

    @property
    def contents(self) -> list[str]:
        """Names of the contents, for the record of a checkpoint."""
        return [*self.inputs.contents, "random state"]

    def tracking(self, states: Iterable[Found], per_worker: Collection[str]) -> tf.train.Checkpoint:
        """Returns what stores the values of this worker, without its input pipelines.

        Args:
            states: All state of the script.
            per_worker: Paths of the values that each worker stores.
        """
        return tf.train.Checkpoint(**_objects_of_worker(states, per_worker))

    def write(
        self,
        prefix: Path,
        states: Iterable[Found] = (),
        per_worker: Collection[str] = (),
        adapted: Iterable[Adapted] = (),
    ) -> None:
        """Writes the state under `prefix`, without a flush.

        Args:
            prefix: Path without suffix.
            states: All state of the script.
            per_worker: Paths of the values that each worker stores.
            adapted: What was adapted before training.

        Raises:
            UsageError: The state of an object of the script cannot be saved.
        """
        objects = _objects_of_worker(states, per_worker)
        try:
            self._write_checkpoint(prefix, objects)
        except POSITION_ERRORS:
            if not self.inputs.degrade():
                raise
            self._write_checkpoint(prefix, objects)
        python_state = random.getstate()
        kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
        store(
            self.random_state_path(prefix),
            RandomState(
                python=[python_state[0], list(python_state[1]), python_state[2]],
                numpy=[str(kind), np.asarray(keys).tolist(), position, has_gauss, gauss],
                elements_read=self.inputs.elements,
                objects=self._user_objects.states(),
                per_worker=list(per_worker),
                adapted=adapted_digests(adapted),
            ),
            durable=False,
        )

    def _write_checkpoint(self, prefix: Path, objects: Mapping[str, Any]) -> None:
        tf.train.Checkpoint(**self.inputs.objects, **objects).write(str(prefix))

    @staticmethod
    def random_state_path(prefix: Path) -> Path:
        """Returns the path of the random state of Python and NumPy that belongs to `prefix`."""
        return prefix.with_name(f"{prefix.name}.json")

    def load_random_state(self, prefix: Path) -> RandomState:
        """Returns the random state saved at `prefix`; changes nothing.

        Raises:
            DamagedFileError: It cannot be read.
        """
        return load(self.random_state_path(prefix), RandomState)

    def missing_objects(self, saved: RandomState) -> list[str]:
        """Returns the names of objects of the script whose state was not saved."""
        return self._user_objects.missing(saved.objects)

    def restore(
        self, prefix: Path, tracking: tf.train.Checkpoint, saved: RandomState
    ) -> RestoredInputs:
        """Restores the state in place; iterators are created anew.

        Args:
            prefix: Prefix under which it was saved.
            tracking: The result of `tracking`.
            saved: The result of `load_random_state`.
        """
        recreate_iterators(tracking)
        with opened_checkpoint(prefix) as opened:
            status = tracking.read(str(opened)).assert_existing_objects_matched()
        # The input pipelines take their part themselves.
        status.expect_partial()
        restored = self.inputs.restore(prefix, saved.elements_read)
        # Skipping elements may run code of the script that draws random numbers.
        version, keys, gauss = saved.python
        random.setstate((version, tuple(keys), gauss))
        kind, state, *rest = saved.numpy
        np.random.set_state((kind, np.array(state, np.uint32), *rest))
        return restored

    def restore_objects(self, saved: RandomState) -> None:
        """Restores the objects of the script that save and restore themselves."""
        self._user_objects.load(saved.objects)


class UserState:
    """Values of the script that are saved with a checkpoint, of types that JSON supports.

    Attributes:
        shared: Values that are equal on all workers; the chief's are saved.
        worker: Values of this worker.
        before_save: Functions to call before these values are saved.
        after_restore: Functions to call after they were restored.
        hyperparameters: Values that can be changed from outside.
        skips: Input that is dropped before later steps.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self.shared: dict[str, Any] = {}
        self.worker: dict[str, Any] = {}
        self.before_save: list[Callable[[], None]] = []
        self.after_restore: list[Callable[[], None]] = []
        self.hyperparameters = Hyperparameters()
        self.skips = InputSkips()

    def collect(self, step: int, facts: WorkerFacts) -> tuple[dict[str, Any], WorkerFacts]:
        """Returns fields of the record of a checkpoint, and `facts` with the values of this worker.

        Args:
            step: Steps done.
            facts: What the checkpoint records of this worker.

        Raises:
            UsageError: A value would not come back as it is.
        """
        for act in self.before_save:
            act()
        worker = _encoded("worker_state", self.worker)
        fields = {
            "state": _encoded("state", self.shared),
            "hyperparameters": self.hyperparameters.look(step),
            "skips": self.skips.planned,
        }
        return fields, msgspec.structs.replace(facts, state=worker)

    def restore(
        self, record: CheckpointRecord | None, step: int, *, worker_restored: bool
    ) -> list[ValueChange]:
        """Restores the values from a checkpoint's record.

        Args:
            record: None if another program saved the checkpoint; then all values are removed.
            step: Its step.
            worker_restored: Whether the state of each worker was restored too. If not, the
                values of this worker are removed.

        Returns:
            The hyperparameters that have another value than before.
        """
        self.shared.clear()
        self.worker.clear()
        if record is not None:
            self.shared.update(_decoded(record.state))
            mine = [facts.state for facts in record.workers if facts.index == self._index]
            self.worker.update(_decoded(mine[0]) if worker_restored and mine else {})
        saved = record.hyperparameters if record is not None else []
        changes = self.hyperparameters.restore(saved, step)
        self.skips.restore(record.skips if record is not None else [])
        for act in self.after_restore:
            act()
        return changes


@dataclass(frozen=True)
class TrainingState:
    """Everything that a save records and a restore brings back.

    Attributes:
        shared: Variables that are equal on all workers.
        worker: Variables, input position and random state of this worker.
        user: Values of the script.
        position: Step, branch and parent.
        step_facts: Returns what is known of the graphs of the steps.
    """

    shared: SharedState
    worker: SavedWorkerState
    user: UserState
    position: Position
    step_facts: Callable[[], StepFacts]

    @property
    def exactness(self) -> Exactness:
        """What resuming from a save now brings back, on this worker.

        Raises:
            UsageError: A step created variables that no checkpoint holds.
        """
        return exactness_of(self.worker.inputs.facts, self.step_facts())

    def adapted(self, states: FoundState) -> list[Adapted]:
        """Returns the layers and tables whose values the script made before training."""
        return [*states.adapted, *self.worker.inputs.adapted]

    def contents(self, states: Iterable[Found]) -> list[str]:
        """Returns the names of what a save stores, for the record of a checkpoint."""
        seeds = [SEEDS] if any(state.is_seed for state in states) else []
        return [*self.shared.contents, *self.worker.contents, *seeds]


def _objects_of_worker(states: Iterable[Found], per_worker: Collection[str]) -> dict[str, Any]:
    wanted = set(per_worker)
    own = [state for state in states if state.path in wanted]
    return {
        "replica_values": {
            state.path: list(components(state.thing)) for state in own if state.rule.is_variable
        },
        "objects": {state.path: state.thing for state in own if not state.rule.is_variable},
    }


def _encoded(name: str, values: dict[str, Any]) -> dict[str, Any]:
    for key in values:
        if type(key) is not str:
            raise UsageError(f"The names in run.{name} must be texts, and {key!r} is none.")
    return {key: encode_value(value, f"run.{name}[{key!r}]") for key, value in values.items()}


def _decoded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: decode_value(value) for key, value in values.items()}
