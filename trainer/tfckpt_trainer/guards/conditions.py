"""The conditions of guards, one class each. To add one, write it, and add it to `CONDITIONS`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import msgspec

from tfckpt_trainer.guards.moving_window import MovingWindow
from tfckpt_trainer.guards.terms import Metric, Number, Steps, Term, Within
from tfckpt_trainer.words.counts import three_digits

EVERY_METRIC = "*"

_LONGEST_WINDOW = 200

SLOW_IN_A_ROW = 10
"""As many slow steps in a row are needed: a single one may be a save."""

Times = Annotated[float, msgspec.Meta(gt=0, description="a number above 0")]
Window = Annotated[
    int, msgspec.Meta(ge=20, le=100_000, description="a whole number of steps, 20 to 100,000")
]
Mode = Annotated[Literal["min", "max"], msgspec.Meta(description="min or max")]


class StepReading(NamedTuple):
    """What conditions look at: one step of one worker.

    Attributes:
        step: Steps done.
        at: When, in seconds since the epoch.
        seconds: How long the step took; None if that says nothing, as after a pause.
        metrics: The metrics that were reported in this step.
        saved_at: When the newest checkpoint was saved, else when training began, later by the time
            of pauses since; None if unknown.
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
        values: The values that it was judged by, by name. NaN and infinities become texts.
        window: The newest of the values that they were compared with, in order; at most 200.
    """

    what: str
    began: int
    values: Mapping[str, float | str] = {}
    window: Sequence[float] = ()

    def __post_init__(self) -> None:
        # JSON has no NaN, and a condition of a script may have numbers of NumPy.
        values = {name: _json_value(value) for name, value in self.values.items()}
        msgspec.structs.force_setattr(self, "values", values)
        window = [float(value) for value in self.window if math.isfinite(value)]
        msgspec.structs.force_setattr(self, "window", window[-_LONGEST_WINDOW:])


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
class MetricCondition(Condition):
    """Base class of conditions on one metric."""

    metric: Metric

    def sees(self, reading: StepReading) -> bool:
        """Whether the metric was reported."""
        return self.metric in reading.metrics


@dataclass
class NotFinite(MetricCondition):
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
            values=broken,
        )

    def sees(self, reading: StepReading) -> bool:
        """Whether the metric was reported."""
        return (
            bool(reading.metrics) if self.metric == EVERY_METRIC else self.metric in reading.metrics
        )


@dataclass
class Spike(MetricCondition):
    """A metric is more than `deviations` robust deviations above the median of the last steps.

    The deviation is the median absolute deviation (MAD), scaled to the standard deviation of
    normal noise. NaN and infinities are no spikes: that is `not_finite`.
    """

    example = "spike loss deviations=8"

    deviations: Times = 8.0
    window: Window = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recent = MovingWindow(self.window)

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares the metric with its last values."""
        value = reading.metrics.get(self.metric)
        if value is None or not math.isfinite(value):
            return None
        recent = self._recent
        evidence = None
        if recent.is_usable and recent.may_be_spike(value, self.deviations):
            evidence = self._judge(value, reading.step)
        recent.add(reading.step, value)
        return evidence

    def _judge(self, value: float, step: int) -> Evidence | None:
        median = self._recent.median
        above = (value - median) / self._recent.deviation(value)
        if not above > self.deviations:
            return None
        return Evidence(
            what=f"{self.metric} is {value_text(value)}, {above:.3g} deviations above "
            f"{value_text(median)}, the median of {len(self._recent)} steps",
            began=step,
            values={self.metric: value, "median": median, "deviations": above},
            window=self._recent.values,
        )

    def restored(self, step: int) -> None:
        """Forgets later values."""
        self._recent.forget_after(step)


@dataclass
class NoImprovement(MetricCondition):
    """A metric has not improved for so many steps."""

    example = "no_improvement val_loss steps=1000 mode=min"

    steps: Steps = 1000
    mode: Mode = "min"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bests: list[tuple[int, float]] = []
        self._since: int | None = None

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares the metric with its best value."""
        value = reading.metrics.get(self.metric)
        if value is None or math.isnan(value):
            return None
        step, best = self._bests[-1] if self._bests else (reading.step, math.nan)
        is_better = value < best if self.mode == "min" else value > best
        if is_better or not self._bests:
            self._remember(reading.step, value)
            return None
        since = max(step, self._since or 0)
        if reading.step - since < self.steps:
            return None
        return Evidence(
            what=f"{self.metric} is {value_text(value)}; it was best at step {step:,}, with "
            f"{value_text(best)}",
            began=since + 1,
            values={self.metric: value, "best": best, "best_step": step},
        )

    def _remember(self, step: int, value: float) -> None:
        self._bests.append((step, value))
        if len(self._bests) > _MOST_BESTS:
            del self._bests[: _MOST_BESTS // 2]

    def restored(self, step: int) -> None:
        """Forgets later bests, and counts from this step on."""
        self._bests = [best for best in self._bests if best[0] <= step]
        self._since = step


_MOST_BESTS = 1000
"""Earlier bests that are kept for a restore."""


@dataclass
class Above(MetricCondition):
    """A metric is above a bound."""

    example = "above gradient_norm 100"

    value: Number

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares the metric with the bound."""
        value = reading.metrics.get(self.metric)
        if value is None or not value > self.value:
            return None
        return _beyond(self.metric, value, "above", self.value, reading.step)


@dataclass
class Below(MetricCondition):
    """A metric is below a bound."""

    example = "below accuracy 0.5"

    value: Number

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares the metric with the bound."""
        value = reading.metrics.get(self.metric)
        if value is None or not value < self.value:
            return None
        return _beyond(self.metric, value, "below", self.value, reading.step)


@dataclass
class SlowSteps(Condition):
    """Ten steps in a row took more than `times` the median of the last steps."""

    example = "slow_steps times=3"

    times: Times = 3.0
    window: Window = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recent = MovingWindow(self.window)
        self._slow: list[int] = []

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares the time of the step with those of the last steps."""
        seconds, recent = reading.seconds, self._recent
        if seconds is None:
            return None
        is_slow = recent.is_usable and seconds > self.times * recent.median
        if is_slow:
            self._slow = [*self._slow, reading.step][-SLOW_IN_A_ROW:]
        elif self._slow:
            self._slow = []
        evidence = None
        if len(self._slow) == SLOW_IN_A_ROW:
            evidence = Evidence(
                what=f"the last {SLOW_IN_A_ROW} steps took more than {self.times:g} times "
                f"{value_text(recent.median)} s, the median of {len(recent)} steps; this one took "
                f"{value_text(seconds)} s",
                began=self._slow[0],
                values={"seconds": seconds, "median": recent.median},
                window=recent.values,
            )
        recent.add(reading.step, seconds)
        return evidence

    def sees(self, reading: StepReading) -> bool:
        """Whether the time of the step says anything."""
        return reading.seconds is not None

    def restored(self, step: int) -> None:
        """Forgets later steps."""
        self._recent.forget_after(step)
        self._slow = []


@dataclass
class NoCheckpoint(Condition):
    """No checkpoint was saved for so long."""

    example = "no_checkpoint 2h"

    within: Within

    def look(self, reading: StepReading) -> Evidence | None:
        """Looks at the time of the newest save."""
        if reading.saved_at is None or not reading.at - reading.saved_at > self.within:
            return None
        seconds = reading.at - reading.saved_at
        what = f"no checkpoint was saved for {duration_text(seconds)}"
        return Evidence(what=what, began=reading.step, values={"seconds": seconds})


@dataclass
class DiskFull(Condition):
    """The disk will be full within so long, if saves go on like this."""

    example = "disk_full 2h"

    within: Within

    def look(self, reading: StepReading) -> Evidence | None:
        """Looks at the forecast."""
        seconds = reading.disk_full_in
        if seconds is None or not seconds < self.within:
            return None
        what = f"the disk will be full in {duration_text(seconds)}"
        return Evidence(what=what, began=reading.step, values={"seconds": seconds})


CONDITIONS: tuple[type[Condition], ...] = (
    NotFinite,
    Spike,
    NoImprovement,
    Above,
    Below,
    SlowSteps,
    NoCheckpoint,
    DiskFull,
)
"""All conditions that texts can have."""


def duration_text(seconds: float) -> str:
    """Returns a time with three digits: `1.50 h`, `42.0 s`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{three_digits(seconds / length)} {unit}"
    return f"{three_digits(seconds)} s"


def _json_value(value: float | str) -> float | str:
    """Returns a number as JSON can hold it: NaN and infinities become texts."""
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else value_text(value)


def value_text(value: float) -> str:
    """Returns a value of a metric as text, with four digits that matter."""
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def _beyond(metric: str, value: float, side: str, bound: float, step: int) -> Evidence:
    return Evidence(
        what=f"{metric} is {value_text(value)}, {side} {value_text(bound)}",
        began=step,
        values={metric: value},
    )
