"""The actions of guards, one class each. To add one, write it, and add it to `ACTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.guards.conditions import Evidence
from tfckpt_trainer.guards.terms import Number, Term
from tfckpt_trainer.rundir.records.command import (
    CANNOT_SKIP,
    CommandArguments,
    PauseArguments,
    RestoreArguments,
    SaveArguments,
    SetArguments,
    SkipArguments,
    StopArguments,
)
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, problem_of_values

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=255, description="the name of a hyperparameter")
]
StepsBefore = Annotated[
    int, msgspec.Meta(ge=0, le=10**15, description="a whole number of steps from 0 to 10^15")
]

Batches = Annotated[
    int, msgspec.Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1,000,000")
]


@dataclass(frozen=True)
class Situation:
    """What an action may know about the run in which its guard fired.

    Attributes:
        step: Steps done.
        evidence: Why the guard fired.
        hyperparameters: With their values when the guard fired, by name.
        reads_input: Whether the run has a dataset.
        newest_good: Returns the newest good checkpoint of a step below another; None if there is
            none. It can be restored, and has only finite values.
    """

    step: int
    evidence: Evidence
    hyperparameters: Mapping[str, Hyperparameter]
    reads_input: bool
    newest_good: Callable[[int], str | None]


@dataclass
class Action(Term):
    """Base class of all actions.

    Attributes:
        order: The actions of a guard are carried out in this order.
        changes_training: Whether training goes on differently. A guard with such an action has a
            limit.
    """

    order: ClassVar[int] = 4
    changes_training: ClassVar[bool] = False

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns the commands to carry out.

        Raises:
            RefusedError: It is not possible now.
            UsageError: The run has no such hyperparameter, or that cannot have the value.
        """
        raise NotImplementedError


@dataclass
class Notify(Action):
    """Only notes the firing. Every guard does that: it is in the event log, and alerts are sent."""

    example = "notify"
    order = 0

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns none."""
        del situation
        return []


@dataclass
class Save(Action):
    """Saves a checkpoint."""

    example = "save"
    order = 1

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns a save."""
        del situation
        return [SaveArguments()]


@dataclass
class GoBack(Action):
    """Goes back to the newest good checkpoint from at least `steps` steps before it began."""

    example = "go_back 100"
    order = 2
    changes_training = True

    steps: StepsBefore = 0

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns a restore."""
        before = situation.evidence.began - self.steps
        name = situation.newest_good(before)
        if name is None:
            raise RefusedError(f"There is no good checkpoint from before step {max(0, before):,}.")
        return [RestoreArguments(name=name)]


@dataclass
class SkipBatches(Action):
    """Drops input: after going back, from the step on in which it began, else from now on."""

    example = "skip_batches 10"
    order = 3
    changes_training = True

    batches: Batches

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns the skip."""
        if not situation.reads_input:
            raise RefusedError(CANNOT_SKIP)
        return [SkipArguments(batches=self.batches, at_step=situation.evidence.began - 1)]


@dataclass
class Set(Action):
    """Sets a hyperparameter."""

    example = "set learning_rate 1e-4"
    order = 4
    changes_training = True

    hyperparameter: Name
    value: Number

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns the change."""
        return [_change(self.hyperparameter, self.value, situation)]


@dataclass
class Scale(Action):
    """Multiplies a hyperparameter: its value when the guard fired, not the one gone back to."""

    example = "scale learning_rate 0.5"
    order = 4
    changes_training = True

    hyperparameter: Name
    factor: Number

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns the change."""
        present = situation.hyperparameters.get(self.hyperparameter)
        value = present.value * self.factor if present is not None else self.factor
        if present is not None and present.bounds.whole:
            value = round(value)
        return [_change(self.hyperparameter, value, situation)]


@dataclass
class Pause(Action):
    """Pauses training."""

    example = "pause"
    order = 5

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns a pause."""
        del situation
        return [PauseArguments()]


@dataclass
class Stop(Action):
    """Ends training without a save; `save, stop` saves before."""

    example = "stop"
    order = 5

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns a stop."""
        del situation
        return [StopArguments(save=False)]


ACTIONS: tuple[type[Action], ...] = (
    Notify,
    Save,
    GoBack,
    SkipBatches,
    Set,
    Scale,
    Pause,
    Stop,
)
"""All actions that texts can have."""


def _change(name: str, value: float, situation: Situation) -> SetArguments:
    problem = problem_of_values({name: value}, dict(situation.hyperparameters))
    if problem:
        raise UsageError(problem)
    return SetArguments(values={name: value})
