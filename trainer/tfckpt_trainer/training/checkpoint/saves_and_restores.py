"""Puts together what saves and restores the checkpoints of a run."""

from __future__ import annotations

from tfckpt_trainer.catalog.retention.policy import RetentionSettings
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training.checkpoint.restores.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.restores.restorer import Restorer
from tfckpt_trainer.training.checkpoint.saves.automatic_prune import AutomaticPruner
from tfckpt_trainer.training.checkpoint.saves.disk_space import DiskSpace
from tfckpt_trainer.training.checkpoint.saves.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saves.saver import Saver
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class SavesAndRestores:
    """Saves and restores of a run.

    Attributes:
        saver: Saves once.
        saves: Decides how each save is done, and prunes after it.
        restores: Restores at the start and in place.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        state: TrainingState,
        options: SaveOptions,
        retention: RetentionSettings,
    ) -> None:
        pruner = AutomaticPruner(run, retention, telemetry.event_log)
        disk = DiskSpace(run, state.shared, options, pruner.make_room)
        self.saver = Saver(run, group, state, options, disk, telemetry.event_log)
        self.saves = SaveManager(run, self.saver, state, telemetry, pruner, options)
        restorer = Restorer(run, group, state)
        self.restores = RestoreManager(run, group, state, telemetry, restorer, self.saves)
