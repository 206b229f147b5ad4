"""Writes metrics: TensorBoard event files, and a metric series for the terminal app."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.files import create_file, make_directory
from tfckpt_trainer.training.telemetry.series_writer import SeriesWriter
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics, StepSummary, finite

_numbers = itertools.count()

POINTS_PER_HEARTBEAT = 20
"""Largest number of steps written per heartbeat. A faster loop is sampled evenly."""

_BUFFER = 1 << 20
"""Bytes of an event file that are written at once."""

AGAIN_SECONDS = 30.0
"""Time after a disk error until a new event file is tried."""


class EventFile:
    """An event file that a disk which does not answer cannot stop training with.

    TensorFlow's own files hold Python's global lock while they write. This one is Python's, and
    only `flush` and `close` write.
    """

    def __init__(self, directory: Path) -> None:
        """Creates the file.

        Raises:
            DamagedFileError: The directory is a symbolic link.
            OSError: The disk refuses, or a directory above it, below `.tfckpt`, is a link.
        """
        make_directory(directory)
        now = time.time()
        # TensorBoard reads the files of a directory in the order of their names.
        words = (f"{int(now):010d}", host_name(), os.getpid(), next(_numbers))
        name = ".".join(["events.out.tfevents", *map(str, words)])
        self._file = create_file(directory / name, buffering=_BUFFER)
        self._records = RecordWriter(self._file)
        self._waiting: deque[bytes] = deque()
        self._writing = Lock()
        self.add_event(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
        self.flush()

    def add_event(self, event: event_pb2.Event) -> None:
        """Adds an event, which the next flush writes."""
        self._waiting.append(event.SerializeToString())

    def flush(self) -> None:
        """Writes what was added.

        Raises:
            OSError: The disk refuses.
        """
        with self._writing:
            while self._waiting:
                self._records.write(self._waiting.popleft())
            self._file.flush()

    def close(self) -> None:
        """Writes what was added, and closes the file.

        Raises:
            OSError: The disk refuses.
        """
        try:
            self.flush()
        finally:
            self._file.close()


class SummaryWriter:
    """Writes one worker's TensorBoard summaries, with one TensorBoard run per branch.

    The chief writes the metrics, which are means over all replicas, and appends the metric series.
    Every worker writes its own step time. Events are built by hand, because `tf.summary` would
    run operations between training steps. After a disk error, a new event file is tried each
    `AGAIN_SECONDS`; training goes on.
    """

    def __init__(
        self,
        run: RunDirectory,
        directory: Path,
        index: int,
        metrics: StepMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._index = index
        self._metrics = metrics
        self._branch: int | None = None
        self._writer_trouble = ""
        self._series = SeriesWriter(run)
        self._writer: EventFile | None = None
        self._clock = clock
        self._again_at = math.inf

    @property
    def branch_directory(self) -> Path:
        """Where the summaries of this worker on the present branch are."""
        name = f"branch-{self._branch or 0}"
        return self._directory / (name if self._index == 0 else f"{name}/worker-{self._index}")

    @property
    def trouble(self) -> str:
        """Description of what cannot be written; empty if there is no problem."""
        return self._writer_trouble or self._series.trouble

    def start_branch(self, branch: int, step: int) -> None:
        """Continues as `branch` from `step`. TensorBoard discards later steps of that branch."""
        self.flush()
        if self._branch != branch:
            self._close_file()
            self._branch = branch
            self._attempt(lambda: self._open(self.branch_directory))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(event_pb2.Event(session_log=start, wall_time=time.time(), step=step + 1))

    def add_new_steps(self) -> None:
        """Adds the steps since the last call, each second. The next flush writes them."""
        steps = self._metrics.take_finished_steps()
        newest = _newest_reports(steps)
        every = max(1, len(steps) // POINTS_PER_HEARTBEAT)
        for place, facts in enumerate(steps):
            if (place % every == 0 or place in newest) and facts.branch == self._branch:
                self._add(self._step_event(facts))
        if steps and self._index == 0:
            self._series.add(self._points_of(steps, newest))

    def write_event(self, step: int, text: str, scalars: Sequence[tuple[str, float]] = ()) -> None:
        """Writes an event such as a save or a restore: a line of text, and scalars with it."""
        values = [_text("events", text)]
        self._add(_event(step, [*values, *(_scalar(tag, value) for tag, value in scalars)]))

    def write_hyperparameters(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the values that a step used, or will use; on the chief only.

        Args:
            step: The step.
            values: By name.
        """
        if self._index == 0 and values:
            tagged = [(f"hyperparameters/{name}", value) for name, value in values.items()]
            self._add(_event(step, [_scalar(tag, value) for tag, value in tagged]))

    def flush(self) -> None:
        """Writes what was added, so that charts and TensorBoard show all steps."""
        self._series.flush()
        if self._writer is None and self._clock() >= self._again_at:
            self._attempt(lambda: self._open(self.branch_directory))
        writer = self._writer
        if writer is not None:
            self._attempt(writer.flush)

    def close(self) -> None:
        """Writes what was added, and closes the event file."""
        self._series.close()
        self._close_file()

    def _close_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._attempt(writer.close)
        self._again_at = math.inf

    def _step_event(self, facts: StepSummary) -> event_pb2.Event:
        values = [_scalar("step_seconds", facts.seconds)]
        if self._index == 0:
            values += [_scalar(name, value) for name, value in facts.metrics.items()]
        return event_pb2.Event(
            wall_time=facts.at, step=facts.step, summary=summary_pb2.Summary(value=values)
        )

    def _points_of(
        self, steps: Sequence[StepSummary], newest: Mapping[int, Mapping[str, float]]
    ) -> list[SeriesPoint]:
        """Returns the newest value of each metric, at the step that reported it."""
        points = [
            SeriesPoint(
                at=steps[place].at,
                step=steps[place].step,
                branch=steps[place].branch,
                metrics=finite(newest.get(place, {})),
            )
            for place in sorted({*newest, len(steps) - 1})
        ]
        points[-1] = msgspec.structs.replace(
            points[-1],
            examples_per_second=self._metrics.examples_per_second,
            step_seconds=float(np.mean([facts.seconds for facts in steps])),
        )
        return points

    def _add(self, event: event_pb2.Event) -> None:
        writer = self._writer
        if writer is not None:
            self._attempt(lambda: writer.add_event(event))

    def _open(self, directory: Path) -> None:
        self._writer, self._writer_trouble = EventFile(directory), ""

    def _attempt(self, act: Callable[[], None]) -> None:
        """Runs `act`. After a disk error or a link, writes nothing for a while."""
        try:
            act()
        except (OSError, TfckptError) as error:
            self._writer, self._again_at = None, self._clock() + AGAIN_SECONDS
            self._writer_trouble = (
                f"TensorBoard summaries cannot be written: {describe_error(error)}"
            )


def _newest_reports(steps: Sequence[StepSummary]) -> dict[int, dict[str, float]]:
    """Returns the newest value of each metric, by the place of the step that reported it."""
    places: dict[str, int] = {}
    for place, facts in enumerate(steps):
        places.update(dict.fromkeys(facts.metrics, place))
    newest: dict[int, dict[str, float]] = {}
    for name, place in places.items():
        newest.setdefault(place, {})[name] = steps[place].metrics[name]
    return newest


def _event(step: int, values: Sequence[summary_pb2.Summary.Value]) -> event_pb2.Event:
    return event_pb2.Event(
        wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=values)
    )


def _scalar(tag: str, value: float) -> summary_pb2.Summary.Value:
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="scalars"),
        data_class=summary_pb2.DATA_CLASS_SCALAR,
    )
    tensor = tensor_pb2.TensorProto(dtype=DT_FLOAT, float_val=[value])
    return summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _text(tag: str, text: str) -> summary_pb2.Summary.Value:
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"),
        data_class=summary_pb2.DATA_CLASS_TENSOR,
    )
    tensor = tensor_pb2.TensorProto(dtype=DT_STRING, string_val=[text.encode()])
    return summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
