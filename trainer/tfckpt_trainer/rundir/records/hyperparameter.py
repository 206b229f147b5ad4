"""Values of a run that can be changed while it trains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    Stored = float
else:
    # JSON has no number for NaN and infinity. They are stored as null, and are NaN when read.
    Stored = float | None


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a hyperparameter can have.

    Attributes:
        low: The lowest; None without one.
        high: The highest; None without one.
        above: Whether it must be above `low`, and not equal.
        below: Whether it must be below `high`, and not equal.
        whole: Whether it must be a whole number.
        largest: The largest value that its type holds; None if any number.
    """

    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    whole: bool = False
    largest: float | None = None

    @property
    def words(self) -> str:
        """What they allow, such as `a number, at least 0 and below 1`."""
        what = "a whole number" if self.whole else "a number"
        low = high = ""
        if self.low is not None:
            low = f"{'above' if self.above else 'at least'} {number(self.low)}"
        if self.high is not None:
            high = f"{'below' if self.below else 'at most'} {number(self.high)}"
        limits = " and ".join(filter(None, (low, high)))
        return f"{what}, {limits}" if limits else what

    def allow(self, value: float) -> bool:
        """Whether a hyperparameter can have this value."""
        if not math.isfinite(value) or (self.whole and value != math.floor(value)):
            return False
        if self.largest is not None and abs(value) > self.largest:
            return False
        low, high = self.low, self.high
        is_low = low is not None and (value < low or (self.above and value == low))
        is_high = high is not None and (value > high or (self.below and value == high))
        return not (is_low or is_high)


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is not complete.

    Attributes:
        value: The value at its end.
        start: The value at its beginning; None before that.
        begins: Steps done when it begins.
        steps: Over how many steps the value goes to `value` in equal parts; 0 for at once.
        by: Who asked for it.
        until: Steps done when the schedule of the value goes on; None for a value without one.
    """

    value: float
    begins: int
    start: float | None = None
    steps: int = 0
    by: str = ""
    until: int | None = None

    @property
    def ends(self) -> int:
        """Steps done when it is complete."""
        return self.begins + self.steps

    def value_at(self, step: int, start: float) -> float:
        """Returns the value after so many steps, in a change that began with `start`."""
        done = step - self.begins
        if done >= self.steps:
            return self.value
        return start + (self.value - start) * done / self.steps


class ConfirmedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made or planned, as the event log keeps it.

    Attributes:
        step: Steps done when it was confirmed.
        values: The values at its end, by name.
        begins: Steps done when it begins.
        over: Over how many steps the values change; 0 for at once.
        until: Steps done when their schedules go on; None for values that follow none.
        script_values: What the script began with, as text, by name.
        by: Who asked for it.
        rule: The guard that did; empty if none.
    """

    step: int
    values: dict[str, float]
    begins: int
    over: int = 0
    until: int | None = None
    script_values: dict[str, str] = {}
    by: str = ""
    rule: str = ""

    @property
    def words(self) -> str:
        """The change, such as `learning_rate 0.0003 after step 385`."""
        values = ", ".join(f"{name} {number(value)}" for name, value in self.values.items())
        return f"{values} after step {self.begins:,}"

    def is_held_by(self, saved: dict[str, Hyperparameter]) -> bool:
        """Whether a checkpoint of the same step was saved after it."""
        return all(
            name in saved and saved[name].has_taken(value, self)
            for name, value in self.values.items()
        )


class Hyperparameter(msgspec.Struct, frozen=True, kw_only=True):
    """A hyperparameter, and who changed it last.

    Attributes:
        value: Its value at `step`; NaN if it was not finite. A schedule or the script may have
            changed it since.
        script_value: Its value when the script created the run.
        bounds: The values that it can have.
        what: What the value is, if its name does not say it, as a clause.
        step: Steps done when the value was read.
        changed_at: Steps done when a command changed it last; None if none did.
        changed_to: What the command changed it to.
        changed_by: Who asked for that.
        planned: A change that is not complete.
        schedule: Name of the schedule that it follows; empty without one.
        until: While a change replaces its schedule, the steps done when that goes on.
    """

    name: str
    value: Stored
    script_value: Stored
    bounds: Bounds = Bounds()
    what: str = ""
    step: int = 0
    changed_at: int | None = None
    changed_to: float | None = None
    changed_by: str = ""
    planned: PlannedChange | None = None
    schedule: str = ""
    until: int | None = None

    def __post_init__(self) -> None:
        for field in ("value", "script_value"):
            if getattr(self, field) is None:
                msgspec.structs.force_setattr(self, field, math.nan)

    def has_taken(self, value: float, change: ConfirmedChange) -> bool:
        """Whether this value was set, or is planned, by a change."""
        planned = self.planned
        if planned is not None and (planned.value, planned.begins) == (value, change.begins):
            return True
        return (self.changed_to, self.changed_at) == (value, change.step)

    def acts_after(self, step: int) -> bool:
        """Whether a change has to act after so many steps."""
        begins = self.planned is not None and self.planned.begins <= step
        return begins or (self.until is not None and self.until <= step)

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` a change acts after; None without a change."""
        acts = [self.planned.begins] if self.planned is not None else []
        acts += [self.until] if self.until is not None else []
        return max(1, min(acts) - step) if acts else None


class HyperparametersOfWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker tells the others of its hyperparameters."""

    values: list[Hyperparameter]


def number(value: float) -> str:
    """Returns a value of a hyperparameter as text, with all digits that matter."""
    return f"{value:.9g}"


def problem_of_values(
    values: dict[str, Any],
    hyperparameters: dict[str, Hyperparameter],
    until: int | None = None,
) -> str:
    """Returns why not all hyperparameters can have these values, as sentences; empty if they can.

    Args:
        values: By name.
        hyperparameters: The hyperparameters of the run, by name.
        until: Steps done when their schedules go on; None to change values that follow none.
    """
    problems = []
    for name, value in values.items():
        if name not in hyperparameters:
            have = ", ".join(hyperparameters) or "none"
            problems.append(f"There is no hyperparameter {name}. The run has: {have}.")
        elif not hyperparameters[name].bounds.allow(value):
            bounds = hyperparameters[name].bounds
            words = bounds.words
            if bounds.largest is not None and abs(value) > bounds.largest:
                words += f", and its type holds at most {number(bounds.largest)}"
            problems.append(f"{name} cannot be {number(value)}; it must be {words}.")
        elif hyperparameters[name].schedule and until is None:
            problems.append(
                f"{name} follows {hyperparameters[name].schedule}. Replace it until a step, or "
                f"change {name}_factor."
            )
        elif until is not None and not hyperparameters[name].schedule:
            problems.append(f"{name} follows no schedule that goes on after a step.")
    return " ".join(problems)
