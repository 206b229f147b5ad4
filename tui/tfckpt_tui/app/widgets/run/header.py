"""The header of the dashboard: identity, state, progress, rates and disk."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.scan.alerts import Alert
from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, MAKES_NO_STEPS, WorkerState
from tfckpt_trainer.rundir.records.exactness import ExactnessLevel
from tfckpt_trainer.rundir.records.run import SAVES_AT_END
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.icons import run_icon
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import (
    Span,
    StyledLine,
    branch_style,
    flow,
    line,
    shorten,
    shorten_middle,
    spread,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import cell_width, clean, strategy_words
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.reports.run_facts import EventFileFacts
from tfckpt_tui.services.batch.job_alerts import JOB_SILENT
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.failure import RUN_FAILED

_LOW_DISK = 0.05
_BAR_SHARE = 0.4
_LEAST_BAR = 6
_SILENT = {WorkerState.LOST, WorkerState.EXITED}
_FAR_FROM_BEST = 3.0
_WIDE = 100
_LEAST_VERDICT = 9
_SOON = 7 * 86400.0
_GAP = "   "
_LEAST_REASON = 8
_JOB = {
    JobState.QUEUED: "value",
    JobState.REQUEUED: "value",
    JobState.PREEMPTED: "warn",
    JobState.TIMEOUT: "warn",
    JobState.NODE_FAILURE: "bad",
    JobState.FAILED: "bad",
}


class RunHeader(Pane):
    """Two lines; three if there is room."""

    boxed = False

    def __init__(self, *, read_only: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._read_only = read_only

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns identity, progress, rates and disk."""
        snapshot = self.snapshot
        if snapshot is None:
            return [line(("◌ ", "busy"), ("reading the run directory …", "muted"))]
        identity = self._identity(snapshot, width)
        if height >= 3:
            disk = _disk(snapshot)
            rates = flow(_rates(snapshot, full=True), max(0, width - disk.width - 2))
            return [
                identity,
                StyledLine(_progress(snapshot, width)),
                StyledLine(spread(rates, disk.spans, width)),
            ]
        disk = _disk(snapshot, with_forecast=width >= 100)
        progress = _progress(snapshot, max(0, width - disk.width - 2))
        return [identity, StyledLine(spread(progress, disk.spans, width))]

    def _identity(self, snapshot: RunSnapshot, width: int) -> StyledLine:
        name = clean(snapshot.path.rstrip("/").rsplit("/", 1)[-1]) or "/"
        right: list[Span] = []
        if self._read_only:
            right.append(("read-only", "warn"))
        job = snapshot.job
        is_silent = any(alert.kind == JOB_SILENT for alert in snapshot.alerts)
        job_explains_state = job is not None and (job.is_waiting or bool(job.word) or is_silent)
        if self.size.height < 3 and not job_explains_state:
            right = [*flow(_rates(snapshot, full=False), width // 2), *_with_gap(right)]
        left_width = width - sum(len(text) for text, _ in right) - 2
        # The end of the job is beside the state already.
        alerts = [a for a in snapshot.alerts if a.kind != RUN_FAILED or not job_explains_state]
        # Nothing is known of what lies elsewhere now; the alert says that it does.
        state = self._state(snapshot, left_width) if snapshot.present else []
        groups: list[list[Span]] = [
            state,
            _alerts(alerts, left_width - StyledLine(tuple(state)).width - len(_GAP)),
        ]
        title: list[Span] = [(shorten(name, max(12, width // 4)), "strong")]
        titles: list[list[Span]] = [
            title,
            *_exactness(snapshot, width, left_width - _width([*groups, title])),
            [("branch ", "label"), (str(snapshot.branch), branch_style(snapshot.branch))],
        ]
        if job is not None and job_explains_state:
            room = left_width - _width([*groups, title])
            groups += [_job(snapshot, job, room), *titles]
        else:
            groups += titles
            if job is not None:
                groups.append(_job(snapshot, job, left_width - _width(groups)))
        groups += [[(_strategy(snapshot), "muted")], [(snapshot.path, "faint")]]
        return StyledLine(spread(flow(groups, left_width, _GAP), right, width))

    def _state(self, snapshot: RunSnapshot, width: int) -> list[Span]:
        sign = run_icon(snapshot)
        shows: list[Span] = []
        if snapshot.has_other_trainer:
            shows = [("  ", ""), (key_of(self, "worker"), "key"), (" shows it", "label")]
        # The name of a script may be long.
        words = shorten(snapshot.words, width - StyledLine(tuple(shows)).width - 2)
        return [(f"{sign.glyph} ", sign.style), (words, sign.style), *shows]


def _alerts(alerts: Sequence[Alert], width: int) -> list[Span]:
    """Returns the most urgent alert in a few words, and the number of others."""
    if not alerts:
        return []
    more = f" +{len(alerts) - 1}" if len(alerts) > 1 else ""
    # The name of a metric may be long; what is wrong with it comes last.
    title = shorten_middle(clean(alerts[0].title), width - 2 - len(more))
    return [("✗ ", "bad"), (f"{title}{more}", "bad")]


def _job(snapshot: RunSnapshot, job: JobView, width: int) -> list[Span]:
    """Returns the batch job, with as many details as fit; the first one may be cut."""
    name: list[Span] = [("job ", "label"), (clean(job.record.id), "value")]
    details = job.details(snapshot.at, runs=snapshot.state not in HAS_ENDED)
    left = width - StyledLine(tuple(name)).width - 2
    style = "warn" if job.is_stuck else _JOB.get(job.state, "muted")
    for count in range(len(details), 0, -1):
        text = ", ".join(details[:count])
        is_reason = count == 1 + bool(job.word) and bool(job.reason)
        if is_reason and left >= _LEAST_REASON:
            text = shorten(text, left)
        if cell_width(text) <= left:
            return [*name, (": ", "label"), (text, style)]
    return name


def _width(groups: Sequence[Sequence[Span]]) -> int:
    """Returns the width of groups beside each other, each with a gap behind it."""
    return sum(StyledLine(tuple(group)).width + len(_GAP) for group in groups if group)


def _with_gap(spans: list[Span]) -> list[Span]:
    return [("   ", ""), *spans] if spans else []


def _exactness(snapshot: RunSnapshot, width: int, room: int) -> list[list[Span]]:
    """Returns whether resuming is exact and, if there is room, why not.

    Args:
        snapshot: Of the run.
        width: Of the header.
        room: How wide the verdict of a check may be.
    """
    exactness = snapshot.info.known_exactness if snapshot.info is not None else None
    if exactness is None:
        return []
    level, is_checked = exactness.level.value, exactness.level is ExactnessLevel.CHECKED
    if exactness.compared:
        style = "good" if is_checked else "warn"
        label: Span = ("resume ", "label")
        verdict = shorten(clean(exactness.compared), max(_LEAST_VERDICT, room - len(label[0])))
        return [[label, (verdict, style)]]
    if width < _WIDE:
        return [[("resume not exact", "warn")]] if exactness.is_missing_state else []
    if not exactness.reasons:
        return [[("exact resume ", "label"), (level, "good" if is_checked else "muted")]]
    why = (shorten(clean(exactness.causes), max(20, width // 3)), "muted")
    return [[(f"exact resume {level}: ", "warn" if exactness.is_missing_state else "label"), why]]


def _strategy(snapshot: RunSnapshot) -> str:
    info = snapshot.info
    if info is None or not info.strategy:
        is_known = snapshot.tracked or not snapshot.present
        return "" if is_known or snapshot.processes else "not trained with tfckpt-tui"
    name = strategy_words(info.strategy)
    workers = units.processes(info.cluster, info.worker_count)
    replicas = f", {info.replica_count} replicas" if info.replica_count > 1 else ""
    return f"{name}, {workers}{replicas}"


def _progress(snapshot: RunSnapshot, width: int) -> tuple[Span, ...]:
    if snapshot.measured is not None:
        # They are newer than the newest checkpoint, whose number may count saves.
        return _measured(snapshot.measured, snapshot.at, width)
    step, total = snapshot.step, snapshot.total_steps
    if step is None:
        return (("no step yet", "muted"),) if snapshot.present else ()
    if not total:
        lost = (f"  {snapshot.loss_in_words}", "warn") if snapshot.lost_steps else ("", "")
        return (("step ", "label"), (f"{step:,}", "strong"), lost)
    share = min(1.0, max(0.0, step / total))
    text: list[Span] = [
        ("step ", "label"),
        (f"{step:,}", "strong"),
        (f" of {total:,}  ", "muted"),
    ]
    tail: list[Span] = [(f"{share:.0%}", "value")]
    if snapshot.lost_steps:
        tail += [("  ", ""), (snapshot.loss_in_words, "warn")]
    seconds = snapshot.forecast.seconds_left
    if seconds is not None and step < total:
        left: list[Span] = [("  ", ""), (units.duration(seconds), "value"), (" left", "label")]
        tail += left if StyledLine((*text, *tail, *left)).width <= width else []
    bar_width = width - StyledLine((*text, *tail)).width - 1
    if bar_width < _LEAST_BAR:
        return (*text, *tail)
    return (*text, *_bar(share, min(bar_width, int(width * _BAR_SHARE) + 20)), (" ", ""), *tail)


def _bar(share: float, width: int) -> tuple[Span, ...]:
    halves = round(share * width * 2)
    full, half = divmod(halves, 2)
    done = "━" * full + ("╸" if half else "")
    return ((done, "bar"), ("─" * (width - len(done)), "track"))


def _rates(snapshot: RunSnapshot, *, full: bool) -> list[list[Span]]:
    chief = snapshot.chief
    if chief is None:
        return []
    status = chief.status
    if chief.state in _SILENT:
        ago = f"last heard {units.age(chief.age)} ago" if chief.age >= 1 else "heard just now"
        last: list[list[Span]] = [[(ago, "muted")]]
        if status.loss is not None:
            last.insert(0, [("last loss ", "label"), (units.metric(status.loss), "muted")])
        return last
    # Rates of steps that are over.
    past: list[Span] = [("was ", "label")] if chief.state in MAKES_NO_STEPS else []
    rate = "muted" if past else "value"
    groups: list[list[Span]] = []
    if status.loss is not None or "loss" in status.metrics:
        style = "bad" if status.loss is None else "strong"
        groups.append([("loss ", "label"), (units.metric(status.loss), style)])
    if status.examples_per_second is not None:
        groups.append([*past, (units.rate(status.examples_per_second, " examples"), rate)])
    if full and status.step_seconds is not None:
        groups.append([*past, (units.step_time(status.step_seconds), rate), (" a step", "label")])
    return [*groups, *_saving(snapshot)] if full else groups


def _measured(measured: EventFileFacts, now: float, width: int) -> tuple[Span, ...]:
    """Returns how far event files go, of a run that this library did not train."""
    ago = units.ago(max(0.0, now - measured.at))
    spans: list[Span] = [
        (f"metrics {measured.reach} ", "label"),
        (f"{measured.step:,}", "value"),
        (f", written {ago}", "muted"),
    ]
    if measured.step_seconds is None:
        return tuple(spans)
    step_time = units.step_time(measured.step_seconds)
    pace: list[Span] = [("  ", ""), (step_time, "value"), (f" {measured.per}", "label")]
    fits = StyledLine((*spans, *pace)).width <= width
    return (*spans, *pace) if fits else tuple(spans)


def _saving(snapshot: RunSnapshot) -> list[list[Span]]:
    """Returns the cost of saving and, once there were failures, the best interval."""
    forecast, info = snapshot.forecast, snapshot.info
    if info is not None and info.saves == SAVES_AT_END:
        return [[(f"saves {info.saves}", "warn")]]
    if forecast.save_share is None or forecast.save_interval is None:
        return []
    takes: list[Span] = [("saving takes ", "label"), (f"{forecast.save_share:.1%}", "value")]
    if forecast.best_interval is None:
        return [takes]
    every, best = map(units.duration, (forecast.save_interval, forecast.best_interval))
    times = forecast.save_interval / forecast.best_interval
    style = "value" if 1 / _FAR_FROM_BEST < times < _FAR_FROM_BEST else "warn"
    return [takes, [("every ", "label"), (every, style), (", best ", "label"), (best, "value")]]


def _disk(snapshot: RunSnapshot, *, with_forecast: bool = True) -> StyledLine:
    used: list[Span] = [("disk ", "label"), (units.size(snapshot.disk_used), "value")]
    if snapshot.disk_free is None or not snapshot.disk_total:
        return StyledLine(tuple(used))
    low = snapshot.disk_free / snapshot.disk_total < _LOW_DISK
    soon = snapshot.forecast.disk_full_seconds
    free_style = "bad" if low else "value"
    free: list[Span] = [
        (" · ", "faint"),
        (units.size(snapshot.disk_free), free_style),
        (" free", "bad" if low else "label"),
    ]
    if with_forecast and soon is not None and 1.0 <= soon < _SOON:
        free += [(", full in ", "label"), (units.duration(soon), "warn")]
    return StyledLine((*used, *free))
