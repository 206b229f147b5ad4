"""Has workers trace some steps, and reads the traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import ProfileArguments
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.profile import OperationFacts, ProfileReport, TraceFacts
from tfckpt_tui.services.control.request import FrontEnd, OnChange, ask
from tfckpt_tui.services.runs.trace_file import slowest_operations


def profile_run(
    run: RunDirectory,
    steps: int,
    workers: Sequence[int],
    *,
    through: FrontEnd,
    timeout: float,
    on_change: OnChange | None = None,
) -> ProfileReport:
    """Traces the next steps of a run, and returns which operations took most of the time.

    Args:
        run: The run directory.
        steps: How many steps.
        workers: Indexes of the workers that trace; none for all.
        through: The front end that asks.
        timeout: Seconds to wait for the traces.
        on_change: Called with each change of the command.

    Raises:
        TfckptError: See `ask`; or the trainer answered something else than traces.
    """
    arguments = ProfileArguments(steps=steps, workers=list(workers) or None)
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
        slowest, total = slowest_operations(Path(trace.file))
    except TfckptError as error:
        problem = str(error)
    else:
        operations = tuple(
            OperationFacts(
                name=one.name,
                kind=one.kind,
                place=one.place,
                calls=one.calls,
                seconds=one.seconds,
                share=one.seconds / total if total else 0.0,
            )
            for one in slowest
        )
        problem = "" if operations else "The trace has no operations of TensorFlow."
    return TraceFacts(
        worker=trace.worker,
        file=clean(trace.file),
        before_seconds=trace.before_seconds,
        step_seconds=trace.step_seconds,
        write_seconds=trace.write_seconds,
        operations=operations,
        problem=clean(problem),
    )
