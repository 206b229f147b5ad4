"""Evaluates guards after each step."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import msgspec

from tfckpt_trainer.guards.conditions import Condition, Evidence, StepReading
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind

OVER_AFTER = 20
"""Steps in a row without a condition after which it may begin again."""


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """A guard fired.

    Attributes:
        rule: The text of the guard.
        step: Steps done when it fired.
        evidence: Why.
    """

    rule: str
    step: int
    evidence: Evidence


def begun_conditions(entries: Iterable[EventEntry]) -> dict[str, int]:
    """Returns the steps in which the conditions of guards began to hold, by the text of the guard.

    One that began after a step to which training went back is left out. Whether it held until the
    end is not in the event log.

    Args:
        entries: The event log, oldest first.
    """
    begun: dict[str, int] = {}
    for entry in entries:
        if entry.kind is EventKind.GUARD and isinstance(entry.details.get("began"), int):
            begun[str(entry.details.get("rule"))] = entry.details["began"]
        elif entry.kind in (EventKind.START, EventKind.RESTORE):
            left = entry.step or 0
            begun = {rule: began for rule, began in begun.items() if began <= left}
    return begun


class _Watched:
    """A guard, and since which step its condition holds."""

    def __init__(self, guard: Guard) -> None:
        # A condition holds windows: a guard may be watched twice.
        self.condition: Condition = copy.deepcopy(guard.condition)
        self.rule = str(guard)
        self._began: int | None = None
        self._steps_without = 0

    def step_done(self, reading: StepReading) -> Firing | None:
        evidence = self.condition.look(reading)
        if evidence is None:
            if self._began is not None and self.condition.sees(reading):
                self._steps_without += 1
                if self._steps_without >= OVER_AFTER:
                    self._began = None
            return None
        self._steps_without = 0
        if self._began is not None:
            return None
        self._began = evidence.began
        return Firing(rule=self.rule, step=reading.step, evidence=evidence)

    def begin(self, step: int) -> None:
        self._began = step
        self._steps_without = 0

    def restored(self, step: int) -> None:
        self.condition.restored(step)
        if self._began is not None and self._began > step:
            self._began = None


class GuardWatch:
    """Evaluates guards after each step of one worker."""

    def __init__(self, guards: Iterable[Guard]) -> None:
        self._watched = [_Watched(guard) for guard in guards]

    def step_done(self, reading: StepReading) -> list[Firing]:
        """Returns the guards whose condition begins to hold in a step.

        A guard fires again only after its condition did not hold for `OVER_AFTER` steps in a row,
        or after a restore to before it began.
        """
        firings = []
        for watched in self._watched:
            firing = watched.step_done(reading)
            if firing is not None:
                firings.append(firing)
        return firings

    def fired(self, firing: Firing) -> None:
        """Notes that a guard fired on another worker: it does not fire here for the same reason."""
        self.begun(firing.rule, firing.evidence.began)

    def begun(self, rule: str, step: int) -> None:
        """Notes that the condition of a guard holds since a step for which it has fired."""
        for watched in self._watched:
            if watched.rule == rule:
                watched.begin(step)

    def restored(self, step: int) -> None:
        """Notes that training went back, or continues from a checkpoint of `step`."""
        for watched in self._watched:
            watched.restored(step)
