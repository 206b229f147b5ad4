"""The checkpoint that `BackupAndRestore` of Keras 2 saves, from which a first start goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_integer
from tfckpt_trainer.catalog.directory.history import latest_of, read_state_list
from tfckpt_trainer.catalog.directory.other_formats import BACKUP_OF_CHIEF
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training.checkpoint.restores.restore_check import find_damage
from tfckpt_trainer.training.keras_library import keras
from tfckpt_trainer.training.state.adoption import Adoption, plan_adoption


@dataclass(frozen=True)
class BackupCheckpoint:
    """A checkpoint of Keras 2 with a model, its optimizer and the last epoch.

    Attributes:
        prefix: The path without `.index`.
        model: The model that goes on with it.
    """

    prefix: Path
    model: keras.Model

    def epoch(self, epoch_steps: int) -> int:
        """Returns the epoch to go on with; one that it has in part begins anew.

        Args:
            epoch_steps: Steps of an epoch.

        Raises:
            RefusedError: It is damaged, or not a backup of this model and optimizer.
        """
        index_file = self.prefix.with_name(f"{self.prefix.name}.index")
        stranger = RunDirectory(self.prefix.parent).stranger_of(index_file)
        problems = [f"it belongs to {stranger}"] if stranger else find_damage(self.prefix)
        if not problems:
            found = self._plan.comparison
            problems = [
                *found.different.values(),
                *(f"{path} is missing in the checkpoint" for path in found.missing),
                *(f"{key} is in the checkpoint and not in the model" for key in found.extra),
            ]
        if problems:
            raise RefusedError(problems[0])
        last, batch = (self._counter(name) for name in ("epoch", "batch"))
        if last is None or last < 0:
            raise RefusedError("no epoch is in it")
        # Without batches, it was saved after the epoch.
        is_whole = batch is None or batch in (-1, epoch_steps - 1)
        return last + is_whole

    def restore(self) -> None:
        """Restores the model and its optimizer."""
        self._plan.restore(self.prefix)

    @property
    def _plan(self) -> Adoption:
        root = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
        return plan_adoption(root, self.prefix)

    def _counter(self, name: str) -> int | None:
        entry = read_index(self.prefix).entries.get(f"ckpt_saved_{name}/.ATTRIBUTES/VARIABLE_VALUE")
        return None if entry is None else read_integer(self.prefix, entry)


def newest_backup(directories: Sequence[Path], model: keras.Model) -> BackupCheckpoint | None:
    """Returns the newest checkpoint of the first directory that has one; None without any.

    Args:
        directories: Those of the callbacks of the script.
        model: The model that goes on with it.
    """
    for directory in directories:
        chief = RunDirectory(directory / BACKUP_OF_CHIEF)
        name = latest_of(read_state_list(chief))
        if name:
            return BackupCheckpoint(chief.root / name, model)
    return None
