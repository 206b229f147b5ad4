"""Trains a small model in scratch directories, and judges what it left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tfckpt_trainer.cluster.gpu_shares import visible_gpus
from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.errors import LaunchError, TfckptError, UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.records.selftest import (
    KilledWorker,
    RecordedStep,
    killed_file,
    steps_file,
)
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.rundir.storage.files import create_directory, make_directory
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_tui.formats import units
from tfckpt_tui.reports.checking import Outcome, Row
from tfckpt_tui.services.exactness.check import CheckOptions, OnProgress, run_check
from tfckpt_tui.services.exactness.scratch_run import GRACE_SECONDS, ScratchRun, scratch_run
from tfckpt_tui.tools.selftest import rows
from tfckpt_tui.tools.selftest.evidence import TrainingEvidence, describe_machine, read_evidence

MODULE = "tfckpt_trainer.tools.selftest.training"

LIMIT_SECONDS = 300.0
"""What a self-test takes at most; it fails then."""

CHECKED_STEPS = 5

STRATEGIES = tuple(name for name in StrategyName if name is not StrategyName.PARAMETER_SERVER)
"""Steps with several workers and parameter servers do not repeat bit by bit."""


@dataclass(frozen=True)
class SelfTestOptions:
    """What to test.

    Attributes:
        strategy: The strategy.
        workers: Number of workers.
    """

    strategy: StrategyName
    workers: int

    @property
    def command(self) -> tuple[str, ...]:
        """The command of each worker."""
        return (sys.executable, "-P", "-m", MODULE, "--strategy", self.strategy.value)


@dataclass(frozen=True)
class SelfTestResult:
    """The result of a self-test.

    Attributes:
        options: What was tested.
        machine: Facts about the machine, by name.
        rows: What was compared.
        problems: Why a training failed, with the end of its log.
        seconds: How long it took.
    """

    options: SelfTestOptions
    machine: dict[str, str]
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that failed."""
        return tuple(row for row in self.rows if row.outcome is Outcome.FAILED)


def choose_options(strategy: str | None, workers: int | None) -> SelfTestOptions:
    """Returns what to test: by default, what this machine has.

    Without a strategy, several workers need `multi-worker`, and several GPUs get `mirrored`.

    Raises:
        UsageError: The strategy has one worker, and more were asked for.
    """
    gpus = visible_gpus(os.environ)
    if strategy is None:
        several = StrategyName.MIRRORED if len(gpus.of_one_process) > 1 else StrategyName.ONE_DEVICE
        chosen = StrategyName.MULTI_WORKER if (workers or 1) > 1 else several
    else:
        chosen = StrategyName(strategy)
    if not chosen.has_cluster:
        if (workers or 1) > 1:
            raise UsageError(
                f"The strategy {chosen.value} has one worker. For {workers}, use "
                f"`tfckpt-tui selftest --strategy multi-worker --workers {workers}`."
            )
        return SelfTestOptions(chosen, 1)
    return SelfTestOptions(chosen, workers or len(gpus.names) or 2)


def run_self_test(options: SelfTestOptions, on_progress: OnProgress) -> SelfTestResult:
    """Trains, measures, kills a worker and restores, in directories that are removed afterwards.

    Ends all processes that it started, however it ends.

    Args:
        options: What to test.
        on_progress: Called with a line for each phase and step.

    Raises:
        UsageError: A worker cannot be started.
        KeyboardInterrupt: A signal asked to end it.
    """
    began = time.monotonic()

    def look() -> None:
        if time.monotonic() - began > LIMIT_SECONDS:
            limit = units.duration(LIMIT_SECONDS)
            raise LaunchError(
                f"It takes longer than {limit}. Run it again while the machine does nothing else."
            )

    problems: list[str] = []
    results: list[Row] = []
    evidence = TrainingEvidence(steps=())
    with scratch_run("selftest", "The self-test") as scratch:
        try:
            evidence = _train(scratch, options, on_progress, look)
        except UsageError:
            raise
        except TfckptError as error:
            problems.append(str(error))
            results += rows.not_run(list(rows.MEASURED), _first_line(error))
        else:
            results += [judge(evidence) for judge in rows.MEASURED.values()]
        if problems:
            results += rows.not_run(list(rows.PASSES.values()), "the training before it failed")
        else:
            results += _restores(scratch, options, on_progress, look, problems)
        machine = describe_machine(evidence, scratch.directory)
    seconds = time.monotonic() - began
    return SelfTestResult(options, machine, tuple(results), tuple(problems), seconds)


def _train(
    scratch: ScratchRun,
    options: SelfTestOptions,
    on_progress: OnProgress,
    look: Callable[[], None],
) -> TrainingEvidence:
    """Runs the training that measures and loses a worker."""
    directory = scratch.directory / "record"
    create_directory(directory)
    launched = LaunchOptions(
        run_directory=str(scratch.run.root),
        command=(*options.command, "--record", str(directory)),
        working_directory=str(scratch.directory),
        workers=options.workers,
        max_restarts=1,
        grace_seconds=GRACE_SECONDS,
        environment=_environment(scratch),
    )
    trace = Tail(steps_file(directory, 0), RecordedStep)
    killed: KilledWorker | None = None

    def report() -> None:
        nonlocal killed
        look()
        for line in trace.read_new():
            on_progress(f"training on {units.count(options.workers, 'worker')}: step {line.step}")
        if killed is None:
            killed = load_if_exists(killed_file(directory), KilledWorker)
            if killed is not None:
                on_progress(f"killed worker {killed.worker} after step {killed.step}")

    on_progress("starting the training")
    scratch.train(launched, report)
    on_progress("verifying the checkpoints")
    return read_evidence(scratch.run, directory, options.workers)


def _restores(
    scratch: ScratchRun,
    options: SelfTestOptions,
    on_progress: OnProgress,
    look: Callable[[], None],
    problems: list[str],
) -> list[Row]:
    check = CheckOptions(
        command=options.command,
        working_directory=str(scratch.directory),
        steps=CHECKED_STEPS,
        workers=options.workers,
        environment=_environment(scratch),
    )
    try:
        return rows.restores(run_check(check, on_progress, look))
    except TfckptError as error:
        problems.append(str(error))
        return rows.not_run(list(rows.PASSES.values()), _first_line(error))


def _environment(scratch: ScratchRun) -> tuple[tuple[str, str], ...]:
    """Returns variables that keep the files of the workers within the scratch directory.

    TensorFlow leaves temporary files if it is killed, and Keras writes its default configuration.
    """
    names = {"TMPDIR": "temporary", "KERAS_HOME": "keras"}
    paths = {name: scratch.directory / word for name, word in names.items()}
    for path in paths.values():
        make_directory(path)
    return tuple((name, str(path)) for name, path in paths.items())


def _first_line(error: TfckptError) -> str:
    return str(error).splitlines()[0]
