"""What `report` prints."""

from __future__ import annotations

import msgspec

from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.reports.base import Report
from tfckpt_tui.reports.guards import GuardFacts
from tfckpt_tui.reports.hyperparameters import HyperparameterFacts
from tfckpt_tui.reports.logs import Event
from tfckpt_tui.reports.run_facts import AlertFacts, FailureFacts, JobFacts, RunFacts, WorkerLine


class BranchCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a curve on one branch.

    Attributes:
        branch: The branch.
        kept_until: The last step that the present model was trained on; null if none was.
        steps: Of intervals of steps the first, the last, and those of the lowest and highest value.
        values: The value at each of them.
    """

    branch: int
    kept_until: int | None
    steps: tuple[int, ...]
    values: tuple[float, ...]


class CurveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one quantity over the whole run.

    Attributes:
        name: Its name.
        quantity: `metric`, `throughput` in examples per second, or `step time` in seconds.
        points: Number of recorded values.
        lowest: The lowest; null if none is finite.
        lowest_step: Its step.
        highest: The highest.
        highest_step: Its step.
        last: The newest; null if it is not finite.
        last_step: Its step.
        not_finite: Number of values that are NaN or infinite.
        not_finite_steps: The first steps with such values.
        branches: The curve, downsampled, by branch.
    """

    name: str
    quantity: str
    points: int
    lowest: float | None
    lowest_step: int | None
    highest: float | None
    highest_step: int | None
    last: float | None
    last_step: int | None
    not_finite: int
    not_finite_steps: tuple[int, ...]
    branches: tuple[BranchCurve, ...]


class MarkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the curves show.

    Attributes:
        step: Where; for an event without a step, the last recorded step before it.
        kind: What happened.
        message: One sentence.
    """

    step: int
    kind: EventKind
    message: str


class CurvesFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All curves of a run.

    Attributes:
        points: Number of points in the series.
        curves: The main metric first, then the others by name, throughput and step time.
        left_out: Number of curves on a branch that were left out because there are too many.
        marks: Restores, restarts, changes and firings, oldest first; the newest 200.
        thinned_before: Time before which only the ends and extremes of step intervals are kept, in
            seconds since 1970; null if all points are kept.
        thinned_steps: Steps of such an interval.
    """

    points: int
    curves: tuple[CurveFacts, ...]
    left_out: int
    marks: tuple[MarkFacts, ...]
    thinned_before: float | None = None
    thinned_steps: int | None = None


class HyperparameterChange(msgspec.Struct, frozen=True, kw_only=True):
    """A hyperparameter that got another value.

    Attributes:
        at: When.
        step: At which step; null if the event log does not say it.
        name: Its name.
        before: Its value before.
        after: Its value since.
        kind: What changed it: a `set`, a `restore` or a `guard`.
        by: Who asked for it.
    """

    at: float
    step: int | None
    name: str
    before: float | None
    after: float | None
    kind: EventKind
    by: str


class SaveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint and the cost of its save.

    Attributes:
        name: Its name.
        step: Null if neither its record nor its name tells.
        branch: Its branch.
        state: Its state, as in `ls`.
        saved_at: When.
        trigger: Why it was saved; empty without a record.
        bytes: Size of all its files.
        seconds: From the agreed step to the commit; null if not recorded.
        stall_seconds: For how long training stood still; null if not recorded.
        slowing_seconds: Total slowdown of the steps during and after the save; null if not
            measured.
    """

    name: str
    step: int | None
    branch: int
    state: str
    saved_at: float
    trigger: str
    bytes: int
    seconds: float | None
    stall_seconds: float | None
    slowing_seconds: float | None


class SavesFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The saves of a run.

    Attributes:
        noted: Saves in the event log; checkpoints that were pruned count.
        kept: Number of checkpoints that the run has.
        bytes: Size of these.
        costed: For how many of these the cost is recorded.
        seconds: What their saves took together.
        stall_seconds: For how long training stood still for them.
        longest_stall_seconds: The longest of these times; null if none is recorded.
        slowing_seconds: Total slowdown of steps.
        checkpoints: The newest 100, newest first.
    """

    noted: int
    kept: int
    bytes: int
    costed: int
    seconds: float
    stall_seconds: float
    longest_stall_seconds: float | None
    slowing_seconds: float
    checkpoints: tuple[SaveFacts, ...]


class StragglerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that slows down the others.

    Attributes:
        index: 0 is the chief.
        host: Its host.
        why: Why it seems to.
    """

    index: int
    host: str
    why: str


class PrunedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A prune that is in the trash.

    Attributes:
        at: When.
        by: Who did it.
        names: The checkpoints; the first 100.
        checkpoints: Their number.
        bytes: Their size.
    """

    at: float
    by: str
    names: tuple[str, ...]
    checkpoints: int
    bytes: int


class RunReport(Report, frozen=True, kw_only=True):
    """All facts of a run at one moment.

    Attributes:
        written_at: The moment.
        release: The release of this program.
        created_at: When the run was created; null in a directory that this library never used.
        run: As in `status`.
        job: The batch job of the run; null without a scheduler.
        failure: As in `status`.
        alerts: As in `status`.
        problems: Files of the run that cannot be read, and why.
        workers: As in `status`.
        stragglers: Workers that slow down the others now.
        versions: Versions of Python and of packages at the newest start of the trainer.
        curves: The metrics.
        hyperparameters: As in `get`.
        changes: Values that hyperparameters got, oldest first; the newest 500.
        guards: As in `guards`.
        saves: Saves and their cost.
        pruned: What is in the trash, newest first.
        events: The event log without saves, oldest first; the newest 500.
        events_left_out: How many older events there are.
    """

    written_at: float
    release: str
    created_at: float | None
    run: RunFacts
    job: JobFacts | None
    failure: FailureFacts | None
    alerts: tuple[AlertFacts, ...]
    problems: tuple[str, ...]
    workers: tuple[WorkerLine, ...]
    stragglers: tuple[StragglerFacts, ...]
    versions: dict[str, str]
    curves: CurvesFacts
    hyperparameters: tuple[HyperparameterFacts, ...]
    changes: tuple[HyperparameterChange, ...]
    guards: tuple[GuardFacts, ...]
    saves: SavesFacts
    pruned: tuple[PrunedFacts, ...]
    events: tuple[Event, ...]
    events_left_out: int
