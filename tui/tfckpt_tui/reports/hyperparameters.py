"""What `get` prints."""

from __future__ import annotations

import msgspec

from tfckpt_tui.reports.base import Report


class HyperparameterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A value that can be changed while the run trains.

    Attributes:
        name: Its name.
        value: Its value at `step`; null if it was not finite. A schedule or the script may have
            changed it since.
        script_value: Its value when the script created the run; null if it was not finite.
        allowed: The values that it can have, in words.
        step: Steps done when the value was read.
        changed_at: Steps done when a command changed it last; null if none did.
        changed_by: Who asked for that; empty if nobody did.
        planned_value: The value at the end of a change that is not complete; null without one.
        planned_step: Steps done when that change is complete.
        schedule: Name of the schedule that it follows; empty without one.
        until: While a change replaces its schedule, the steps done when that goes on; else null.
    """

    name: str
    value: float | None
    script_value: float | None
    allowed: str
    step: int
    changed_at: int | None
    changed_by: str
    planned_value: float | None
    planned_step: int | None
    schedule: str
    until: int | None


class HyperparametersReport(Report, frozen=True, kw_only=True):
    """The hyperparameters of a run.

    Attributes:
        checkpoint: The checkpoint that they are from; null if the trainer told them.
        hyperparameters: In the order in which they were found.
    """

    checkpoint: str | None
    hyperparameters: tuple[HyperparameterFacts, ...]
