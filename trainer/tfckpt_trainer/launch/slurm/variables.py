"""Decides which environment variables of Slurm its commands see.

Variables of a user's shell are options of all commands of Slurm, and beat the lines of a batch
script. Those that no list here names are hidden, also what a later release of Slurm adds. What a
user asks by them is asked in the batch script, where options of the launch beat it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tfckpt_trainer.launch.slurm_options import SlurmOptions

_OPTIONS = ("SLURM", "SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_", "SRUN_")
"""How the names of all variables begin that commands of Slurm read."""

_OF_CLUSTER = {"SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}
"""Variables for all commands: which cluster, and how to reach it."""

_OF_JOB = (
    "SLURM_ACCTG_FREQ",
    "SLURM_CLUSTER_NAME",
    "SLURM_CORE_SPEC",
    "SLURM_CPUS_PER_",
    "SLURM_CPU_FREQ_REQ",
    "SLURM_GPU",
    "SLURM_HINT",
    "SLURM_JOB",
    "SLURM_MEM_",
    "SLURM_NETWORK",
    "SLURM_OVERCOMMIT",
    "SLURM_PROFILE",
    "SLURM_RESTART_COUNT",
    "SLURM_SUBMIT_",
    "SLURM_THREADS_PER_CORE",
    "SLURM_THREAD_SPEC",
    "SLURM_TRES_PER_TASK",
    "SRUN_CPUS_PER_TASK",
)
"""How variables begin by which Slurm tells a job and its `srun` what sbatch was asked for."""

_SHAPE = {"SLURM_JOB_NUM_NODES"}
"""What the job was asked for; a step has nodes and tasks of its own."""

_FIELDS = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_TIMELIMIT": "time",
}
"""Variables of sbatch that are asked in a batch script, by the option of a launch."""

_ARGUMENTS = {
    "SBATCH_CONSTRAINT": "--constraint",
    "SBATCH_QOS": "--qos",
    "SBATCH_RESERVATION": "--reservation",
    "SBATCH_WCKEY": "--wckey",
}
"""The others that are, by the argument of sbatch."""


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a command of Slurm, and of a job that it submits."""
    return {
        name: value
        for name, value in environment.items()
        if name in _OF_CLUSTER or not name.startswith(_OPTIONS)
    }


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of an `srun` in a batch script, and of its tasks.

    What sbatch was told about tasks would override the options of `srun`. The processors of each
    task would be lost, because `srun` takes them from another variable.
    """
    whole = command_environment(environment)
    for name, value in environment.items():
        if name.startswith(_OF_JOB) and name not in _SHAPE:
            whole[name] = value
    if "SLURM_CPUS_PER_TASK" in whole:
        whole.setdefault("SRUN_CPUS_PER_TASK", whole["SLURM_CPUS_PER_TASK"])
    return whole


def with_variables(asked: SlurmOptions, environment: Mapping[str, str]) -> SlurmOptions:
    """Adds what a user asks of sbatch by variables, unless the options of the launch say it."""
    fields = {
        field: environment[name]
        for name, field in _FIELDS.items()
        if environment.get(name) and not getattr(asked, field)
    }
    # Of an argument that is given twice, sbatch takes the last one.
    arguments = [
        f"{argument}={environment[name]}"
        for name, argument in _ARGUMENTS.items()
        if environment.get(name)
    ]
    return msgspec.structs.replace(asked, **fields, arguments=(*arguments, *asked.arguments))


def ignored_variables(environment: Mapping[str, str]) -> Sequence[str]:
    """Returns the variables by which a user asks what a launch does not ask of sbatch."""
    taken = {*_FIELDS, *_ARGUMENTS}
    return sorted(n for n in environment if n.startswith("SBATCH_") and n not in taken)
