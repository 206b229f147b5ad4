"""Runs a training script twice in a scratch directory, and compares the repeated steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import LaunchError, TfckptError
from tfckpt_trainer.exactness.step_differences import (
    StepDifference,
    Trace,
    first_difference,
    steps_compared,
)
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.records.check import CHECK_VARIABLE, CheckedStep, CheckOrder, Pass
from tfckpt_trainer.rundir.records.exactness import merge_exactness
from tfckpt_trainer.rundir.storage.files import create_directory
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_tui.services.exactness.scratch_run import GRACE_SECONDS, ScratchRun, scratch_run

WARM_UP_STEPS = 3
"""Steps before the save: the first ones create state, such as compiled functions."""


@dataclass(frozen=True)
class CheckOptions:
    """What to check.

    Attributes:
        command: The command of each worker.
        working_directory: Where it runs.
        steps: Steps to repeat.
        workers: Number of workers.
        parameter_servers: Number of parameter servers.
        environment: Additional environment variables of the workers.
    """

    command: tuple[str, ...]
    working_directory: str
    steps: int = 20
    workers: int = 1
    parameter_servers: int = 0
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Repetition:
    """How a repeated pass went.

    Attributes:
        phase: In place or cold.
        steps: Steps that were repeated.
        difference: The first difference; None if all steps are exact.
    """

    phase: Pass
    steps: int
    difference: StepDifference | None

    @property
    def exact(self) -> bool:
        """Whether every compared value is equal, bit by bit."""
        return self.difference is None


class Verdict(Enum):
    """What a check says about resuming."""

    EXACT = auto()
    EXACT_SO_FAR = auto()
    """All repeated steps are exact; others are known not to be."""
    NOT_EXACT = auto()


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        options: What was checked.
        repetitions: In place and cold.
        workers: Number of workers that recorded steps.
        metrics: Names of the metrics that were compared.
        objects: Number of objects whose state was compared, on the worker that has most.
        has_input: Whether the input of each step was compared.
        seconds: How long the check took.
        run_directory: Path of the run directory that the script passed; empty if it passed none.
        gpu_order_varies: Whether the steps ran on a GPU without op determinism. Then a difference
            may appear in one run and not in another.
        obstacles: Why resuming is known not to be exact, whatever was compared, each as a clause.
        remedies: What to change in the script then, each as a sentence.
    """

    options: CheckOptions
    repetitions: tuple[Repetition, ...]
    workers: int
    metrics: tuple[str, ...]
    objects: int
    has_input: bool
    seconds: float
    run_directory: str = ""
    gpu_order_varies: bool = False
    obstacles: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether all repeated steps are exact."""
        return all(repetition.exact for repetition in self.repetitions)

    @property
    def verdict(self) -> Verdict:
        """What the repeated steps and the obstacles say together."""
        if not self.exact:
            return Verdict.NOT_EXACT
        return Verdict.EXACT_SO_FAR if self.obstacles else Verdict.EXACT

    @property
    def steps(self) -> int:
        """Steps that were repeated in every pass."""
        return min(repetition.steps for repetition in self.repetitions)


OnProgress = Callable[[str], None]


def run_check(
    options: CheckOptions,
    on_progress: OnProgress = lambda _: None,
    look: Callable[[], None] = lambda: None,
) -> CheckResult:
    """Checks a script in a scratch directory, which is removed afterwards.

    Ends all processes that it started, however it ends.

    Args:
        options: What to check.
        on_progress: Called with a line for each phase and step.
        look: Called ten times a second. What it raises ends the check.

    Raises:
        UsageError: The command cannot be run.
        LaunchError: A worker failed; the message ends with its log.
        TfckptError: The script cannot be saved, does not train long enough, or does not use
            `TrainingRun`.
        KeyboardInterrupt: A signal asked to end the check.
    """
    began = time.monotonic()
    with scratch_run("check", "The check") as scratch:
        order = CheckOrder(
            directory=str(scratch.directory / "trace"), warm_up=WARM_UP_STEPS, steps=options.steps
        )
        create_directory(Path(order.directory))
        on_progress("starting the script")
        _run_once(scratch, options, order, on_progress, look)
        on_progress("starting again, from the checkpoint")
        _run_once(scratch, options, order, on_progress, look)
        traces = read_traces(order)
        _check_complete(traces, scratch)
        return result_of(options, traces, time.monotonic() - began)


def _run_once(
    scratch: ScratchRun,
    options: CheckOptions,
    order: CheckOrder,
    on_progress: OnProgress,
    look: Callable[[], None],
) -> None:
    """Starts all workers and follows them until they end."""
    launched = LaunchOptions(
        run_directory=str(scratch.run.root),
        command=options.command,
        working_directory=options.working_directory,
        workers=options.workers,
        parameter_servers=options.parameter_servers,
        max_restarts=0,
        grace_seconds=GRACE_SECONDS,
        standby=False,
        environment=(
            *options.environment,
            (CHECK_VARIABLE, msgspec.json.encode(order).decode()),
        ),
    )
    trace = Tail(Path(order.trace(0)), CheckedStep)
    while trace.read_new():
        pass  # Lines of the process before.

    def report() -> None:
        look()
        for line in trace.read_new():
            if not line.problem:
                on_progress(_progress(line, order))

    try:
        scratch.train(launched, report)
    except LaunchError:
        _raise_problem(order)
        raise
    _raise_problem(order)


def _raise_problem(order: CheckOrder) -> None:
    """Raises what a worker reports as the end of the check."""
    for trace in read_traces(order).values():
        for line in trace.values():
            if line.problem:
                raise TfckptError(f"There is nothing to compare. {line.problem}")


def _progress(line: CheckedStep, order: CheckOrder) -> str:
    done = line.step - order.warm_up
    if done:
        return f"{_DOING[line.phase]}: step {done} of {order.steps}"
    return _DONE[line.phase].format(line.step)


_DOING = {
    Pass.FIRST: "training",
    Pass.IN_PLACE: "repeating in place",
    Pass.COLD: "repeating in a new process",
}
_DONE = {
    Pass.FIRST: "saved step {}",
    Pass.IN_PLACE: "restored step {} in place",
    Pass.COLD: "restored step {} in a new process",
}


def read_traces(order: CheckOrder) -> dict[int, Trace]:
    """Returns what each worker has recorded so far, by index."""
    traces: dict[int, Trace] = {}
    for path in sorted(Path(order.directory).glob("worker-*.jsonl")):
        index = int(path.stem.partition("-")[2])
        lines = [msgspec.json.decode(line, type=CheckedStep) for line in path.open("rb")]
        traces[index] = {(line.phase, line.step): line for line in lines}
    return traces


def _check_complete(traces: dict[int, Trace], scratch: ScratchRun) -> None:
    if not traces:
        raise TfckptError(
            f"The script ended without {WARM_UP_STEPS} steps of a TrainingRun, so there is nothing "
            "to compare. Train with TrainingRun or tfckpt_trainer.training.fit, for at least "
            f"{WARM_UP_STEPS + 1} steps. The end of its log:\n{scratch.end_of_log(0)}"
        )
    for phase in (Pass.IN_PLACE, Pass.COLD):
        if any(all(pass_ is not phase for pass_, _ in trace) for trace in traces.values()):
            last = max(step for trace in traces.values() for _, step in trace)
            raise TfckptError(
                f"The script left its loop after step {last}, before the check was complete. Give "
                "it more steps, or check fewer with `--steps`."
            )


def result_of(options: CheckOptions, traces: dict[int, Trace], seconds: float) -> CheckResult:
    """Returns the result of what the workers recorded, by the index of the worker."""
    lines = [line for trace in traces.values() for line in trace.values()]
    facts = [line.facts for line in lines if line.facts]
    exactness = merge_exactness([fact.exactness for fact in facts if fact.exactness])
    return CheckResult(
        options=options,
        repetitions=tuple(
            Repetition(phase, steps_compared(traces, phase), first_difference(traces, phase))
            for phase in (Pass.IN_PLACE, Pass.COLD)
        ),
        workers=len(traces),
        metrics=tuple(dict.fromkeys(name for line in lines for name in line.metrics)),
        objects=max(len(line.state) for line in lines),
        has_input=any(line.batch for line in lines),
        seconds=seconds,
        run_directory=next((fact.run_directory for fact in facts), ""),
        gpu_order_varies=any(fact.gpus and not fact.deterministic for fact in facts),
        obstacles=tuple(exactness.reasons if exactness.is_missing_state else ()),
        remedies=tuple(exactness.remedies if exactness.is_missing_state else ()),
    )
