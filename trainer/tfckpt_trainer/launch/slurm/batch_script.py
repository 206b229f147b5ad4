"""The batch script that starts the supervisor on the first node of a job."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path

from tfckpt_trainer.cluster.tasks import least_tasks_in_words
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch.options import LaunchOptions, program_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.words.advice import Advice

SIGNAL_MARGIN_SECONDS = 15
"""Time between the end of the grace period and the time limit."""

SIGNAL_EARLY_SECONDS = 60
"""How much earlier than asked Slurm may signal a job before its time limit."""

LEAST_TRAINING_SECONDS = 60
"""Least time of a job without its end: to check the nodes, import TensorFlow and make steps."""


def batch_script(run: RunDirectory, options: LaunchOptions, python: str = sys.executable) -> str:
    """Returns the script for sbatch.

    Slurm signals the batch process before the time limit. The script becomes the process that
    watches the supervisor and passes signals on.

    Args:
        run: The run directory.
        options: The options of the launch, with those for Slurm.
        python: The interpreter of the supervisor, on all nodes.
    """
    asked = options.slurm
    assert asked is not None
    directives = [
        f"--job-name={_file_pattern(run.root.name) or 'tfckpt'}",
        f"--nodes={asked.nodes}",
        # With tasks, Slurm gives a range only its smallest number of nodes.
        f"--{'mincpus' if asked.is_range else 'ntasks-per-node'}={asked.tasks_per_node}",
        *([f"--gpus-per-node={asked.gpus_per_node}"] if asked.gpus_per_node else []),
        *([f"--time={asked.time}"] if asked.time else []),
        *([f"--partition={asked.partition}"] if asked.partition else []),
        *([f"--account={asked.account}"] if asked.account else []),
        f"--chdir={options.working_directory}",
        f"--output={_file_pattern(str(run.job_log))}",
        "--open-mode=append",
        f"--signal=B:USR1@{seconds_to_save(options)}",
        "--requeue",
        # The run can go on with fewer nodes. Otherwise Slurm starts the job again on others.
        *(["--no-kill"] if asked.is_range else []),
        *asked.arguments,
    ]
    command = [python, "-P", "-m", "tfckpt_trainer.launch.slurm.batch_watch", str(run.root)]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {_quoted(directive)}" for directive in directives),
        f"# Workers: {program_name(options.command)}".replace("\n", " "),
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def seconds_to_save(options: LaunchOptions) -> int:
    """Returns how long before the time limit Slurm tells the supervisor to save."""
    return math.ceil(options.grace_seconds) + SIGNAL_MARGIN_SECONDS


def check_request(options: LaunchOptions) -> None:
    """Checks what a launch asks of Slurm.

    Raises:
        UsageError: An option is invalid, or the time or the nodes are too few.
    """
    asked = options.slurm
    assert asked is not None
    asked.check()
    if options.ports:
        raise UsageError("--ports cannot be used with --slurm; ports follow from the job ID.")
    limit, early = asked.limit_seconds, seconds_to_save(options)
    least = early + SIGNAL_EARLY_SECONDS + LEAST_TRAINING_SECONDS
    if limit is not None and limit < least:
        raise UsageError(
            f"The time limit is {limit:g} s; expected at least {least} s. The workers "
            f"save {early} s before it, and Slurm may say so {SIGNAL_EARLY_SECONDS} s earlier.",
            Advice.of("Launch with `--time {minutes}`.", "", minutes=math.ceil(least / 60)),
        )
    processes = asked.least_nodes * asked.tasks_per_node
    if options.parameter_servers and processes < options.parameter_servers + 2:
        raise UsageError(
            f"The nodes and their tasks give {processes} processes; expected at least "
            f"{options.parameter_servers + 2}: {least_tasks_in_words(options.parameter_servers)}."
        )


def store_batch_script(run: RunDirectory, text: str) -> Path:
    """Writes the script into the run directory, as a new file: a file of another user stays one."""
    write_atomic(run.job_script, text.encode())
    return run.job_script


def _file_pattern(path: str) -> str:
    """Returns a path in which sbatch replaces nothing."""
    return path.replace("%", "%%")


def _quoted(directive: str) -> str:
    """Quotes the value of a directive, as sbatch reads it."""
    name, equals, value = directive.partition("=")
    if not equals or not any(letter in value for letter in " \t\"'\\#"):
        return directive
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'
