"""The batch script that starts the supervisor on the first node of a job."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path

from tfckpt_trainer.launch.options import LaunchOptions, program_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import write_atomic

SIGNAL_MARGIN_SECONDS = 15
"""Time between the end of the grace period and the time limit."""


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
