"""When a run saves without being asked: by triggers, such as every N steps, and by the clock."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol, TypeVar

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.scripts.script_objects import name_of, one_line
from tfckpt_trainer.training.checkpoint.state import Position
from tfckpt_trainer.training.steps.step_functions import StepsLeft
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

AnswerT = TypeVar("AnswerT")


class SaveWhen(Protocol):
    """A save trigger of a script: after which steps to save, and why.

    Any object with the method `reason` is one. It may also have a method `steps_left(step)`: it
    takes the steps done, and returns after how many more to call `reason`, or None for never. It
    must return the same on all workers. Messages name the trigger by its class, or as its
    `__str__` says.
    """

    def reason(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Returns why to save after this step, in a few words; None for no save.

        Each worker calls this after each call of the step function. The answer of the chief holds
        for all. If it raises an error, training goes on, and the event log says why.

        Args:
            step: Steps done.
            metrics: What the last step of the call reported, by name.
        """


class Trigger(Protocol):
    """What makes a run save after some of its calls. All workers use it together."""

    @property
    def steps_left(self) -> StepsLeft | None:
        """Tells after how many more steps `reason` is asked next; None for after each call."""

    def reason(self, step: int, metrics: StepMetrics) -> str:
        """Returns why to save, equally on all workers; empty for no save.

        Args:
            step: Steps done.
            metrics: In `fresh`, what the last step of the call reported.
        """


class EverySteps:
    """Saves after each multiple of a number of steps."""

    def __init__(self, every: int, words: str = "") -> None:
        """Takes the number, and what to give as the reason in place of it."""
        self._every = every
        self._words = words or f"every {every} steps"

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` the next multiple is."""
        return steps_to_multiple(step, self._every)

    def reason(self, step: int, metrics: StepMetrics) -> str:
        """See `Trigger`."""
        return self._words


class Improvement:
    """Detects a new best value of one metric, in agreement with all workers.

    The best value so far is part of the position: it is saved and restored with a checkpoint.

    Attributes:
        metric: Name of the metric.
    """

    steps_left = None

    def __init__(self, rule: str, group: WorkerGroup, position: Position) -> None:
        """Parses the rule `METRIC:min` or `METRIC:max`.

        Raises:
            UsageError: The rule has another form.
        """
        self.metric, _, mode = (part.strip() for part in rule.rpartition(":"))
        if not self.metric or mode not in {"min", "max"}:
            raise UsageError(
                f"save_on_improvement is {rule!r}; expected METRIC:min or METRIC:max, such as "
                "validation_loss:min."
            )
        self._mode: Literal["min", "max"] = "min" if mode == "min" else "max"
        self._group = group
        self._position = position

    def reason(self, step: int, metrics: StepMetrics) -> str:
        """Returns that the metric has a new best value; empty if it has none.

        If the values do not come from an all-reduce, the chief's decides.
        """
        value = metrics.fresh.get(self.metric)
        if value is None:
            return ""
        better = self._is_better(value)
        if self.metric not in metrics.reduced:
            better = self._group.any(better and self._group.is_chief)
        if not better:
            return ""
        self._position.best[self.metric] = value
        return f"{self.metric} improved to {value:.6g}"

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        best = self._position.best.get(self.metric)
        if best is None:
            return True
        return value < best if self._mode == "min" else value > best


def steps_to_multiple(step: int, every: int | None) -> int | None:
    """Returns how many more steps than `step` the next multiple of `every` is; None without."""
    return every and every - step % every


class OwnTrigger:
    """Asks a trigger of a script. If that fails, the event log says why, and nothing is saved."""

    def __init__(self, trigger: SaveWhen, group: WorkerGroup, note: Callable[[str], None]) -> None:
        """Takes it.

        Args:
            trigger: The trigger.
            group: The workers.
            note: Writes a line to the event log, on the chief only.
        """
        self._trigger = trigger
        self._group = group
        self._note = note
        self._name = name_of(trigger)
        self._noted: set[type[Exception]] = set()
        own = getattr(trigger, "steps_left", None)
        self.steps_left: StepsLeft | None = own and partial(self._left, own)

    def reason(self, step: int, metrics: StepMetrics) -> str:
        """Returns the reason of the chief's trigger; empty for no save."""
        # Outside of what may fail: if a step failed, a look at its metrics is what raises that.
        reported = dict(metrics.fresh)
        reason = self._asked(lambda: self._own_reason(step, reported)) or ""
        # Its class may look at anything, such as a file. So the workers have to agree.
        if not self._group.any(bool(reason) and self._group.is_chief):
            return ""
        return self._group.broadcast(reason, str) or ""

    def _own_reason(self, step: int, metrics: Mapping[str, float]) -> str:
        reason = self._trigger.reason(step, metrics)
        if not isinstance(reason, str | None):
            raise TypeError(f"reason returned {reason!r}; expected a text, or None")
        return one_line(reason or "")

    def _left(self, own: StepsLeft, step: int) -> int | None:
        def left() -> int | None:
            steps = own(step)
            return None if steps is None else operator.index(steps)

        return self._asked(left)

    def _asked(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        try:
            return ask()
        except Exception as error:
            # It may fail after each step.
            if type(error) not in self._noted:
                self._noted.add(type(error))
                self._note(
                    f"The save trigger {self._name} failed: {one_line(repr(error))}. Training goes "
                    "on without this save. If it fails so again, no line follows."
                )
            return None


class SaveSchedule:
    """Tells after each call whether a save is due.

    Triggers answer equally on all workers, so each worker decides by itself. Clocks differ, so the
    chief decides by the clock and tells the others.
    """

    def __init__(
        self, triggers: Sequence[Trigger], every_seconds: float | None = None, words: str = ""
    ) -> None:
        self._triggers = triggers
        self._every_seconds = every_seconds
        self._words = words
        self._next_at = self._next_time()

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` a trigger is asked after; None if any number."""
        left = [trigger.steps_left(step) for trigger in self._triggers if trigger.steps_left]
        return min((steps for steps in left if steps is not None), default=None)

    def decides_after(self, step: int, steps: int) -> bool:
        """Whether `trigger_after` needs the metrics of this step or makes it save."""
        return any(_is_asked(trigger, step, steps) for trigger in self._triggers)

    def trigger_after(self, step: int, steps: int, metrics: StepMetrics) -> str:
        """Returns why a save is due after a call; empty if none is.

        Args:
            step: Steps done.
            steps: How many of them the call ran.
            metrics: In `fresh`, what its last step reported.
        """
        reasons = [
            trigger.reason(step, metrics)
            for trigger in self._triggers
            if _is_asked(trigger, step, steps)
        ]
        return ", ".join(filter(None, reasons))

    @property
    def timed_trigger(self) -> str:
        """Why a save is due by the clock; empty if none is."""
        if self._next_at is None or time.monotonic() < self._next_at:
            return ""
        return self._words or f"every {self._every_seconds:g} s"

    def restart_clock(self) -> None:
        """Measures `every_seconds` from now."""
        self._next_at = self._next_time()

    def _next_time(self) -> float | None:
        return None if self._every_seconds is None else time.monotonic() + self._every_seconds


def _is_asked(trigger: Trigger, step: int, steps: int) -> bool:
    """Whether a trigger is asked after a call of so many steps, which may be more than it wants."""
    if trigger.steps_left is None:
        return True
    left = trigger.steps_left(step - steps)
    return left is not None and left <= steps
