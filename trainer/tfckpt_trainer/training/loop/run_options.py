"""What a script chose for its run, checked before anything is created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards import Guard
from tfckpt_trainer.rundir.records.check import CheckOrder
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.loop.save_schedule import SaveWhen
from tfckpt_trainer.training.steps.dataset_end import OnDatasetEnd


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `TrainingRun`, which documents them.

    Attributes:
        order: What to check, if this process was started by a check.
    """

    total_steps: int | None
    save_every_steps: int | None
    save_every_seconds: float | None
    save_on_improvement: str | None
    save_when: Sequence[SaveWhen]
    saving: SaveOptions
    tensorboard: str | Path | None
    retention: RetentionSettings
    partial: bool
    on_dataset_end: OnDatasetEnd
    random_seed: int | None
    guards: Sequence[Guard]
    order: CheckOrder | None = None

    def check(self) -> None:
        """Checks the values.

        Raises:
            UsageError: An option is invalid.
        """
        check_counts(total_steps=self.total_steps, save_every_steps=self.save_every_steps)
        self.retention.check()
        self.saving.check()
        if self.tensorboard is not None:
            refuse_url(self.tensorboard, "the directory of TensorBoard")

    def of_check(self, order: CheckOrder) -> RunOptions:
        """Returns those of a check, which saves by itself, in a directory of its own."""
        return replace(
            self,
            order=order,
            save_every_steps=None,
            save_every_seconds=None,
            save_on_improvement=None,
            save_when=(),
            guards=(),
            saving=replace(self.saving, fallback_directory=None),
            tensorboard=None,
            retention=replace(self.retention, policy=Policy()),
        )


def check_counts(**counts: Any) -> None:
    """Checks options that count something, given by name; None is no option.

    Raises:
        UsageError: One is no whole number, or less than 1.
    """
    for name, value in counts.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1.")


def guards_of(given: Iterable[Guard | str]) -> tuple[Guard, ...]:
    """Returns what a script passed as `guards`.

    Raises:
        UsageError: One is no guard.
    """
    if isinstance(given, str):
        raise UsageError(f"guards is {given!r}; pass a list: guards=[{given!r}].")
    guards = tuple(Guard.parse(guard) if isinstance(guard, str) else guard for guard in given)
    for guard in guards:
        if not isinstance(guard, Guard):
            raise UsageError(f"guards=[…] has {guard!r}; expected a Guard or its text.")
    return guards
