"""Finds the traces of a run, and reads which operations took most of their time."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.wire import WireError, fields
from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_trainer.rundir.storage.documents import load_if_exists, try_read
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.profile import OperationFacts
from tfckpt_tui.services.runs.reading import event_directory

LARGEST_BYTES = 1 << 30
"""Size above which a trace is not read."""

_HOST, _DEVICE = "/host:CPU", "/device:"

_OPERATION = re.compile(r"(?P<name>[^:]+):(?P<kind>[A-Z_]\w*)\Z")
"""How the tracer of a host names the operations of TensorFlow, among other events."""

_PICO = 1e-12

MOST_TRACES = 500
"""Number of traces that are listed, the newest ones."""

_BELOW = "plugins/profile/*/*.xplane.pb"
"""Where TensorFlow writes traces, below the directory of some curves of TensorBoard."""


@dataclass(frozen=True)
class Operation:
    """All calls of one operation in a trace.

    Attributes:
        name: Its name in the graph; of a device, the name of a kernel.
        kind: Its type, such as `MatMul`; empty on a device.
        place: `CPU`, or a device such as `GPU:0`.
        calls: How often it ran.
        seconds: How long it took in all calls, without operations that it called.
    """

    name: str
    kind: str
    place: str
    calls: int
    seconds: float


def slowest_operations(path: Path, most: int = 10) -> tuple[list[Operation], float]:
    """Returns the operations that took most time, the longest first, and the time of all.

    Args:
        path: The trace.
        most: How many.

    Raises:
        TfckptError: The file cannot be read, or is larger than `LARGEST_BYTES`.
    """
    try:
        with open_plain(path) as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise TfckptError(f"The trace {path} cannot be read: {error.strerror}.") from error
    if len(data) > LARGEST_BYTES:
        raise TfckptError(
            f"The trace {path} is larger than {LARGEST_BYTES:,} bytes; trace fewer steps."
        )
    try:
        operations = [
            operation
            for plane in (content for number, _, _, content in fields(data) if number == 1)
            for operation in _operations_of(plane)
        ]
    except WireError as error:
        raise DamagedFileError(f"{path} is no trace of TensorFlow: {error}.") from error
    slowest = heapq.nlargest(most, operations, key=lambda operation: operation.seconds)
    return slowest, sum(operation.seconds for operation in operations)


def _operations_of(plane: bytes) -> Iterator[Operation]:
    """Yields the operations of one plane."""
    plane_name, lines, names = "", [], dict[int, str]()
    for number, _, _, content in fields(plane):
        if number == 2:
            plane_name = content.decode(errors="replace")
        elif number == 3:
            lines.append(content)
        elif number == 4:
            key, name = _metadata(content)
            names[key] = name
    is_host = plane_name == _HOST
    if not (is_host or plane_name.startswith(_DEVICE)):
        return
    matches = {key: _OPERATION.match(name) for key, name in names.items()} if is_host else {}
    wanted = {key for key in names if not is_host or matches[key] is not None}
    totals: dict[int, tuple[int, int]] = {}
    for line in lines:
        for key, own in _own_times(_events(line, wanted)):
            calls, duration = totals.get(key, (0, 0))
            totals[key] = calls + 1, duration + own
    place = clean("CPU" if is_host else plane_name.removeprefix(_DEVICE))
    for key, (calls, duration) in totals.items():
        match = matches.get(key)
        name, kind = match.group("name", "kind") if match is not None else (names[key], "")
        yield Operation(clean(name), clean(kind), place, calls, duration * _PICO)


def _metadata(entry: bytes) -> tuple[int, str]:
    """Returns number and name of a kind of event."""
    key, name = 0, b""
    for number, _, value, content in fields(entry):
        if number == 1:
            key = value
        elif number == 2:
            name = next((text for inner, _, _, text in fields(content) if inner == 2), b"")
    return key, name.decode(errors="replace")


def _events(line: bytes, wanted: set[int]) -> list[tuple[int, int, int]]:
    """Returns start, end (in picoseconds) and kind of the events of a line."""
    events = []
    for number, _, _, content in fields(line):
        if number != 4:
            continue
        key = offset = duration = 0
        for inner, _, value, _ in fields(content):
            if inner == 1:
                key = value
            elif inner == 2:
                offset = value
            elif inner == 3:
                duration = value
        if key in wanted:
            events.append((offset, offset + duration, key))
    return events


def _own_times(events: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the kind of each event and its duration, without that of events within it."""
    open_events: list[list[int]] = []
    # Of two that begin together, the longer one is outside.
    for start, end, key in sorted(events, key=lambda event: (event[0], -event[1])):
        while open_events and open_events[-1][0] <= start:
            _, outer, own = open_events.pop()
            yield outer, own
        if open_events:
            open_events[-1][2] -= min(end, open_events[-1][0]) - start
        open_events.append([end, key, end - start])
    for _, key, own in reversed(open_events):
        yield key, own


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


def _told(text: Callable[[RecordedTrace], str]) -> Callable[[Trace, float], str]:
    return lambda trace, _: "" if trace.recorded is None else text(trace.recorded)


COLUMNS: tuple[ListColumn[Trace], ...] = (
    ListColumn("age", lambda trace, at: units.age(max(0.0, at - trace.at)), ListCell("written", 7)),
    ListColumn("worker", _told(lambda it: str(it.of_worker.worker)), ListCell("worker", 6)),
    ListColumn("steps", _told(lambda it: f"{it.steps:,}"), ListCell("steps", 5)),
    ListColumn(
        "traced",
        _told(lambda it: units.step_time(it.of_worker.step_seconds)),
        ListCell("step traced", 11, rank=1),
    ),
    ListColumn(
        "before",
        _told(lambda it: units.step_time(it.of_worker.before_seconds)),
        ListCell("before", 8, rank=1, style="muted"),
    ),
    ListColumn(
        "waited",
        _told(lambda it: units.step_time(it.of_worker.write_seconds)),
        ListCell("then waited", 11, rank=2, style="muted"),
    ),
    ListColumn(
        "size",
        lambda trace, _: units.size(trace.size),
        ListCell("size", 8, rank=3, style="muted"),
    ),
    ListColumn(
        "curves",
        lambda trace, _: trace.curves,
        ListCell("in TensorBoard", 17, rank=2, align="<", stretch=1, style="muted"),
    ),
)
"""All columns of the traces of a run, in the order in which each part shows them."""


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
