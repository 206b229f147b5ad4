"""Trace some steps with the profiler of TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.records.command import Command, CommandState, ProfileArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trace import Profile, TraceOfWorker
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
)
from tfckpt_trainer.training.telemetry.tracing import Tracer
from tfckpt_trainer.words.counts import count


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
