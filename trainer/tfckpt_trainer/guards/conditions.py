"""The conditions of guards, one class each. To add one, write it, and add it to `CONDITIONS`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tfckpt_trainer.guards.terms import Metric, Term

EVERY_METRIC = "*"


class StepReading(NamedTuple):
    """What conditions look at: one step of one worker.

    Attributes:
        step: Steps done.
        at: When, in seconds since the epoch.
        seconds: How long the step took; None if that says nothing, as after a pause.
        metrics: The metrics that were reported in this step.
        saved_at: When the newest checkpoint was saved, else when training began; None if unknown.
        disk_full_in: Seconds until the disk is full, if saves go on like this; None if unknown.
    """

    step: int
    at: float
    seconds: float | None = None
    metrics: Mapping[str, float] = {}
    saved_at: float | None = None
    disk_full_in: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Why a condition holds.

    Attributes:
        what: A clause, such as `loss is NaN`.
        began: The first step in which it held.
        values: The values that it was judged by, by name. NaN and infinities are texts.
        window: The earlier values that they were compared with, in order.
    """

    what: str
    began: int
    values: dict[str, float | str] = {}
    window: list[float] = []


@dataclass
class Condition(Term):
    """Base class of all conditions."""

    def look(self, reading: StepReading) -> Evidence | None:
        """Looks at a step; returns evidence if the condition holds.

        Each worker calls this after each step.
        """
        raise NotImplementedError

    def sees(self, reading: StepReading) -> bool:
        """Whether a step says anything about the condition."""
        del reading
        return True

    def restored(self, step: int) -> None:
        """Forgets what was seen of steps after `step`: training went back to it."""


@dataclass
class NotFinite(Condition):
    """A metric is NaN or infinite; `*` is every metric."""

    example = "not_finite loss"

    metric: Metric = EVERY_METRIC

    def look(self, reading: StepReading) -> Evidence | None:
        """Looks at the metrics."""
        metrics = reading.metrics
        if self.metric != EVERY_METRIC:
            if math.isfinite(metrics.get(self.metric, 0.0)):
                return None
        elif all(map(math.isfinite, metrics.values())):
            return None
        names = metrics if self.metric == EVERY_METRIC else (self.metric,)
        broken = {name: metrics[name] for name in names if not math.isfinite(metrics[name])}
        what = ", ".join(f"{name} is {value_text(value)}" for name, value in broken.items())
        return Evidence(
            what=what,
            began=reading.step,
            values={name: json_number(value) for name, value in broken.items()},
        )

    def sees(self, reading: StepReading) -> bool:
        """Whether the metric was reported."""
        return (
            bool(reading.metrics) if self.metric == EVERY_METRIC else self.metric in reading.metrics
        )


CONDITIONS: tuple[type[Condition], ...] = (NotFinite,)
"""All conditions that texts can have."""


def json_number(value: float) -> float | str:
    """Returns a number as JSON can hold it: NaN and infinities become texts."""
    return value if math.isfinite(value) else value_text(value)


def value_text(value: float) -> str:
    """Returns a value of a metric as text, with four digits that matter."""
    return "NaN" if math.isnan(value) else f"{value:.4g}"
