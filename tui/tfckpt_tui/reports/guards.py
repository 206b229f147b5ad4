"""What `guards` prints."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tfckpt_trainer.rundir.records.run import GuardSource
from tfckpt_tui.reports.base import Report


class GuardFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A guard of the run.

    Attributes:
        rule: Its text.
        source: Who gave it: the `script`, or `config`, the file `.tfckpt/config.toml`.
        in_force: Whether a trainer that runs evaluates it.
        problem: Why it is invalid and never in force; empty if it is valid.
        fired: How often it fired.
        last_at: When it fired last; null if it never did.
        last_step: The step in which it fired last; null if it never did.
        last_message: What the event log says of that; empty if it never did.
    """

    rule: str
    source: GuardSource
    in_force: bool
    problem: str
    fired: int
    last_at: float | None
    last_step: int | None
    last_message: str


class GuardsReport(Report, frozen=True, kw_only=True):
    """The guards of a run; with `--add` and `--remove`, after the change.

    Attributes:
        guards: Those of the trainer, and those that its next start takes.
        problem: Why `config.toml` cannot be read; empty if it can.
    """

    guards: tuple[GuardFacts, ...]
    problem: str


class FiringFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A firing that the guard would have had.

    Attributes:
        at: When.
        step: In which step.
        began: The first step in which the condition held.
        what: Why, as a clause.
        values: The values that it was judged by. NaN and infinities are texts.
        window: The earlier values that they were compared with.
        actions: What it would have done, in order.
        checkpoint: The checkpoint that it would have gone back to; null if none.
    """

    at: float
    step: int
    began: int
    what: str
    values: dict[str, float | str]
    window: tuple[float, ...]
    actions: tuple[str, ...]
    checkpoint: str | None


class ReplayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one guard would have done.

    Attributes:
        rule: Its text.
        points: How many recorded points were looked at; each has the last values of about a second.
        first_step: The step of the first point; null without one.
        last_step: The step of the last point; null without one.
        why_not: Why it cannot be replayed; empty if it can.
        firings: Oldest first.
    """

    rule: str
    points: int
    first_step: int | None
    last_step: int | None
    why_not: str
    firings: tuple[FiringFacts, ...]


class GuardReplayReport(Report, frozen=True, kw_only=True):
    """What guards would have done in the recorded history of the run.

    Attributes:
        replays: In the order of the options.
    """

    variant: ClassVar[str] = "--replay"

    replays: tuple[ReplayFacts, ...]
