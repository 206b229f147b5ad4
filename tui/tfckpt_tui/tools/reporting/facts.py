"""Puts the facts of a run together into one record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tfckpt_trainer import __version__
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.lineage import lineage_at
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.event_log import WHOLE_LOG, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import BEGINS, EventEntry, EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.series import find_thinned_part
from tfckpt_tui.reports.logs import Event
from tfckpt_tui.services.metrics.metric_tail import read_metrics
from tfckpt_tui.services.runs.account import RunAccount, RunReading
from tfckpt_tui.services.runs.guards import GuardOfRun, facts_of_guard, read_guards
from tfckpt_tui.services.runs.hyperparameters import facts_of, hyperparameters_of
from tfckpt_tui.services.runs.reading import as_problem, read_account
from tfckpt_tui.services.runs.report import status_of
from tfckpt_tui.tools.reporting.curves import CurveReader
from tfckpt_tui.tools.reporting.json_report import (
    CurvesFacts,
    HyperparameterChange,
    PrunedFacts,
    RunReport,
    SaveFacts,
    SavesFacts,
    StragglerFacts,
)

_MOST_CHECKPOINTS = 100
_MOST_NAMES = 100
_MOST_EVENTS = 500
_MOST_CHANGES = 500


def report_of(run: RunDirectory) -> RunReport:
    """Reads a run and returns its report.

    Raises:
        DamagedFileError: The description of the run cannot be read.
        OSError: The directory cannot be read.
    """
    reading, account = read_account(run, time.time())
    log = read_entries(run, WHOLE_LOG)
    status, info, start = status_of(reading, account), account.info, reading.start
    at_start = next(
        (c.record for c in reading.checkpoints if start is not None and c.name == start.checkpoint),
        None,
    )
    guards, problems = _guards(run, account, log)
    events = [entry for entry in log if entry.kind is not EventKind.SAVE]
    return RunReport(
        written_at=account.at,
        release=__version__,
        created_at=info.created_at if info else None,
        run=status.run,
        job=status.job,
        failure=status.failure,
        alerts=status.alerts,
        problems=(*status.problems, *problems),
        workers=status.workers,
        stragglers=tuple(
            StragglerFacts(index=w.status.index, host=w.status.host, why=w.straggling)
            for w in account.workers
            if w.straggling
        ),
        versions=info.versions if info else {},
        curves=_curves(run, reading, account, log),
        hyperparameters=tuple(
            map(facts_of, hyperparameters_of(account, start, at_start).values.values())
        ),
        changes=tuple(_changes(log))[-_MOST_CHANGES:],
        guards=tuple(map(facts_of_guard, guards)),
        saves=_saves(reading.checkpoints, sum(entry.kind is EventKind.SAVE for entry in log)),
        pruned=tuple(map(_pruned, list_trash(run))),
        events=tuple(
            msgspec.convert(entry, Event, from_attributes=True) for entry in events[-_MOST_EVENTS:]
        ),
        events_left_out=max(0, len(events) - _MOST_EVENTS),
    )


def _guards(
    run: RunDirectory, account: RunAccount, log: Sequence[EventEntry]
) -> tuple[tuple[GuardOfRun, ...], tuple[str, ...]]:
    try:
        found = read_guards(run, is_live=account.trainer_answers, events=log)
    except (TfckptError, OSError) as error:
        return (), (as_problem(error),)
    return found.guards, (found.problem,) if found.problem else ()


def _curves(
    run: RunDirectory, reading: RunReading, account: RunAccount, log: Sequence[EventEntry]
) -> CurvesFacts:
    reader = CurveReader(log)
    for points in read_metrics(run):
        reader.add(points)
    facts = reader.facts(lineage_at(reading.checkpoints, account.position).last_steps)
    thinned = find_thinned_part(run) if run.logdir is None else None
    if thinned is None:
        return facts
    return replace(facts, thinned_before=thinned.before, thinned_steps=thinned.width)


def _changes(log: Iterable[EventEntry]) -> Iterator[HyperparameterChange]:
    """Yields the changes of hyperparameters, from the event log, at the steps at which they began.

    A plan is one when it begins, which has an entry of its own.
    """
    for entry in log:
        if entry.details.get(BEGINS, entry.step) != entry.step:
            continue
        changes = entry.details.get("hyperparameters")
        for change in changes if isinstance(changes, list) else ():
            if isinstance(change, dict) and isinstance(change.get("name"), str):
                yield HyperparameterChange(
                    at=entry.at,
                    step=entry.step,
                    name=change["name"],
                    before=_number(change.get("before")),
                    after=_number(change.get("after")),
                    kind=entry.kind,
                    by=entry.by,
                )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _saves(checkpoints: Sequence[Checkpoint], noted: int) -> SavesFacts:
    facts = [_save(checkpoint) for checkpoint in checkpoints]
    stalls = [fact.stall_seconds for fact in facts if fact.stall_seconds is not None]
    return SavesFacts(
        noted=noted,
        kept=len(facts),
        bytes=sum(fact.bytes for fact in facts),
        costed=len(stalls),
        seconds=sum(fact.seconds or 0.0 for fact in facts),
        stall_seconds=sum(stalls),
        longest_stall_seconds=max(stalls, default=None),
        slowing_seconds=sum(fact.slowing_seconds or 0.0 for fact in facts),
        checkpoints=tuple(facts[:_MOST_CHECKPOINTS]),
    )


def _save(checkpoint: Checkpoint) -> SaveFacts:
    record = checkpoint.record
    cost = record.cost if record is not None else None
    return SaveFacts(
        name=checkpoint.name,
        step=checkpoint.step,
        branch=checkpoint.branch,
        state=checkpoint.state.value,
        saved_at=checkpoint.saved_at,
        trigger=checkpoint.trigger,
        bytes=checkpoint.size,
        seconds=record.duration_seconds if record is not None else None,
        stall_seconds=cost.stall_seconds if cost is not None else None,
        slowing_seconds=cost.slowing_seconds if cost is not None else None,
    )


def _pruned(manifest: TrashManifest) -> PrunedFacts:
    return PrunedFacts(
        at=manifest.at,
        by=manifest.by,
        names=tuple(manifest.names[:_MOST_NAMES]),
        checkpoints=len(manifest.checkpoints),
        bytes=manifest.size,
    )
