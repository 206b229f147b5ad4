"""What a report says: its sections as text, the same for each format."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_trainer.rundir.records.run import CodeVersion
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.charting.quantities import quantity_words
from tfckpt_tui.formats import units
from tfckpt_tui.formats.code_version import changes_in_words
from tfckpt_tui.formats.text import strategy_words
from tfckpt_tui.formats.thinned_series import thinned_words
from tfckpt_tui.formats.worker_columns import table
from tfckpt_tui.services.runs.failure_card import how_it_ended, loss_of, printed_rows
from tfckpt_tui.tools.reporting.json_report import CurveFacts, CurvesFacts, RunReport, SavesFacts

_TROUBLE = frozenset(
    {
        EventKind.RESTART,
        EventKind.WORKER_LOST,
        EventKind.DEGRADED,
        EventKind.STALLED,
        EventKind.FAILED,
        EventKind.NOT_FINITE,
        EventKind.REQUEUE,
        EventKind.PREEMPT,
    }
)
_PRUNING = frozenset({EventKind.PRUNE, EventKind.UNDO, EventKind.EMPTY})
_NAMES_SHOWN = 8
_ZONED = "%Y-%m-%d %H:%M:%S %Z"
_UNKNOWN = "–"


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        header: A title for each column; none for pairs of a name and a value.
        right: Columns that are aligned to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figures:
    """The curves, in formats that have figures."""

    facts: CurvesFacts


@dataclass(frozen=True)
class Log:
    """Lines that a worker printed, in which spaces matter."""

    lines: tuple[str, ...]


Block = str | Table | Figures | Log


@dataclass(frozen=True)
class Section:
    """A part of a report with a title."""

    title: str
    blocks: tuple[Block, ...]


def sections_of(report: RunReport) -> Iterator[Section]:
    """Yields the sections of a report."""
    yield Section("Summary", tuple(_summary(report)))
    if report.failure is not None:
        failure = msgspec.structs.replace(report.failure, log=())
        rows = Table((), tuple(printed_rows(failure, report.written_at)))
        log = Log(report.failure.log)
        yield Section("What happened", (rows, log) if log.lines else (rows,))
    yield Section("Metrics", tuple(_metrics(report)))
    yield Section("Hyperparameters", tuple(_hyperparameters(report)))
    yield Section("Guards", tuple(_guards(report)))
    yield Section("Restarts and failures", tuple(_failures(report)))
    yield Section("Workers", tuple(_workers(report)))
    yield Section("Saves", tuple(_saves(report.saves)))
    yield Section("Pruned checkpoints", tuple(_pruned(report)))
    yield Section("Code and packages", tuple(_code(report)))
    yield Section("Event log", tuple(_event_log(report)))


def _summary(report: RunReport) -> Iterator[Block]:
    run = report.run
    total = f" of {run.total_steps:,}" if run.total_steps else ""
    lost = f"; {run.loss} after it" if run.loss else ""
    step = "unknown" if run.step is None else f"{run.step:,}{total} on branch {run.branch}{lost}"
    job = report.job
    rows = [
        ("run directory", run.directory),
        ("state", f"{run.words}: {run.reason}" if run.reason else run.words),
        ("step", step),
        ("strategy", _strategy(report)),
        ("created", units.local_time(report.created_at, _ZONED) if report.created_at else ""),
        ("checkpoints", units.count(run.checkpoints, "checkpoint")),
        ("other files", str(run.other_files) if run.other_files else ""),
        ("next start", f"continues from {run.checkpoint}" if run.checkpoint else ""),
        ("exact resume", run.exactness.words if run.exactness else ""),
        (
            "job",
            f"{job.id} {job.state.value}, {units.count(job.requeues, 'requeue')}" if job else "",
        ),
        (
            "written",
            f"{units.local_time(report.written_at, _ZONED)} by tfckpt-tui {report.release}",
        ),
    ]
    yield Table((), tuple(row for row in rows if row[1]))
    if report.alerts:
        alerts = tuple((alert.kind, f"{alert.message} {alert.advice}") for alert in report.alerts)
        yield Table(("alert", "what to do"), alerts)
    for problem in report.problems:
        yield f"Not read: {problem}"


def _strategy(report: RunReport) -> str:
    run = report.run
    if not run.strategy:
        return ""
    return f"{strategy_words(run.strategy)}, {units.processes(run.cluster, run.worker_count)}"


def _metrics(report: RunReport) -> Iterator[Block]:
    facts = report.curves
    if not facts.curves:
        yield "No measurements are recorded."
        return
    rows = []
    for curve in facts.curves:
        show = quantity_words(curve.quantity)
        rows.append(
            (
                curve.name,
                _at(show, _last(curve), curve.last_step),
                _at(show, curve.lowest, curve.lowest_step),
                _at(show, curve.highest, curve.highest_step),
                f"{curve.points:,}",
                f"{curve.not_finite:,}" if curve.not_finite else "",
            )
        )
    header = ("metric", "last", "lowest", "highest", "values", "NaN or infinite")
    yield Table(header, tuple(rows), frozenset({4, 5}))
    if report.run.event_files is not None:
        yield "All values of the TensorBoard event files are counted."
    else:
        yield "Trainers record about one value a second; values between are not counted."
    if facts.thinned_before is not None and facts.thinned_steps is not None:
        yield thinned_words(facts.thinned_before, facts.thinned_steps)
    if facts.left_out:
        yield f"Left out, because there are too many: {units.count(facts.left_out, 'curve')}."
    yield Figures(facts)


def _last(curve: CurveFacts) -> float:
    """Returns the newest value of a curve."""
    return math.nan if curve.last is None else curve.last


def _at(show: Callable[[float | None], str], value: float | None, step: int | None) -> str:
    return _UNKNOWN if value is None or step is None else f"{show(value)} at step {step:,}"


def _value(value: float | None) -> str:
    return "not finite" if value is None else number(value)


def _hyperparameters(report: RunReport) -> Iterator[Block]:
    if report.hyperparameters:
        rows = tuple(
            (one.name, _value(one.value), _value(one.script_value), f"{one.step:,}", one.schedule)
            for one in report.hyperparameters
        )
        titles = ("name", "value", "value in the script", "at step", "schedule")
        yield Table(titles, rows, frozenset({1, 2, 3}))
    else:
        yield "No hyperparameters are known."
    if report.changes:
        changes = tuple(
            (
                units.local_time(change.at),
                _step(change.step),
                change.name,
                _number(change.before),
                _number(change.after),
                change.kind.value,
                change.by,
            )
            for change in report.changes
        )
        header = ("changed", "step", "name", "from", "to", "through", "by")
        yield Table(header, changes, frozenset({1, 3, 4}))


def _guards(report: RunReport) -> Iterator[Block]:
    if report.guards:
        rows = tuple(
            (
                guard.rule,
                guard.source.value,
                guard.problem or ("in force" if guard.in_force else "from the next start"),
                f"{guard.fired:,}",
            )
            for guard in report.guards
        )
        yield Table(("guard", "from", "state", "fired"), rows, frozenset({3}))
    yield _events(report, {EventKind.GUARD}, "No guard fired." if report.guards else "None.")


def _workers(report: RunReport) -> Iterator[Block]:
    if not report.workers:
        yield "No worker has reported."
        return
    header, rows, right = table(report.workers, lambda column: column.report)
    yield Table(tuple(header), tuple(map(tuple, rows)), frozenset(right))
    for straggler in report.stragglers:
        yield f"Worker {straggler.index} on {straggler.host} slows down the others: {straggler.why}"


def _saves(saves: SavesFacts) -> Iterator[Block]:
    rows = [
        ("saves in the event log", f"{saves.noted:,}"),
        ("kept", f"{units.count(saves.kept, 'checkpoint')}, {units.size(saves.bytes)}"),
    ]
    if saves.costed:
        rows += [
            ("of these, with recorded cost", f"{saves.costed:,}"),
            ("time of these saves", units.duration(saves.seconds)),
            ("training stood still", units.duration(saves.stall_seconds)),
            ("longest standstill", units.duration(saves.longest_stall_seconds or 0.0)),
            ("slowdown of other steps", units.duration(saves.slowing_seconds)),
        ]
    yield Table((), tuple(rows))
    if not saves.checkpoints:
        return
    checkpoints = tuple(
        (
            save.name,
            _step(save.step),
            f"{save.branch:,}",
            save.state,
            units.local_time(save.saved_at),
            save.trigger,
            units.size(save.bytes),
            _seconds(save.seconds),
            _seconds(save.stall_seconds),
        )
        for save in saves.checkpoints
    )
    header = ("checkpoint", "step", "branch", "state", "saved", "why", "size", "took", "standstill")
    yield Table(header, checkpoints, frozenset({1, 2, 6, 7, 8}))
    yield from _older(saves.kept - len(checkpoints), "checkpoint")


def _pruned(report: RunReport) -> Iterator[Block]:
    if report.pruned:
        rows = tuple(
            (
                units.local_time(prune.at),
                prune.by,
                few_of(prune.names, _NAMES_SHOWN, total=prune.checkpoints),
                units.size(prune.bytes),
            )
            for prune in report.pruned
        )
        yield "In the trash, from where `undo` brings them back:"
        yield Table(("pruned", "by", "checkpoints", "size"), rows, frozenset({3}))
    yield _events(report, _PRUNING)


def _failures(report: RunReport) -> Iterator[Block]:
    yield _events(report, _TROUBLE)
    rows = tuple(
        (
            units.local_time(event.at),
            f"{loss.worker}",
            loss.fault.place if loss.fault is not None else "",
            loss.fault.source if loss.fault is not None else "",
            loss.fault.error if loss.fault is not None else how_it_ended(loss),
            _size(loss.memory_bytes),
            _size(loss.disk_free_bytes),
        )
        for event in report.events
        if event.kind is EventKind.WORKER_LOST
        for loss in [loss_of(event.details)]
        if loss is not None
    )
    if rows:
        header = ("lost", "worker", "line", "source", "why", "memory", "disk free")
        yield Table(header, rows, frozenset({1, 5, 6}))


def _size(size: int | None) -> str:
    return _UNKNOWN if size is None else units.size(size)


def _code(report: RunReport) -> Iterator[Block]:
    code = report.run.code
    rows = [*_commit(code), *_command(report.run.command), *report.versions.items()]
    if rows:
        yield Table((), tuple(rows))
    if code is None:
        yield "The Git commit is not known."
    elif code.changes:
        changes = tuple(
            (change.path, _lines("+", change.added), _lines("-", change.removed))
            for change in code.changes
        )
        yield Table(("changed file", "added", "removed"), changes, frozenset({1, 2}))
        yield from _older((code.changed_files or 0) - len(changes), "changed file", "more")


def _command(words: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if words is not None:
        yield "command", shlex.join(words)


def _commit(code: CodeVersion | None) -> Iterator[tuple[str, str]]:
    if code is None:
        return
    yield "commit", code.commit
    if code.branch:
        yield "Git branch", code.branch
    yield "changes", f"{changes_in_words(code)}; untracked files are not looked at"


def _event_log(report: RunReport) -> Iterator[Block]:
    yield from _older(report.events_left_out, "event")
    yield _events(report, frozenset(EventKind))


def _events(report: RunReport, kinds: Collection[EventKind], none: str = "None.") -> Block:
    rows = tuple(
        (units.local_time(event.at), event.kind.value, _step(event.step), event.message, event.by)
        for event in report.events
        if event.kind in kinds
    )
    return (
        Table(("time", "event", "step", "what happened", "by"), rows, frozenset({2}))
        if rows
        else none
    )


def _older(count: int, noun: str, word: str = "older") -> Iterable[Block]:
    return (f"Left out: {units.count(count, f'{word} {noun}')}.",) if count > 0 else ()


def _step(step: int | None) -> str:
    return _UNKNOWN if step is None else f"{step:,}"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else number(value)


def _seconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else units.duration(seconds)


def _lines(sign: str, count: int | None) -> str:
    return "binary" if count is None else f"{sign}{count:,}"
