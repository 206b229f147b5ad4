"""Trace some steps with the profiler of TensorFlow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import tensorflow as tf

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.records.command import Command, CommandState, ProfileArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_trainer.rundir.storage.files import make_directory, share_directory, share_file
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
)
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics, median
from tfckpt_trainer.words.counts import count

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


class ProfileHandler(Handler[ProfileArguments]):
    """Traces the next steps on some workers or on all, and answers when they are done."""

    arguments = ProfileArguments

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._tracer = Tracer(trainer.group.index, trainer.telemetry.metrics)
        self._steps = self._left = self._last_step = 0

    def prepare(self, command: Command, arguments: ProfileArguments) -> CommandVote:
        """Refuses while training is paused or a trace is in progress."""
        del command
        if self.trainer.loop.paused:
            return CommandVote("Training is paused. Resume it, then profile.")
        if self.current is not None:
            return CommandVote("A profile is in progress. Try again when it is over.")
        workers = self.trainer.group.size
        unknown = [index for index in arguments.workers or () if index >= workers]
        if unknown:
            return CommandVote(
                f"There is no worker {unknown[0]}: the run has {count(workers, 'worker')}, "
                "numbered from 0."
            )
        return AGREED

    def commit(self, command: Command, arguments: ProfileArguments) -> CommandVote | None:
        """Begins the trace."""
        group, problem = self.trainer.group, ""
        if arguments.workers is None or group.index in arguments.workers:
            try:
                self._tracer.start(self.trainer.telemetry.summaries.branch_directory)
            except Exception as error:
                # The profiler belongs to TensorFlow, and depends on the device.
                problem = f"worker {group.index}: {describe_error(error)}"
        problems = [vote.refusal for vote in group.all_gather(CommandVote(problem)) if vote.refusal]
        if problems:
            self._tracer.abandon()
            return CommandVote("; ".join(problems))
        self._steps = self._left = arguments.steps
        self._last_step = self.trainer.position.step
        self.current = command
        return None

    def is_due(self) -> bool:
        """Counts the step of a trace; returns whether it was the last one."""
        if self.current is None:
            return False
        step = self.trainer.position.step
        # After a restore, steps are counted from there.
        self._left -= max(0, step - self._last_step)
        self._last_step = step
        return self._left <= 0

    def carry_on(self) -> None:
        """Ends the trace after its last step."""
        command, self.current = self.current, None
        if command is not None:
            self._answer(command)

    def ended(self) -> None:
        """Gives up a trace that the end of the run has cut short."""
        command, self.current = self.current, None
        if command is not None:
            self._tracer.abandon()
            message = "The run ended before the steps were traced."
            self.trainer.answer(command, CommandAnswer(CommandState.FAILED, message))

    def put_back(self, command: Command | None) -> None:
        """Gives up the trace of this command."""
        if self.current in (None, command):
            self.current = None
            self._tracer.abandon()

    def _answer(self, command: Command) -> None:
        traced = self._steps - self._left
        traces = self.trainer.group.all_gather(self._tracer.stop(traced))
        traces = [trace for trace in traces if trace.file or trace.problem]
        problems = [f"worker {one.worker}: {one.problem}" for one in traces if one.problem]
        result = msgspec.to_builtins(Profile(steps=traced, workers=traces))
        if problems:
            message = f"No trace was written on {'; '.join(problems)}."
            state, kind = CommandState.FAILED, EventKind.FAILED
        else:
            workers = count(len(traces), "worker")
            message = f"Traced {count(traced, 'step')} on {workers}. {_cost(traces)}"
            state, kind = CommandState.DONE, EventKind.NOTE
        step = self.trainer.position.step
        self.trainer.telemetry.note(kind, f"profile: {message}", command, step=step)
        self.trainer.answer(command, CommandAnswer(state, message, result))


def _cost(traces: Sequence[TraceOfWorker]) -> str:
    """Returns what tracing cost on the worker that it slowed most, as sentences."""
    waited = max(trace.write_seconds for trace in traces)
    written = f"Training waited {waited:.2f} s until the traces were written."
    compared = [
        (trace.step_seconds / trace.before_seconds, trace.before_seconds, trace.step_seconds)
        for trace in traces
        if trace.step_seconds and trace.before_seconds
    ]
    if not compared:
        return written
    _, before, traced = max(compared)
    return f"A step took {traced * 1e3:.3g} ms, and {before * 1e3:.3g} ms before. {written}"
