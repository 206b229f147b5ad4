"""The hyperparameters of a run: from its trainer, or from the checkpoint of its next start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import SetArguments
from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_trainer.rundir.records.hyperparameter import (
    Hyperparameter,
    PlannedChange,
    problem_of_values,
)
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.units import finite
from tfckpt_tui.reports.hyperparameters import HyperparameterFacts
from tfckpt_tui.services.runs.account import NextStart, RunAccount, give_account
from tfckpt_tui.services.runs.brief_reading import read_next_start, read_run_briefly

_BEFORE_THE_LOOP = {Activity.STARTING, Activity.RESTORING}
_NEEDS_UNTIL = Advice.of("Add `--until-step N`.", "Type that step.")


@dataclass(frozen=True)
class HyperparametersOfRun:
    """All hyperparameters of a run.

    Attributes:
        values: By name.
        checkpoint: The checkpoint that they are from, safe to show; None if a trainer told them,
            or if there is no checkpoint.
        step: The steps that are done; None if unknown.
        is_live: Whether a trainer told them, and can change them.
        is_starting: Whether that trainer has not begun its loop, and may not know them yet.
    """

    values: Mapping[str, Hyperparameter]
    checkpoint: str | None
    step: int | None
    is_live: bool
    is_starting: bool

    @property
    def why_none(self) -> str:
        """Why there are none, as sentences; empty if there are."""
        if self.values:
            return ""
        if self.is_starting:
            return "The trainer is starting: its hyperparameters are known once it trains."
        if self.is_live:
            return (
                "The trainer has no hyperparameters that can be changed: they are found in Keras's "
                "optimizers. Declare others with run.tunable(…) in the script."
            )
        return (
            "No hyperparameters are known: no trainer answers, and the checkpoint of the next "
            "start has none. They are known once the run trains."
        )

    def require_possible(self, values: Mapping[str, float], until: int | None = None) -> None:
        """Makes sure that they can have these values.

        Args:
            values: By name.
            until: Steps done when their schedules go on; None for values that follow none.

        Raises:
            RefusedError: There is none of a name, or it cannot have this value.
        """
        problem = self.why_none or problem_of_values(dict(values), dict(self.values), until)
        if problem:
            follows = any(self.values[name].schedule for name in values if name in self.values)
            raise RefusedError(problem, _NEEDS_UNTIL if follows and until is None else None)

    def change(
        self,
        values: Mapping[str, float],
        *,
        at_step: int | None = None,
        over: int = 0,
        until_step: int | None = None,
    ) -> SetArguments:
        """Returns the command that changes some.

        Args:
            values: The new values, by name.
            at_step: Steps done when the change begins; None for the present step.
            over: Over how many steps the values change; 0 for at once.
            until_step: Steps done when the schedules go on that they replace; None for values that
                follow no schedule.

        Raises:
            RefusedError: There is none of a name, it cannot have this value, or the step is past.
        """
        self.require_possible(values, until_step)
        change = SetArguments(
            values=dict(values), at_step=at_step, over=over, until_step=until_step
        )
        problem = change.problem_at(self.step) if self.step is not None else ""
        if problem:
            raise RefusedError(problem)
        return change


def hyperparameters_of(
    account: RunAccount, start: NextStart | None, record: CheckpointRecord | None
) -> HyperparametersOfRun:
    """Returns the hyperparameters of a run: those of its trainer, or else of its next start.

    Args:
        account: The account of the run.
        start: What the next start continues from.
        record: The record of that checkpoint.
    """
    name: str | None = None
    is_starting = False
    if account.trainer_answers and account.chief is not None:
        found = account.chief.status.hyperparameters
        is_starting = account.chief.status.activity in _BEFORE_THE_LOOP
    elif start is None or record is None:
        found = []
    else:
        name = clean(record.name)
        found = [_at_start(one, start.values.get(one.name)) for one in record.hyperparameters]
    values = {hyperparameter.name: hyperparameter for hyperparameter in found}
    return HyperparametersOfRun(values, name, account.step, account.trainer_answers, is_starting)


def _at_start(saved: Hyperparameter, value: float | None) -> Hyperparameter:
    """Returns a hyperparameter of a checkpoint, which a start may change after its restore."""
    if value is None:
        return saved
    return msgspec.structs.replace(saved, planned=PlannedChange(value=value, begins=saved.step))


def concerns(entry: EventEntry, name: str) -> bool:
    """Whether an event says that the hyperparameter called `name` got another value."""
    changes = entry.details.get("hyperparameters")
    return isinstance(changes, list) and any(
        isinstance(change, dict) and change.get("name") == name for change in changes
    )


def read_hyperparameters(run: RunDirectory) -> HyperparametersOfRun:
    """Reads the hyperparameters of a run.

    Raises:
        TfckptError: A file cannot be read.
        OSError: The directory cannot be read.
    """
    now = time.time()
    account = give_account(read_run_briefly(run, now), None)
    start = None if account.trainer_answers else read_next_start(run, now)
    record = None
    if start is not None:
        record = load_if_exists(run.record(start.checkpoint), CheckpointRecord)
    return hyperparameters_of(account, start, record)


def facts_of(hyperparameter: Hyperparameter) -> HyperparameterFacts:
    """Returns what reports tell of a hyperparameter."""
    planned = hyperparameter.planned
    return HyperparameterFacts(
        name=clean(hyperparameter.name),
        value=finite(hyperparameter.value),
        script_value=finite(hyperparameter.script_value),
        allowed=hyperparameter.bounds.words,
        step=hyperparameter.step,
        changed_at=hyperparameter.changed_at,
        changed_by=clean(hyperparameter.changed_by),
        planned_value=planned.value if planned is not None else None,
        planned_step=planned.ends if planned is not None else None,
        schedule=clean(hyperparameter.schedule),
        until=hyperparameter.until,
    )
