"""What a script chose for its run, checked before anything is created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards import Guard
from tfckpt_trainer.rundir.records.check import CheckOrder
from tfckpt_trainer.rundir.records.run import SAVES_AT_END
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.scripts.script_objects import name_of
from tfckpt_trainer.training.checkpoint.saves.default_saves import EVERY_SECONDS, ByDefault
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.loop.save_schedule import SaveWhen
from tfckpt_trainer.training.steps.dataset_end import OnDatasetEnd
from tfckpt_trainer.words.counts import count


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `TrainingRun`, which documents them.

    Attributes:
        by_default: When to save, and what to keep, if the script gave no save option.
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
    by_default: ByDefault | None = None
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

    @property
    def saves(self) -> str:
        """When the run saves, and what it keeps of that by default, for display."""
        if self.by_default is not None:
            return str(self.by_default)
        when = []
        if self.save_every_steps is not None:
            when.append(f"every {count(self.save_every_steps, 'step')}")
        if self.save_every_seconds is not None:
            when.append(f"every {self.save_every_seconds:g} s")
        if self.save_on_improvement is not None:
            when.append(f"when {self.save_on_improvement.rpartition(':')[0]} improves")
        when += [f"as {name_of(own)} says" for own in self.save_when]
        return ", ".join(when) or SAVES_AT_END

    def of_check(self, order: CheckOrder) -> RunOptions:
        """Returns those of a check, which saves by itself, in a directory of its own."""
        return replace(
            self,
            order=order,
            by_default=None,
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


class SaveTimes(NamedTuple):
    """When a run saves, and what it keeps.

    Attributes:
        every_steps: As `save_every_steps` of `TrainingRun`.
        every_seconds: As `save_every_seconds`.
        policy: As `retention`.
        by_default: What follows if the script gave no save option; None if it did.
    """

    every_steps: int | None
    every_seconds: float | None
    policy: Policy
    by_default: ByDefault | None


def choose_save_times(
    every_steps: int | ByDefault | None,
    every_seconds: float | ByDefault | None,
    retention: Policy | ByDefault | None,
    *,
    has_triggers: bool,
) -> SaveTimes:
    """Returns what a script chose, or the default if it gave no save option.

    Args:
        every_steps: As `save_every_steps` of `TrainingRun`.
        every_seconds: As `save_every_seconds`.
        retention: As `retention`.
        has_triggers: Whether the script has save triggers of another kind.
    """
    default = None
    if isinstance(every_steps, ByDefault):
        if isinstance(every_seconds, ByDefault) and not has_triggers:
            default = every_steps
        every_steps = default.epoch_steps if default is not None else None
    if isinstance(every_seconds, ByDefault):
        every_seconds = EVERY_SECONDS if default is not None else None
    if isinstance(retention, ByDefault):
        retention = default.policy if default is not None else None
    return SaveTimes(every_steps, every_seconds, retention or Policy(), default)
