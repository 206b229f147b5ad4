"""Finds the traces of a run, and reads which operations took most of their time."""

from __future__ import annotations

import heapq
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_trainer.rundir.storage.documents import load_if_exists, try_read
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.profile import OperationFacts
from tfckpt_tui.services.runs.reading import event_directory
from tfckpt_tui.services.runs.trace_file import slowest_operations

MOST_TRACES = 500
"""Number of traces that are listed, the newest ones."""

_BELOW = "plugins/profile/*/*.xplane.pb"
"""Where TensorFlow writes traces, below the directory of some curves of TensorBoard."""


@dataclass(frozen=True)
class RecordedTrace:
    """What the trainer answered to the command that made a trace.

    Attributes:
        steps: How many steps were traced.
        of_worker: What tracing cost on the worker.
    """

    steps: int
    of_worker: TraceOfWorker


@dataclass(frozen=True)
class Trace:
    """A trace of one worker, or of a callback of the script.

    Attributes:
        path: The file.
        curves: The directory of the curves that TensorBoard shows it with, below that of all event
            files, such as `branch-0/worker-1`; safe to show.
        at: When it was written (seconds since the epoch).
        size: Bytes.
        recorded: What the trainer answered; None if it was no command, or long ago.
    """

    path: Path
    curves: str
    at: float
    size: int
    recorded: RecordedTrace | None = None


def find_traces(run: RunDirectory) -> tuple[Trace, ...]:
    """Returns the traces of a run, the newest first."""
    root = event_directory(run)
    traces = []
    # Those of the chief or of a callback, and those of other workers.
    for path in (path for depth in ("", "*/", "*/*/") for path in root.glob(depth + _BELOW)):
        with suppress(OSError):
            facts, curves = path.stat(), path.relative_to(root).parents[3]
            traces.append(Trace(path, clean(str(curves)), facts.st_mtime, facts.st_size))
    newest = heapq.nlargest(MOST_TRACES, traces, key=lambda trace: (trace.at, str(trace.path)))
    recorded = _recorded(run) if newest else {}
    return tuple(replace(trace, recorded=recorded.get(_key(trace.path))) for trace in newest)


def read_operations(path: Path) -> tuple[OperationFacts, ...]:
    """Returns the operations of a trace that took most time, the longest first.

    Raises:
        TfckptError: The file cannot be read, or has none.
    """
    slowest, total = slowest_operations(path)
    if not slowest:
        raise TfckptError("The trace has no operations of TensorFlow.")
    return tuple(
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


def _recorded(run: RunDirectory) -> dict[tuple[str, ...], RecordedTrace]:
    """Returns what the answers to commands say of traces."""
    recorded = {}
    for path in run.done.glob("*.json"):
        command = try_read(partial(load_if_exists, path, Command))
        if command is None or command.kind is not CommandKind.PROFILE:
            continue
        with suppress(msgspec.ValidationError):
            profile = msgspec.convert(command.result, Profile)
            for one in profile.workers:
                recorded[_key(Path(one.file))] = RecordedTrace(profile.steps, one)
    return recorded


def _key(path: Path) -> tuple[str, ...]:
    """Returns what tells a trace from others, wherever its run directory lies now."""
    return path.parts[-5:]
