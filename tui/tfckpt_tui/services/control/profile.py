"""Has workers trace some steps, and reads the traces."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import ProfileArguments
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.profile import OperationFacts, ProfileReport, TraceFacts
from tfckpt_tui.services.control.request import FrontEnd, OnChange, ask
from tfckpt_tui.services.runs.traces import read_operations

ALL_WORKERS = "all"


def parse_workers(text: str) -> list[int] | None:
    """Returns the indexes in a text such as `0,1`, or None for all workers.

    An empty text means those that trace by default.

    Raises:
        UsageError: It is no list of indexes.
    """
    if text.strip() == ALL_WORKERS:
        return None
    if not text.strip():
        return ProfileArguments().workers
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise UsageError(f"{text!r} is no list of workers; expected indexes such as 0,1, or all.")
    return list(map(int, parts))


def profile_run(
    run: RunDirectory,
    arguments: ProfileArguments,
    *,
    through: FrontEnd,
    timeout: float,
    on_change: OnChange | None = None,
) -> ProfileReport:
    """Traces the next steps of a run, and returns which operations took most of the time.

    Args:
        run: The run directory.
        arguments: Which steps, and on which workers.
        through: The front end that asks.
        timeout: Seconds to wait for the traces.
        on_change: Called with each change of the command.

    Raises:
        TfckptError: See `ask`; or the trainer answered something else than traces.
    """
    done = ask(run, arguments, through=through, timeout=timeout, on_change=on_change)
    try:
        result = msgspec.convert(done.result, Profile)
    except msgspec.ValidationError as error:
        raise TfckptError(f"The trainer answered something else than traces: {error}.") from error
    return ProfileReport(
        message=done.message, steps=result.steps, traces=tuple(map(_read, result.workers))
    )


def _read(trace: TraceOfWorker) -> TraceFacts:
    operations: tuple[OperationFacts, ...] = ()
    problem = ""
    try:
        operations = read_operations(Path(trace.file))
    except TfckptError as error:
        problem = str(error)
    return TraceFacts(
        worker=trace.worker,
        file=clean(trace.file),
        before_seconds=trace.before_seconds,
        step_seconds=trace.step_seconds,
        write_seconds=trace.write_seconds,
        operations=operations,
        problem=clean(problem),
    )
