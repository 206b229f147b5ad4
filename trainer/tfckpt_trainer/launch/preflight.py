"""Checks before a launch: the options, the directory, and that no worker runs there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from tfckpt_trainer.catalog.directory.history import refuse_newer_release
from tfckpt_trainer.catalog.directory.other_formats import (
    BACKUP,
    BACKUP_OF_CHIEF,
    OF_KERAS,
    find_neighbours,
)
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.foreign_writers import training_processes
from tfckpt_trainer.errors import DamagedFileError, LaunchError, UsageError, describe_error
from tfckpt_trainer.launch.batch.job_record import load_job_record, unknown_job
from tfckpt_trainer.launch.batch.jobs import ACTIVE, WAITING
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.cluster import check_gpus, check_ports
from tfckpt_trainer.launch.processes.orphans import living_supervisor, orphan_processes
from tfckpt_trainer.launch.schedulers import SCHEDULER
from tfckpt_trainer.machine.permissions import access_advice, find_closed
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import provide_directory
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_trainer.words.clean_text import is_utf8


def check_options(options: LaunchOptions) -> None:
    """Checks that the options are valid and the command exists.

    Raises:
        UsageError: An option is invalid, the command does not exist, or there are too few GPUs.
        LaunchError: A port is in use.
    """
    if options.workers < 1:
        raise UsageError(f"The number of workers is {options.workers}; a run has at least 1.")
    if options.parameter_servers < 0:
        raise UsageError(
            f"The number of parameter servers is {options.parameter_servers}; it cannot be "
            "negative."
        )
    if options.max_restarts < 0:
        raise UsageError(
            f"The number of restarts is {options.max_restarts}; it cannot be negative."
        )
    # They are stored as JSON, which has no other bytes.
    for text in (options.run_directory, options.working_directory, *options.command):
        if not is_utf8(text):
            raise UsageError(f"{text!r} is not valid UTF-8; rename it.")
    if not options.command:
        example = Advice.of("Add it after `--`, as in `-- python train.py`.", "")
        raise UsageError("There is no command.", example)
    if not Path(options.working_directory).is_dir():
        raise UsageError(
            f"{options.working_directory} is not a directory; start the launch in an existing one."
        )
    if not _is_there(options):
        raise UsageError(
            f"{options.command[0]!r} is not a program that can be run; check its name. A script "
            "without execute permission needs its interpreter: `python train.py`."
        )
    if options.slurm is not None:
        SCHEDULER.check(options)
    check_gpus(options)
    members = options.tasks
    if options.ports and len(options.ports) != len(members):
        jobs = ", ".join(f"{task.job} {task.index}" for task in members)
        raise UsageError(
            f"{len(members)} processes need {len(members)} ports, not {len(options.ports)}. "
            f"Name one port for each, in this order: {jobs}."
        )
    check_ports(options.ports)


def _has_trained(run: RunDirectory) -> bool:
    """Whether a directory has something with which training can go on, or is a run."""
    if run.is_ours or run.state_file.is_file() or Catalog(run).scan(time.time(), quick=True):
        return True
    found = find_neighbours(run.root)
    has_backup = any(map(_is_backup, (run.root / name for name in found.below)))
    return has_backup or any(other.name.endswith(OF_KERAS) for other in found.others)


def _is_backup(directory: Path) -> bool:
    """Whether a directory has what `BackupAndRestore` saves, of Keras 3 or of Keras 2."""
    return (directory / BACKUP).is_file() or directory.name == BACKUP_OF_CHIEF


def check_directory(run: RunDirectory) -> None:
    """Checks that a directory can be used for a run, and creates what is missing.

    Raises:
        UsageError: It cannot be used, or it has other content.
        RefusedError: A stranger made its `.tfckpt`.
    """
    root = run.root
    run.refuse_strangers()
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; a run needs a directory.")
    try:
        provide_directory(root)
        content = sorted(filter(_is_content_of(root), os.listdir(root)))
        if content and not _has_trained(run):
            raise UsageError(
                f"{root} is not empty and has no checkpoints (it has {_whose(root / content[0])}). "
                "Choose an empty directory, or one with TensorFlow checkpoints or files of Keras."
            )
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root))
        refuse_newer_release(run)
        run.create()
    except OSError as error:
        raise UsageError(
            f"{root} cannot be used as a run directory: {_why(root, error)}.",
            _advice_about(root, error),
        ) from error


def _why(root: Path, error: OSError) -> str:
    """Returns an error of a disk, with its file if that is not the run directory itself."""
    is_of_root = error.filename in {None, os.fspath(root)}
    return str(error.strerror or error) if is_of_root else describe_error(error)


def _is_content_of(root: Path) -> Callable[[str], bool]:
    """Returns what tells whether an entry keeps a directory from being used for a run.

    Where the sticky bit keeps files to their owners, nobody else can remove those of others.
    """
    is_shared, own = bool(root.stat().st_mode & stat.S_ISVTX), {0, os.geteuid()}

    def is_content(name: str) -> bool:
        return not name.startswith(".") and not (
            is_shared and os.lstat(root / name).st_uid not in own
        )

    return is_content


def _whose(path: Path) -> str:
    owner = os.lstat(path).st_uid
    return path.name if owner == os.geteuid() else f"{path.name}, of {user_name(owner)}"


def _advice_about(root: Path, error: OSError) -> Advice:
    closed = find_closed(error) if isinstance(error, PermissionError) else None
    # Nobody opens the directories above a run for it.
    if closed is None or not closed.is_relative_to(root):
        return Advice.of("Choose another one.")
    return access_advice(closed).then("Or choose another directory.")


def already_alive(run: RunDirectory) -> LaunchError:
    """Returns the error for a run whose supervisor still runs."""
    supervisor = living_supervisor(run, time.time())
    who = f"supervisor: process {supervisor.pid}" if supervisor else "it is being launched"
    return LaunchError(f"A run is already running in {run.root} ({who}).", _watch_or_end(run, "it"))


def _watch_or_end(run: RunDirectory, what: str) -> Advice:
    """Returns how to watch or end processes that run.

    Args:
        run: The run directory.
        what: The pronoun for them.
    """
    attach = command_or_key("", "attach", run.root)
    stop = command_or_key("stop", "stop", run.root)
    return Advice.of(
        "Watch {what} with {attach}, or end {what} with {stop}.",
        "End {what} with {stop}.",
        what=what,
        attach=attach,
        stop=stop,
    )


_END_THEM = "End them with {stop}, or with {force} if they do not answer."


def check_nothing_trains(run: RunDirectory, *, force: bool = False) -> None:
    """Checks that nothing else trains here, and that no batch job will.

    Args:
        run: The run directory.
        force: Whether to go on if Slurm cannot be asked about the batch job, or another program
            trains here.

    Raises:
        LaunchError: Some do. The message names their processes and how to end them.
    """
    _check_no_batch_job(run, force=force)
    alive = orphan_processes(run, time.time())
    if alive:
        raise LaunchError(
            f"Workers still train in {run.root} without a supervisor: "
            f"{', '.join(map(str, alive))}.",
            Advice.of(
                f"Watch them with {{attach}}. {_END_THEM}",
                _END_THEM,
                attach=command_or_key("", "attach", run.root),
                stop=command_or_key("stop", "stop", run.root),
                force=command_or_key("force-stop", "stop", "--force", run.root),
            ),
        )

    if not force:
        _check_no_other_trainer(run)


def _check_no_other_trainer(run: RunDirectory) -> None:
    """Two trainers of a directory replace each other's checkpoints."""
    for other in training_processes(run):
        what = f"process {other.pid} ({other.name or 'of another user'})"
        raise LaunchError(
            f"Another program trains in {run.root}: {what} has {other.file} open. Two would "
            "replace each other's checkpoints.",
            Advice.of(
                "End it with {stop}, or launch in another directory. {force} launches beside it.",
                "End it, or launch in another directory.",
                stop=command_or_key("", "stop", "--pid", other.pid, run.root),
                force=command_or_key("", "launch", "--force"),
            ),
        )


def _check_no_batch_job(run: RunDirectory, *, force: bool) -> None:
    try:
        SCHEDULER.adopt(run)
    except LaunchError:
        if not force:
            raise
    try:
        job = load_job_record(run)
    except DamagedFileError:
        # The launch replaces it.
        return
    if job is None:
        return
    answer = SCHEDULER.read([job])
    unknown = unknown_job(run, job, answer.silence_about(job))
    if unknown is not None and not force:
        raise LaunchError(unknown.words, unknown.launch_advice)
    report = answer.report_on(job)
    if report is not None and report.state in ACTIVE:
        verb = "waits in the queue" if report.state in WAITING else "runs"
        raise LaunchError(f"Batch job {job.id} of this run {verb}.", _watch_or_end(run, "it"))


def _is_there(options: LaunchOptions) -> bool:
    program = options.command[0]
    if "/" not in program:
        path = dict(options.environment).get("PATH", os.environ.get("PATH"))
        return shutil.which(program, path=path) is not None
    path_of_it = Path(options.working_directory) / program
    return path_of_it.is_file() and os.access(path_of_it, os.X_OK)
