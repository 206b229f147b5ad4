"""The state that a checkpoint holds: shared by all workers, of each worker, and of the script.

The shared state is a plain `tf.train.Checkpoint(model=…, optimizer=…, step=…)`. Any program can
restore it without this library. Each worker writes the rest to a file of its own: the position of
its input pipeline, and every variable of the model that workers update independently. Those are
the seeds of Dropout, which Keras does not track, and the moving statistics of an unsynchronised
batch normalisation. They are saved with one value per replica.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.documents import SealedDocument, load, store
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts
from tfckpt_trainer.training.checkpoint.comparison import Comparison, Match, compare
from tfckpt_trainer.training.checkpoint.variables import (
    byte_size,
    components,
    is_read_by_all,
    live_variables,
    raw_variable,
)
from tfckpt_trainer.training.iterators import recreate_iterators
from tfckpt_trainer.training.pipelines.input_state import InputState
from tfckpt_trainer.training.pipelines.pipeline import POSITION_ERRORS


class RandomState(SealedDocument, frozen=True, kw_only=True):
    """The state of one worker outside variables: random generators of Python and NumPy.

    Attributes:
        elements_read: Number of elements that each input pipeline read, by name.
    """

    python: list[Any]
    numpy: list[Any]
    elements_read: dict[str, int] = {}


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


class SharedState:
    """Model, optimizer, step and further objects of the script that are equal on all workers.

    Attributes:
        checkpoint: The `tf.train.Checkpoint` that tracks them.
        contents: Names of the contents, for the record of a checkpoint.
    """

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
        # Created now on all workers: when the first save creates it, that takes a collective.
        self._counter = self.checkpoint.save_counter
        self.contents = [*(name for name, value in objects.items() if value is not None), "step"]

    @property
    def step(self) -> int:
        """The step as restored or last set."""
        return int(self._step.numpy())

    @property
    def size(self) -> int:
        """Size of the variables in a checkpoint, in bytes."""
        return sum(byte_size(variable) for _, variable in live_variables(self.checkpoint))

    @property
    def needs_all_workers(self) -> bool:
        """Whether reading it is a collective, because a variable is synchronised on read."""
        return any(is_read_by_all(variable) for _, variable in live_variables(self.checkpoint))

    def set_step(self, step: int) -> None:
        """Sets the step that the next save stores."""
        self._step.assign(step)
        self._counter.assign_add(1)

    def write(self, prefix: Path) -> None:
        """Writes the state under `prefix`."""
        self.checkpoint.write(str(prefix))

    def compare(self, prefix: Path) -> Comparison:
        """Compares the checkpoint at `prefix` with the live objects; changes nothing."""
        return compare(self.checkpoint, prefix)

    def restore(self, prefix: Path) -> None:
        """Restores the state in place, on every replica of this worker."""
        recreate_iterators(self.checkpoint)
        self.checkpoint.read(str(prefix)).assert_existing_objects_matched()

    def restore_variables(self, prefix: Path, matches: Iterable[Match]) -> None:
        """Restores only these variables in place."""
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
    """The state of one worker: input position, unsynchronised variables, random state.

    Attributes:
        inputs: The input pipelines.
    """

    def __init__(self, model: Any, inputs: InputState, extra: Mapping[str, Any]) -> None:
        self._variables = [v for v in getattr(model, "variables", []) if not v.trainable]
        replica_values = [list(components(variable)) for variable in self._variables]
        self._objects = {"replica_values": replica_values, **extra}
        self._checkpoint = tf.train.Checkpoint(**self._objects)
        inputs.add_tracked(self._checkpoint)
        self._extra = list(extra)
        self.inputs = inputs

    @property
    def contents(self) -> list[str]:
        """Names of the contents, for the record of a checkpoint."""
        return [
            *self.inputs.contents,
            *(["unsynchronised variables and seeds"] if self._variables else []),
            "random state",
            *self._extra,
        ]

    @property
    def variable_ids(self) -> set[int]:
        """Identities of the variables whose values may differ between workers."""
        return {id(raw_variable(variable)) for variable in self._variables}

    def write(self, prefix: Path) -> None:
        """Writes the state under `prefix`, with what is possible of the input pipelines."""
        try:
            self._write_checkpoint(prefix)
        except POSITION_ERRORS:
            if not self.inputs.degrade():
                raise
            self._write_checkpoint(prefix)
        python_state = random.getstate()
        kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
        store(
            self.random_state_path(prefix),
            RandomState(
                python=[python_state[0], list(python_state[1]), python_state[2]],
                numpy=[str(kind), np.asarray(keys).tolist(), position, has_gauss, gauss],
                elements_read=self.inputs.elements,
            ),
        )

    def _write_checkpoint(self, prefix: Path) -> None:
        tf.train.Checkpoint(**self.inputs.objects, **self._objects).write(str(prefix))

    @staticmethod
    def random_state_path(prefix: Path) -> Path:
        """Returns the path of the random state of Python and NumPy that belongs to `prefix`."""
        return prefix.with_name(f"{prefix.name}.json")

    def compare(self, prefix: Path) -> Comparison:
        """Compares the state saved at `prefix` with the live objects; changes nothing."""
        return compare(self._checkpoint, prefix)

    def load_random_state(self, prefix: Path) -> RandomState:
        """Returns the random state saved at `prefix`; changes nothing.

        Raises:
            DamagedFileError: It cannot be read.
        """
        return load(self.random_state_path(prefix), RandomState)

    def restore(self, prefix: Path, random_state: RandomState) -> list[str]:
        """Restores the state in place; iterators are created anew.

        Args:
            prefix: Prefix under which it was saved.
            random_state: The result of `load_random_state`.

        Returns:
            What was done with each input pipeline that is not at its exact position.
        """
        recreate_iterators(self._checkpoint)
        status = self._checkpoint.read(str(prefix)).assert_existing_objects_matched()
        # The input pipelines take their part themselves.
        status.expect_partial()
        done = self.inputs.restore(prefix, random_state.elements_read)
        # Skipping elements may run code of the script that draws random numbers.
        version, keys, gauss = random_state.python
        random.setstate((version, tuple(keys), gauss))
        kind, state, *rest = random_state.numpy
        np.random.set_state((kind, np.array(state, np.uint32), *rest))
        return done


class UserState:
    """Values of the script that are saved with a checkpoint, of types that JSON supports.

    Attributes:
        shared: Values that are equal on all workers; the chief's are saved.
        worker: Values of this worker.
        before_save: Functions to call before these values are saved.
        after_restore: Functions to call after they were restored.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self.shared: dict[str, Any] = {}
        self.worker: dict[str, Any] = {}
        self.before_save: list[Callable[[], None]] = []
        self.after_restore: list[Callable[[], None]] = []

    def collect(self, facts: WorkerFacts) -> tuple[dict[str, Any], WorkerFacts]:
        """Returns the shared values, and `facts` with the values of this worker.

        Raises:
            UsageError: JSON does not support a value.
        """
        for act in self.before_save:
            act()
        worker = _as_json("worker_state", self.worker)
        return _as_json("state", self.shared), msgspec.structs.replace(facts, state=worker)

    def restore(self, record: CheckpointRecord | None, *, worker_restored: bool) -> None:
        """Restores the values from a checkpoint's record.

        Args:
            record: None if another program saved the checkpoint; then all values are removed.
            worker_restored: Whether the state of each worker was restored too. If not, the
                values of this worker are removed.
        """
        self.shared.clear()
        self.worker.clear()
        if record is not None:
            self.shared.update(record.state)
            mine = [facts.state for facts in record.workers if facts.index == self._index]
            self.worker.update(mine[0] if worker_restored and mine else {})
        for act in self.after_restore:
            act()


@dataclass(frozen=True)
class TrainingState:
    """Everything that a save records and a restore brings back.

    Attributes:
        shared: Variables that are equal on all workers.
        worker: Variables, input position and random state of this worker.
        user: Values of the script.
        position: Step, branch and parent.
    """

    shared: SharedState
    worker: WorkerState
    user: UserState
    position: Position

    @property
    def contents(self) -> list[str]:
        """Names of the contents, for the record of a checkpoint."""
        return [*self.shared.contents, *self.worker.contents]


def _as_json(name: str, values: dict[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, value in values.items():
        try:
            converted[str(key)] = msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"run.{name}[{key!r}] is a {type(value).__name__}, which cannot be saved as JSON "
                f"({error}). Use numbers, strings, lists and dictionaries."
            ) from None
    return converted
