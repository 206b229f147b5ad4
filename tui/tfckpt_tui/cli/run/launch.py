"""Commands that start a run or open the app: demo, launch, attach, browse."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tfckpt_trainer.bundle.checksum import require_extension
from tfckpt_trainer.cluster.gpu_shares import NO_GPUS
from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.cluster import plan_gpus, processes_in_words
from tfckpt_trainer.launch.processes.orphans import living_supervisor
from tfckpt_trainer.launch.slurm.variables import ignored_variables, with_variables
from tfckpt_trainer.launch.slurm_options import MAX_REQUEUES, SlurmOptions
from tfckpt_trainer.machine.user_directories import expand_user, state_directory
from tfckpt_trainer.rundir.event_log import EventLogTail
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.storage.own_links import resolve_named
from tfckpt_tui.cli.answer_guard import app_opened
from tfckpt_tui.cli.main import (
    DirectoryArgument,
    DirectoryPath,
    FiniteRange,
    LogdirOption,
    PidOption,
    RunArgument,
    RunOrProcessArgument,
    named_directory,
    prints,
)
from tfckpt_tui.cli.output import app_unavailable_reason, print_json, print_line, print_message
from tfckpt_tui.reports.control import LaunchReport
from tfckpt_tui.services.runs.open_run import directory_of_runs, open_run
from tfckpt_tui.services.runs.recent_runs import remember_run

DEMO_MODULE = "tfckpt_trainer.examples.language_model"

DetachOption = click.option("--detach", is_flag=True, help="Start it without opening the app.")
WorkersOption = click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of worker processes.",
)

ParameterServersOption = click.option(
    "--parameter-servers",
    type=click.IntRange(min=0, max=64),
    default=0,
    help="Number of parameter servers, for ParameterServerStrategy; adds a chief.",
)

RestartsOption = click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Restarts of all workers without a new checkpoint in between.",
)


_SLURM_OPTIONS = (
    click.option("--slurm", is_flag=True, help="Run the workers in a Slurm job."),
    click.option(
        "--nodes",
        default="1",
        show_default=True,
        metavar="N[-M]",
        help="Nodes of the job; with a range, training continues with those that remain.",
    ),
    click.option(
        "--tasks-per-node",
        type=click.IntRange(1, 256),
        default=1,
        show_default=True,
        help="Worker processes on each node.",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="GPUs on each node.",
    ),
    click.option(
        "--time", default="", metavar="LIMIT", help="Time limit of the job, as in 8:00:00."
    ),
    click.option("--partition", default="", help="Partition of the job."),
    click.option("--account", default="", help="Account of the job."),
    click.option(
        "--sbatch-arg",
        multiple=True,
        metavar="ARG",
        help="Further argument of sbatch, as in --sbatch-arg=--mem=16G; may be repeated.",
    ),
    click.option(
        "--max-requeues",
        type=click.IntRange(min=0),
        default=MAX_REQUEUES,
        show_default=True,
        help="How often the job is started again after a preemption, its limit or a lost node.",
    ),
    click.option("--dry-run", is_flag=True, help="Only print the batch script."),
)


def SlurmOptionsOption(command: Callable[..., int]) -> Callable[..., int]:  # noqa: N802
    """Adds the options that only a Slurm job has."""
    for option in reversed(_SLURM_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of worker processes, if the strategy has several.",
)
@click.option(
    "--strategy",
    type=click.Choice([name.value for name in StrategyName]),
    default=StrategyName.MULTI_WORKER.value,
    show_default=True,
    help="Distribution strategy; all but two train in one process.",
)
@click.option(
    "--dir",
    "directory",
    type=DirectoryPath(),
    help="The run directory; a new one under the state directory by default.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Steps to train.")
@DetachOption
@RestartsOption
@prints(LaunchReport)
def demo(
    workers: int,
    strategy: str,
    directory: Path | None,
    steps: int | None,
    detach: bool,
    max_restarts: int,
    as_json: bool,
) -> int:
    """Train a small language model on several workers, and open the app on it.

    The text is the standard library of this Python; nothing is downloaded.
    """
    need_tensorflow("The demo")
    _check_terminal(detach)
    root = directory or _new_demo_directory()
    name = StrategyName(strategy)
    command = [sys.executable, "-P", "-m", DEMO_MODULE, "--strategy", name.value]
    command += ["--steps", str(steps)] if steps else []
    options = LaunchOptions(
        run_directory=_absolute(root),
        command=tuple(command),
        working_directory=os.getcwd(),
        workers=workers if name.has_cluster else 1,
        parameter_servers=int(name is StrategyName.PARAMETER_SERVER),
        max_restarts=max_restarts,
        environment=_without_gpus(),
    )
    return _launch(options, detach, as_json)


def need_tensorflow(subject: str) -> None:
    """Refuses what trains with this Python if it has no TensorFlow.

    Raises:
        UsageError: TensorFlow is not installed.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"{subject} needs TensorFlow, which is not installed; run "
            "`pip install 'tfckpt-tui[cpu]'`."
        )


@click.command(context_settings={"ignore_unknown_options": False})
@RunArgument
@WorkersOption
@ParameterServersOption
@RestartsOption
@click.option(
    "--ports",
    metavar="P0,P1,…",
    help="Ports of TensorFlow's cluster, one per process, as in 9001,9002.",
)
@click.option(
    "--hang-seconds",
    type=FiniteRange(min=1),
    help="Restart all workers after this long without a step; never by default.",
)
@click.option(
    "--peer-seconds",
    type=FiniteRange(min=1),
    default=10.0,
    show_default=True,
    help="Longest network failure between workers that costs no restart, at most 20.",
)
@click.option(
    "--start-seconds",
    type=FiniteRange(min=1),
    default=180.0,
    show_default=True,
    help="Time limit for a worker's first heartbeat, once others have one.",
)
@click.option(
    "--grace-seconds",
    type=FiniteRange(min=0),
    default=30.0,
    show_default=True,
    help="Time for the workers to save and exit when they are asked to stop.",
)
@click.option(
    "--standby/--no-standby",
    default=True,
    help="Keep a standby process that has imported TensorFlow, for fast restarts (default).",
)
@SlurmOptionsOption
@DetachOption
@click.option(
    "--foreground",
    is_flag=True,
    help="Stay until the end, without the app: for schedulers. SIGTERM saves and ends the run; "
    "the exit code is 0 at the end of training, 143 after a preemption, 130 after "
    "ctrl+c, 1 after a failure.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Launch although Slurm cannot be asked about the last batch job of the run, or another "
    "program trains there. If that job still waits, it ends as soon as it starts.",
)
@prints(LaunchReport)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(
    directory: Path,
    workers: int,
    parameter_servers: int,
    max_restarts: int,
    ports: str | None,
    hang_seconds: float | None,
    peer_seconds: float,
    start_seconds: float,
    grace_seconds: float,
    standby: bool,
    detach: bool,
    foreground: bool,
    force: bool,
    as_json: bool,
    command: tuple[str, ...],
    **slurm: Any,
) -> int:
    """Start workers of any training script, and open the app on them.

    The command follows `--`: tfckpt-tui launch RUN --workers 2 -- python train.py

    With --slurm, the workers run in a Slurm job: tfckpt-tui launch RUN --slurm --nodes 2
    --time 8:00:00 -- python train.py
    """
    asked = _slurm_options(slurm, foreground=foreground)
    dry_run = slurm["dry_run"]
    if detach and foreground:
        raise click.UsageError("Give either --detach or --foreground.")
    _check_terminal(detach or foreground or dry_run)
    if asked is not None:
        workers = asked.least_nodes * asked.tasks_per_node
        workers = max(1, workers - parameter_servers - 1) if parameter_servers else workers
    options = LaunchOptions(
        run_directory=_absolute(directory),
        command=command,
        working_directory=os.getcwd(),
        workers=workers,
        parameter_servers=parameter_servers,
        max_restarts=max_restarts,
        ports=_ports(ports),
        hang_seconds=hang_seconds,
        peer_seconds=peer_seconds,
        start_timeout=start_seconds,
        grace_seconds=grace_seconds,
        standby=standby,
        slurm=asked,
    )
    if dry_run:
        return _print_batch_script(options)
    if foreground:
        return _stay(options, as_json, force=force)
    return _launch(options, detach, as_json, force=force)


@click.command()
@RunOrProcessArgument
@click.option("--read-only", is_flag=True, help="Switch off everything that changes the run.")
@click.option(
    "--poll",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Scan at this interval instead of waiting for file events.",
)
@LogdirOption
@PidOption
def attach(
    directory: Path | None,
    read_only: bool,
    poll: float | None,
    logdir: Path | None,
    pid: int | None,
) -> int:
    """Open the app on a run, or on any directory of TensorFlow checkpoints or event files.

    In an empty directory, the app offers to launch a run.
    """
    directory, logdir = named_directory(directory, logdir, pid)
    run = open_run(directory, may_be_empty=not app_unavailable_reason(), logdir=logdir, process=pid)
    _check_terminal(detach=False)
    return _open_app(run, read_only=read_only, poll=poll)


@click.command()
@DirectoryArgument
@click.option("--read-only", is_flag=True, help="Switch off everything that changes runs.")
def browse(directory: Path | None, read_only: bool) -> int:
    """Watch and steer the recent runs, or those below DIRECTORY, in a list.

    Enter opens a run, and q in the run returns to the list.
    """
    from tfckpt_tui.app.actions.table import DEFAULT_KEYS
    from tfckpt_tui.app.runs_app import RunsApp
    from tfckpt_tui.settings.config import read_config

    _check_terminal(detach=False)
    directory = directory_of_runs(directory) if directory is not None else None
    require_extension()
    app_opened()
    listed: RunsApp | None = None
    while True:
        listed = RunsApp(directory, read_config(DEFAULT_KEYS), before=listed, read_only=read_only)
        chosen = listed.run()
        if chosen is None:
            return listed.return_code or 0
        if isinstance(chosen, LaunchOptions):
            _start(chosen, force=False)
            chosen = RunDirectory(Path(chosen.run_directory))
        code = _open_app(chosen, read_only=read_only, poll=None, from_list=True)
        if code:
            return code
        # What the app froze is garbage now.
        gc.unfreeze()
        gc.collect()


def _slurm_options(given: dict[str, Any], *, foreground: bool) -> SlurmOptions | None:
    """Returns what to ask of Slurm; None without --slurm, which all other options need."""
    context = click.get_current_context()
    used = [
        option
        for option in (*given, "workers")
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT
    ]
    if not given["slurm"]:
        needing = [f"--{name.replace('_', '-')}" for name in used if name != "workers"]
        if needing:
            raise click.UsageError(f"{needing[0]} needs --slurm.")
        return None
    if "workers" in used:
        raise click.UsageError("With --slurm, give --nodes and --tasks-per-node, not --workers.")
    if foreground:
        raise click.UsageError("Give either --slurm or --foreground.")
    ignored = ignored_variables(os.environ)
    if ignored:
        print_message(f"Ignored: {', '.join(ignored)}. Pass options of sbatch with --sbatch-arg.")
    options = SlurmOptions(
        nodes=given["nodes"],
        tasks_per_node=given["tasks_per_node"],
        gpus_per_node=given["gpus_per_node"],
        time=given["time"],
        partition=given["partition"],
        account=given["account"],
        arguments=given["sbatch_arg"],
        max_requeues=given["max_requeues"],
    )
    return with_variables(options, os.environ)


def _print_batch_script(options: LaunchOptions) -> int:
    """Prints the batch script that a launch would submit."""
    from tfckpt_trainer.launch.launcher import planned_script

    for line in planned_script(options).splitlines():
        print_line(line)
    return 0


def _launch(options: LaunchOptions, detach: bool, as_json: bool, *, force: bool = False) -> int:
    run = RunDirectory(Path(options.run_directory))
    started = _start(options, force=force)
    job = started if isinstance(started, BatchJob) else None
    if job is not None:
        print_message(f"Submitted job {job.id}.")
    if as_json:
        print_json(_report(run, started))
    if detach:
        what = "Training runs in the background" if job is None else "Slurm starts it in its turn"
        print_message(f"{what}. Watch it: tfckpt-tui attach {run.shell_word}")
        print_message(f"Stop it: tfckpt-tui stop {run.shell_word}")
        return 0
    code = _open_app(run, read_only=False, poll=None)
    if job is not None or living_supervisor(run, time.time()) is not None:
        what = f"Training goes on in {run.root}" if job is None else f"Job {job.id} needs no app"
        print_message(f"{what}. Watch it: tfckpt-tui attach {run.shell_word}")
    return code


def _report(run: RunDirectory, started: SupervisorStatus | BatchJob) -> LaunchReport:
    if isinstance(started, BatchJob):
        return LaunchReport(directory=str(run.root), supervisor_pid=None, job=started.id)
    return LaunchReport(directory=str(run.root), supervisor_pid=started.pid)


def _start(options: LaunchOptions, *, force: bool) -> SupervisorStatus | BatchJob:
    from tfckpt_trainer.launch.launcher import launch as start_run
    from tfckpt_tui.services.control.request import FrontEnd

    require_extension()
    processes = processes_in_words(options.tasks)
    place = "to Slurm" if options.slurm is not None else f"in {options.run_directory}"
    verb = "Submitting" if options.slurm is not None else "Starting"
    print_message(f"{verb} {processes} {place} …")
    started = start_run(options, FrontEnd.COMMAND_LINE.requester, force=force)
    # A supervisor here tells how it has divided the GPUs; one in a job has not begun.
    remark = plan_gpus(options).remark if isinstance(started, BatchJob) else started.gpus
    if remark:
        print_message(remark)
    # Also if the app is never opened on it.
    remember_run(Path(options.run_directory))
    return started


def _stay(options: LaunchOptions, as_json: bool, *, force: bool) -> int:
    from tfckpt_tui.services.processes.foreground import follow_run

    run = RunDirectory(Path(options.run_directory))
    event_log = EventLogTail(run, from_end=True)
    status = _start(options, force=force)
    assert isinstance(status, SupervisorStatus)
    if as_json:
        print_json(_report(run, status))
    return follow_run(run, status, event_log, print_message)


def _without_gpus() -> tuple[tuple[str, str], ...]:
    """Hides GPUs unless the user chose some: there may be fewer than the demo has workers."""
    named = "CUDA_VISIBLE_DEVICES"
    return () if named in os.environ else ((named, NO_GPUS),)


def _new_demo_directory() -> Path:
    directory = state_directory()
    if directory is None:
        raise UsageError(
            "There is no home directory for the run; name a directory: "
            "`tfckpt-tui demo --dir ./demo`."
        )
    return directory / time.strftime("demo-%Y%m%d-%H%M%S")


def _absolute(directory: Path) -> str:
    return str(resolve_named(expand_user(directory)))


def _open_app(
    run: RunDirectory, *, read_only: bool, poll: float | None, from_list: bool = False
) -> int:
    # Imports and the first frame create no garbage; the app enables collection afterwards.
    gc.disable()
    from tfckpt_tui.app.app import main as open_app

    require_extension()
    remember_run(run.root)
    app_opened()
    return open_app(run, read_only=read_only, poll=poll, from_list=from_list)


def _check_terminal(detach: bool) -> None:
    """Refuses a terminal that cannot show the app, before anything is started."""
    problem = "" if detach else app_unavailable_reason()
    if problem:
        raise UsageError(problem)


def _ports(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--ports is {text!r}; expected numbers, as in 9001,9002.") from None
