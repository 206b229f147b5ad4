"""The hyperparameters of a run: from its trainer, or from the checkpoint of its next start."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import give_account
from tfckpt_tui.services.runs.reading import read_run_briefly


@dataclass(frozen=True)
class HyperparametersOfRun:
    """All hyperparameters of a run.

    Attributes:
        values: By name.
        checkpoint: The checkpoint that they are from; None if a trainer told them.
    """

    values: dict[str, Hyperparameter]
    checkpoint: str | None


def read_hyperparameters(run: RunDirectory) -> HyperparametersOfRun:
    """Reads the hyperparameters of a run.

    Raises:
        TfckptError: It has none, or a file cannot be read.
    """
    reading = read_run_briefly(run, time.time())
    chief = reading.heartbeats.chief
    if chief is not None and give_account(reading, None).trainer_answers:
        if not chief.hyperparameters:
            raise TfckptError(
                f"The trainer in {run.root} has no hyperparameters that can be changed: they are "
                "found in Keras's optimizers. Declare others with run.tunable(…) in the script."
            )
        return HyperparametersOfRun(_by_name(chief.hyperparameters), None)
    resumed = resume_point(run)
    name = resumed.checkpoint if resumed is not None else None
    record = load_if_exists(run.record(name), CheckpointRecord) if name is not None else None
    if name is None or record is None or not record.hyperparameters:
        raise TfckptError(
            f"No hyperparameters of {run.root} are known: no trainer answers, and the newest "
            "checkpoint has none. Launch the run first."
        )
    return HyperparametersOfRun(_by_name(record.hyperparameters), clean(name))


def _by_name(values: list[Hyperparameter]) -> dict[str, Hyperparameter]:
    return {hyperparameter.name: hyperparameter for hyperparameter in values}
