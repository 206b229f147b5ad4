"""What a directory says about its checkpoints outside their own files: list, pins, last restore."""

from __future__ import annotations

from tfckpt_trainer.bundle.state_file import (
    StateFile,
    StateFileCondition,
    StateFileError,
    read_state_file,
)
from tfckpt_trainer.catalog.directory.history import load_head
from tfckpt_trainer.catalog.directory.pins import pinned_names
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.identity import Identity, identity_of


class Annotations:
    """TensorFlow's state file, the pins and the last restore of a run.

    Attributes:
        identity: The identity of the state file; None if it is missing.
        state: The content of the state file, if it is good.
        condition: The condition of the state file.
        listed: The position of each checkpoint in the state file.
        pins: The pinned checkpoints.
        head: The last restore.
        head_is_damaged: Whether `head.json` and its copy cannot be read.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.identity: Identity | None = None
        self.state: StateFile | None = None
        self.condition = StateFileCondition.MISSING
        self.listed: dict[str, int] = {}
        self.pins: frozenset[str] = frozenset()
        self.head, self.head_is_damaged = load_head(run)

    @property
    def is_managed(self) -> bool:
        """Whether what writes the state file keeps some checkpoints that it does not list.

        Those are `tf.train.CheckpointManager`, which writes when it kept one, and the `Saver` of
        TensorFlow 1, which lists several without times. `tf.train.Checkpoint.save` lists one.
        """
        state = self.state
        if state is None:
            return False
        return state.last_preserved is not None or (
            len(state.all_paths) > 1 and not state.timestamps
        )

    def refresh(self) -> bool:
        """Reads all of it again; returns whether anything changed."""
        identity = identity_of(self._run.state_file)
        is_changed = identity != self.identity
        if is_changed:
            self.identity = identity
            self.state, self.condition = _read_state(self._run)
            names = self.state.names if self.state is not None else ()
            self.listed = {name: place for place, name in enumerate(names)}
        pins, (head, damaged) = pinned_names(self._run), load_head(self._run)
        is_changed |= (pins, head, damaged) != (self.pins, self.head, self.head_is_damaged)
        self.pins, self.head, self.head_is_damaged = pins, head, damaged
        return is_changed


def _read_state(run: RunDirectory) -> tuple[StateFile | None, StateFileCondition]:
    if run.stranger_of(run.state_file):
        return None, StateFileCondition.OF_OTHERS
    try:
        state = read_state_file(run.state_file)
    except StateFileError as error:
        return None, error.condition
    return state, StateFileCondition.MISSING if state is None else StateFileCondition.GOOD
