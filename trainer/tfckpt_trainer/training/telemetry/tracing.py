"""Traces steps of this worker with the profiler of TensorFlow."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.records.trace import TraceOfWorker
from tfckpt_trainer.rundir.storage.files import make_directory, share_directory, share_file
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics, median

_OPTIONS = tf.profiler.experimental.ProfilerOptions(
    host_tracer_level=2, python_tracer_level=0, device_tracer_level=1
)
"""Operations on processors and devices, without calls of Python: these cost many times as much.

The tracer of the host is safe on the first worker alone. On the others, each collective asks the
first worker for its parameters. This operation ends on another thread than it began on. When the
trace stops, `TraceMeRecorder::Consume` (tsl, TensorFlow 2.21) keeps pointers to such events in
deques, and copies the deques while it collects more: it then writes to freed memory. In 14 of 185
traces of two workers, the second one crashed by "double free or corruption" or SIGSEGV.
"""


_TRACES = "plugins/profile"

_FEWEST_BEFORE = 10
"""Steps to compare with. Few would be those in which TensorFlow traced the graph."""


class Tracer:
    """Traces the steps between `start` and `stop`.

    TensorFlow writes `plugins/profile/TIME/HOST.xplane.pb` below the directory of a TensorBoard
    run, where TensorBoard's profile plugin finds it.
    """

    def __init__(self, worker: int, metrics: StepMetrics) -> None:
        self._worker = worker
        self._metrics = metrics
        self._directory: Path | None = None
        self._earlier: set[Path] = set()
        self._before: float | None = None

    def start(self, directory: Path) -> None:
        """Begins a trace.

        Args:
            directory: Of the TensorBoard run.

        Raises:
            TfckptError: A trace is in progress, such as by a callback of the script; or the
                directory of traces is a symbolic link.
            OSError: The directory of traces cannot be created.
        """
        make_directory(directory / _TRACES)
        self._metrics.wait_for_step()
        times = self._metrics.step_seconds
        self._earlier = _traces(directory)
        self._before = median(times) if len(times) >= _FEWEST_BEFORE else None
        try:
            tf.profiler.experimental.start(str(directory), options=_OPTIONS)
        except tf.errors.AlreadyExistsError:
            raise TfckptError(
                "A trace is in progress in this process, such as by a callback of the script. "
                "Try again when it is over."
            ) from None
        self._directory = directory

    def stop(self, steps: int) -> TraceOfWorker:
        """Ends the trace, and writes it.

        Args:
            steps: How many steps it has.
        """
        directory, self._directory = self._directory, None
        if directory is None:
            return TraceOfWorker(worker=self._worker)
        self._metrics.wait_for_step()
        # The last one is measured when it has been counted.
        traced = deque(self._metrics.step_seconds, maxlen=max(1, steps - 1))
        began = time.monotonic()
        problem, written = _why_not(directory), set[Path]()
        try:
            tf.profiler.experimental.stop(save=not problem)
            written = _traces(directory) - self._earlier
            for file in written:
                share_directory(file.parent)
                share_file(file)
        except (tf.errors.OpError, OSError) as error:
            problem = describe_error(error)
        if not (written or problem):
            problem = "TensorFlow wrote no trace"
        return TraceOfWorker(
            worker=self._worker,
            file=str(max(written)) if written else "",
            before_seconds=self._before,
            step_seconds=median(traced),
            write_seconds=time.monotonic() - began,
            problem=problem,
        )

    def abandon(self) -> None:
        """Ends the trace, if there is one, and keeps nothing of it."""
        if self._directory is not None:
            self._directory = None
            tf.profiler.experimental.stop(save=False)


def _why_not(directory: Path) -> str:
    """Returns why nothing can be written; TensorFlow would follow a link that is made meanwhile."""
    try:
        make_directory(directory / _TRACES)
    except (OSError, TfckptError) as error:
        return describe_error(error)
    return ""


def _traces(directory: Path) -> set[Path]:
    return set(directory.glob(f"{_TRACES}/*/*.xplane.pb"))
