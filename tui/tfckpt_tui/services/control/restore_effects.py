"""What a restore changes: metrics there and now, hyperparameters, and guards that fired between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.lineage import RestorePlan
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, number
from tfckpt_trainer.words.counts import count
from tfckpt_tui.formats import units
from tfckpt_tui.formats.hyperparameters import planned_words
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import RunAccount

_MOST_METRICS = 4
_MOST_HYPERPARAMETERS = 6
_MOST_GUARDS = 3


@dataclass(frozen=True)
class MetricChange:
    """A metric at the checkpoint and now; None if it is not finite."""

    name: str
    there: float | None
    now: float | None


@dataclass(frozen=True)
class RestoreEffects:
    """What a restore changes beside the step and the branch.

    Attributes:
        metrics: The main metric and those of validation.
        hyperparameters: Those that get another value: as they are in the checkpoint, and their
            values now.
        guards: What guards did in the part of training that the restore leaves behind, oldest
            first.
    """

    metrics: tuple[MetricChange, ...] = ()
    hyperparameters: tuple[tuple[Hyperparameter, float], ...] = ()
    guards: tuple[EventEntry, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The effects in words, one kind each; safe to show."""
        lines: list[str] = []
        if self.metrics:
            lines.append("; ".join(map(_metric_words, self.metrics)) + ".")
        if self.hyperparameters:
            back = [_value_words(*change) for change in self.hyperparameters]
            more = len(back) - _MOST_HYPERPARAMETERS
            shown = back[:_MOST_HYPERPARAMETERS] + ([f"{more:,} more change"] if more > 0 else [])
            lines.append("; ".join(shown) + ".")
        if self.guards:
            newest = self.guards[-_MOST_GUARDS:]
            last = "; the last ones" if len(newest) < len(self.guards) else ""
            lines.append(f"Guards fired {count(len(self.guards), 'time')} after it{last}:")
            lines += [f"step {entry.step or 0:,}: {clean(entry.message)}" for entry in newest]
        return lines


def find_effects(
    plan: RestorePlan,
    account: RunAccount,
    event_log: Iterable[EventEntry],
) -> RestoreEffects:
    """Returns what a restore changes.

    Args:
        plan: The restore.
        account: The account of the run.
        event_log: Entries of the event log, oldest first.
    """
    status = account.chief.status if account.chief is not None else None
    values = {one.name: one.value for one in status.hyperparameters} if status is not None else {}
    saved = plan.target.hyperparameters
    passed, kept = plan.passed.last_steps, plan.kept.last_steps
    return RestoreEffects(
        metrics=_metrics(plan.target.metrics, status.metrics if status is not None else {}),
        hyperparameters=tuple(
            (saved[name], value)
            for name, value in values.items()
            if name in saved and saved[name].value != value
        ),
        guards=tuple(
            entry
            for entry in event_log
            if entry.kind is EventKind.GUARD and _is_on(passed, entry) and not _is_on(kept, entry)
        ),
    )


def _is_on(last_steps: Mapping[int, int], entry: EventEntry) -> bool:
    """Whether an event is on a line of training, given by the last step on each branch."""
    if entry.branch is None or entry.step is None:
        return False
    return entry.step <= last_steps.get(entry.branch, -1)


def _metrics(
    there: Mapping[str, float | None], now: Mapping[str, float | None]
) -> tuple[MetricChange, ...]:
    """Returns the main metric and those of validation, of the metrics known there and now."""
    names = there.keys() & now.keys()
    first = main_of(names)
    shown = sorted(
        (name for name in names if name == first or "val" in name.casefold()),
        key=lambda name: (name != first, name),
    )
    return tuple(MetricChange(name, there[name], now[name]) for name in shown[:_MOST_METRICS])


def _metric_words(change: MetricChange) -> str:
    there, now = units.metric(change.there), units.metric(change.now)
    return f"{clean(change.name)} is {there} there and {now} now"


def _value_words(saved: Hyperparameter, now: float) -> str:
    words = f"{clean(saved.name)} goes from {number(now)} back to {number(saved.value)}"
    return words if saved.planned is None else f"{words}, to be {planned_words(saved.planned)}"
