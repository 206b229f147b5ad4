"""The report of `status`, for `--json` and for tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from tfckpt_trainer.catalog.directory.other_formats import (
    NO_NEIGHBOURS,
    Neighbours,
    find_neighbours,
)
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_tui.formats.worker_columns import json_values
from tfckpt_tui.reports.run_facts import (
    AlertFacts,
    ExactnessFacts,
    RunFacts,
    StatusReport,
    WorkerLine,
)
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.exactness.stored_checks import started_command, with_stored_check
from tfckpt_tui.services.runs.account import RunAccount, RunReading
from tfckpt_tui.services.runs.process_watch import ProcessWatch
from tfckpt_tui.services.runs.reading import read_account

_BAD = frozenset(
    {
        RunState.DEGRADED,
        RunState.FAILED,
        RunState.REFUSED,
        RunState.RESTARTING,
        RunState.UNANSWERED,
    }
)
"""States of a run that are problems."""


def status_report(
    run: RunDirectory,
    now: float | None = None,
    jobs: JobReader | None = None,
    processes: ProcessWatch | None = None,
) -> StatusReport:
    """Returns the report that `status --json` prints.

    Args:
        run: The run directory.
        now: Seconds since the epoch; by default the time of this machine.
        jobs: Asks about the batch job of the run; keep it for repeated reports, so that the
            scheduler is asked less often.
        processes: Looks at the processes of this host; by default nobody does.
    """
    now = time.time() if now is None else now
    return status_of(*read_account(run, now, jobs, processes))


def status_of(reading: RunReading, account: RunAccount) -> StatusReport:
    """Returns the report of `status` for a run that was read.

    Args:
        reading: What was read.
        account: The account made of it.
    """
    run, now = reading.run, account.at
    beside = _beside(run)
    info, supervisor, start = account.info, account.supervisor, reading.start
    return StatusReport(
        run=RunFacts(
            id=info.id if info else None,
            directory=str(run.root),
            state=account.state,
            words=account.words,
            reason=account.reason,
            exactness=_exactness(info, run),
            strategy=info.strategy if info else "",
            worker_count=info.worker_count if info else len(account.workers),
            cluster=info.cluster if info else {},
            step=account.step,
            branch=account.branch,
            lost_steps=account.lost_steps,
            loss=account.loss_in_words,
            total_steps=account.total_steps,
            checkpoint=start.checkpoint if start else None,
            checkpoints=len(reading.checkpoints),
            other_files=len(beside.others),
            below=beside.below,
            restarts=supervisor.attempt if supervisor else 0,
            code=info.code if info else None,
            command=started.command if (started := started_command(run)) is not None else None,
            gpus=account.gpus,
            saves=info.saves if info else "",
            event_files=account.measured,
        ),
        job=account.job.facts if account.job is not None else None,
        failure=account.failure,
        alerts=tuple(
            AlertFacts(kind=alert.kind, message=alert.message, advice=str(alert.advice))
            for alert in account.alerts
        ),
        problems=(
            *_newer(reading.newer_records),
            *account.problems,
        ),
        workers=tuple(WorkerLine(*json_values(worker, now)) for worker in account.workers),
        processes=account.processes,
    )


def _newer(records: Sequence[str]) -> Iterator[str]:
    if records:
        # Imported here: few runs have records of a newer release.
        from tfckpt_trainer.catalog.scan.diagnostics import describe_newer

        yield describe_newer(records)


def _beside(run: RunDirectory) -> Neighbours:
    with suppress(OSError):
        return find_neighbours(run.root)
    return NO_NEIGHBOURS


def has_problem(report: StatusReport) -> bool:
    """Whether a status report shows a problem."""
    return report.run.state in _BAD or bool(report.alerts)


def _exactness(info: RunInfo | None, run: RunDirectory) -> ExactnessFacts | None:
    exactness = with_stored_check(info, run).known_exactness if info is not None else None
    if exactness is None:
        return None
    return ExactnessFacts(**msgspec.structs.asdict(exactness), words=exactness.explained)
