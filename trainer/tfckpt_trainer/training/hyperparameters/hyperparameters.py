"""The hyperparameters of a run: their values, changes that were asked for, and what is saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tfckpt_trainer.errors import UsageError, describe_error
from tfckpt_trainer.rundir.records.hyperparameter import (
    ConfirmedChange,
    Hyperparameter,
    PlannedChange,
    number,
    problem_of_values,
)
from tfckpt_trainer.training.hyperparameters.sources import HyperparameterSource

ROUNDING = 1e-6
"""Relative difference that a variable of float32 makes."""


@dataclass(frozen=True)
class ValueChange:
    """A change of one value.

    Attributes:
        name: Its name.
        before: The value before.
        after: The value after.
        asked: What was asked for, if the script or its type took another value; None otherwise.
    """

    name: str
    before: float
    after: float
    asked: float | None = None

    @property
    def words(self) -> str:
        """The change, such as `learning_rate 0.001 → 0.0003`."""
        asked = "" if self.asked is None else f" (asked: {number(self.asked)})"
        return f"{self.name} {number(self.before)} → {number(self.after)}{asked}"

    def as_read(self, value: float) -> ValueChange:
        """Returns it with the value that was read after it; see `ROUNDING`."""
        if math.isclose(value, self.after, rel_tol=ROUNDING):
            return self
        return replace(self, after=value, asked=self.after)


def words_of(changes: Iterable[ValueChange]) -> str:
    """Returns changes as words, such as `learning_rate 0.001 → 0.0003, mixup 0.2 → 0`."""
    return ", ".join(change.words for change in changes)


def details_of(changes: Iterable[ValueChange]) -> dict[str, object]:
    """Returns changes for the event log and for the answer to a command."""
    return {
        "hyperparameters": [
            {"name": change.name, "before": change.before, "after": change.after}
            for change in changes
        ]
    }


class Hyperparameters:
    """All hyperparameters of this worker. All workers change them together, at the same step.

    Attributes:
        seen: What is known of each, by name.
    """

    def __init__(self) -> None:
        self._sources: dict[str, HyperparameterSource] = {}
        self._left_out: list[HyperparameterSource] = []
        self.seen: dict[str, Hyperparameter] = {}
        self._again: list[ConfirmedChange] = []

    def add(self, source: HyperparameterSource) -> None:
        """Adds one.

        Raises:
            UsageError: There is one of this name.
        """
        if source.name in self._sources:
            raise UsageError(f"There are two hyperparameters {source.name!r}. Rename one of them.")
        self._sources[source.name] = source
        value = source.get()
        self.seen[source.name] = Hyperparameter(
            name=source.name,
            value=value,
            script_value=value,
            bounds=source.bounds,
            what=source.what,
            schedule=source.schedule,
        )

    def differing(self, others: Sequence[Hyperparameter]) -> list[str]:
        """Returns the names of those that another worker does not have, or has otherwise."""
        of_other = {one.name: one for one in others}
        names = {*self.seen, *of_other}
        return sorted(name for name in names if self.seen.get(name) != of_other.get(name))

    def leave_out(self, name: str) -> None:
        """Keeps one from being changed."""
        if name in self._sources:
            # Its variable stays the library's own, and is no state that the script forgot to pass.
            self._left_out.append(self._sources.pop(name))
            del self.seen[name]

    def values(self) -> dict[str, float]:
        """Returns the present values, by name."""
        return {name: source.get() for name, source in self._sources.items()}

    def look(self, step: int) -> list[Hyperparameter]:
        """Reads all values; returns what is known after so many steps."""
        for name, source in self._sources.items():
            self.seen[name] = msgspec.structs.replace(
                self.seen[name], value=source.get(), step=step
            )
        return list(self.seen.values())

    def problem_of(self, values: Mapping[str, float], until: int | None = None) -> str:
        """Returns why not all can have these values, as sentences; empty if they can."""
        return problem_of_values(dict(values), self.seen, until)

    def plan(
        self,
        values: Mapping[str, float],
        *,
        begins: int,
        steps: int,
        by: str,
        until: int | None = None,
    ) -> None:
        """Takes a change that is carried out by `advance`.

        Args:
            values: The values at its end, by name.
            begins: Steps done when it begins.
            steps: Over how many steps the values change; 0 for at once.
            by: Who asked for it.
            until: Steps done when their schedules go on; None for values that follow none.
        """
        for name, value in values.items():
            planned = PlannedChange(value=value, begins=begins, steps=steps, by=by, until=until)
            self.seen[name] = msgspec.structs.replace(self.seen[name], planned=planned)

    @property
    def planned(self) -> set[str]:
        """Names of those with a change that is not complete."""
        return {name for name, one in self.seen.items() if one.planned is not None}

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` a change acts after; None without a change."""
        left = [one.steps_left(step) for one in self.seen.values()]
        left += [max(1, change.step - step) for change in self._again[:1]]
        return min((steps for steps in left if steps is not None), default=None)

    def is_due(self, step: int) -> bool:
        """Whether a change has to act after so many steps."""
        is_again = bool(self._again) and self._again[0].step <= step
        return is_again or any(one.acts_after(step) for one in self.seen.values())

    def confirmed(
        self, values: Mapping[str, float], *, step: int, begins: int, over: int, until: int | None
    ) -> ConfirmedChange:
        """Returns a change that was just made or planned, as a later start makes it again.

        It replaces what was to be made again for its names. The arguments are those of `plan`.
        """
        names = set(values)
        self._again = [
            msgspec.structs.replace(
                change, values={name: to for name, to in change.values.items() if name not in names}
            )
            for change in self._again
        ]
        return ConfirmedChange(
            step=step,
            values=dict(values),
            begins=begins,
            over=over,
            until=until,
            script_values={name: number(self.seen[name].script_value) for name in values},
        )

    def make_again(self, changes: Iterable[ConfirmedChange]) -> None:
        """Takes changes from before a crash, in the order of their steps; see `take_again`."""
        self._again = list(changes)

    @property
    def promised(self) -> list[str]:
        """The changes that are to be made again, in words."""
        return [change.words for change in self._again if change.values]

    def told(self) -> list[Hyperparameter]:
        """Returns what people are told: a change that is to be made again is one that is planned.

        Other threads may call it.
        """
        again = {
            name: PlannedChange(
                value=to, begins=change.begins, steps=change.over, by=change.by, until=change.until
            )
            for change in reversed(self._again)
            for name, to in change.values.items()
        }
        return [
            one
            if one.planned is not None or one.name not in again
            else msgspec.structs.replace(one, planned=again[one.name])
            for one in list(self.seen.values())
        ]

    def take_again(self, step: int) -> list[ConfirmedChange]:
        """Returns the changes that are to be made again after so many steps, and forgets them."""
        due = [change for change in self._again if change.step <= step]
        self._again = self._again[len(due) :]
        return [change for change in due if change.values]

    def drop_plans(self, step: int) -> None:
        """Gives up the changes that act after so many steps; their values stay."""
        for name, one in self.seen.items():
            if one.planned is not None and one.planned.begins <= step:
                self.seen[name] = msgspec.structs.replace(one, planned=None)

    def advance(self, step: int) -> list[ValueChange]:
        """Carries out what is due after so many steps.

        Returns:
            The changes that began.

        Raises:
            Exception: The script could not take a value; see `put_back`.
        """
        begun = []
        for name, one in list(self.seen.items()):
            source, planned = self._sources[name], one.planned
            if one.until is not None and one.until <= step:
                begun.append(self._follow_schedule(name, step))
                one = self.seen[name]
            if planned is None or step < planned.begins:
                continue
            start = planned.start
            if start is None:
                start = source.get()
                begun.append(ValueChange(name, start, planned.value))
            value = planned.value_at(step, start)
            value = round(value) if source.bounds.whole else value
            source.set(value)
            is_done = step >= planned.begins + planned.steps
            self.seen[name] = msgspec.structs.replace(
                one,
                value=value,
                step=step,
                changed_at=step,
                changed_to=value,
                changed_by=planned.by,
                planned=None if is_done else msgspec.structs.replace(planned, start=start),
                until=planned.until,
            )
        return begun

    def _follow_schedule(self, name: str, step: int) -> ValueChange:
        source, one = self._sources[name], self.seen[name]
        source.set(math.nan)
        value = source.get()
        self.seen[name] = msgspec.structs.replace(
            one, value=value, step=step, changed_at=step, changed_to=value, until=None
        )
        return ValueChange(name, one.value, value)

    def put_back(self, before: Iterable[Hyperparameter]) -> str:
        """Brings back what `look` returned earlier, values and plans.

        Returns:
            Which values the script did not take back, as a clause; empty if it took all.
        """
        problems = []
        for one in before:
            if self.seen[one.name] == one:
                continue
            try:
                self._sources[one.name].set(_to_set(one))
            except Exception as error:
                problems.append(f"{one.name} was not put back: {describe_error(error)}")
            self.seen[one.name] = one
        return "; ".join(problems)

    def restore(self, saved: Sequence[Hyperparameter], step: int) -> list[ValueChange]:
        """Takes the values of a checkpoint, after TensorFlow has restored its own part.

        If the script begins with another value than it did at the save, it was edited since, and
        its value counts.

        Args:
            saved: What its record has.
            step: Its step.

        Returns:
            What differs from before.
        """
        self._again = []
        by_name = {one.name: one for one in saved}
        changes = []
        for name, source in self._sources.items():
            before = self.seen[name]
            now = _restored(before, by_name.get(name), any_value=source.in_checkpoint)
            if not source.in_checkpoint and (source.schedule or source.get() != now.value):
                source.set(_to_set(now))
            value = source.get()
            self.seen[name] = msgspec.structs.replace(now, value=value, step=step)
            # A schedule has another value at each step.
            is_told = not source.schedule or before.until != now.until
            if is_told and value != before.value:
                changes.append(ValueChange(name, before.value, value))
        # A rate by a schedule depends on its factor, which may have been restored after it.
        self.look(step)
        return changes


def _to_set(one: Hyperparameter) -> float:
    """Returns what brings a hyperparameter back to what is known of it."""
    return math.nan if one.schedule and one.until is None else one.value


def _restored(
    live: Hyperparameter, saved: Hyperparameter | None, *, any_value: bool
) -> Hyperparameter:
    """Returns what a restore makes of one hyperparameter.

    Args:
        live: What is known now.
        saved: What the checkpoint has.
        any_value: Whether TensorFlow restores the value, so that the script's does not count.
    """
    is_same = saved is not None and (
        any_value
        or (live.schedule and saved.schedule == live.schedule)
        or saved.script_value == live.script_value
    )
    if saved is None or not is_same or not live.bounds.allow(saved.value):
        return msgspec.structs.replace(
            live,
            value=live.script_value,
            changed_at=None,
            changed_to=None,
            changed_by="",
            planned=None,
            until=None,
        )
    return msgspec.structs.replace(
        saved,
        script_value=live.script_value,
        bounds=live.bounds,
        what=live.what,
        schedule=live.schedule,
    )
