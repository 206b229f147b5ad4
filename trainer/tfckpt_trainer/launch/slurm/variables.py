"""Decides which environment variables of Slurm its commands see.

Variables of a user's shell are options of all commands of Slurm, and beat the lines of a batch
script. Those that no list here names are hidden, also what a later release of Slurm adds. What a
user asks by them is asked in the batch script, where options of the launch beat it. In the job,
most variables are of Slurm itself: only those are hidden from `srun` that are known to be options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tfckpt_trainer.launch.slurm_options import SlurmOptions

_OPTIONS = ("SLURM", "SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_", "SRUN_")
"""How the names of all variables begin that commands of Slurm read."""

_OF_CLUSTER = {"SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}
"""Variables for all commands: which cluster, and how to reach it."""

_STEP_OPTION_NAMES = """
    ACCOUNT BCAST BCAST_EXCLUDE BURST_BUFFER COMPRESS CONSTRAINT CPU_BIND DEBUG DEBUG_FLAGS
    DELAY_BOOT DEPENDENCY DISABLE_STATUS DISTRIBUTION DIST_PLANESIZE EPILOG EXACT EXCLUSIVE
    EXIT_ERROR EXIT_IMMEDIATE EXPORT_ENV GRES GRES_FLAGS IMMEDIATE JOB_NUM_NODES KILL_BAD_EXIT
    LABELIO MPI_TYPE NNODES NO_KILL NPROCS OPEN_MODE OVERLAP PARTITION PMI_KVS_NO_DUP_KEYS POWER
    PROLOG QOS REMOTE_CWD REQ_SWITCH RESERVATION RESV_PORTS SEND_LIBS SIGNAL SPREAD_JOB
    SRUN_REDUCE_TASK_EXIT_MSG STDERRMODE STDINMODE STDOUTMODE STEP_GRES STEP_KILLED_MSG_NODE_ID
    TASKS_PER_NODE TASK_EPILOG TASK_PROLOG TEST_EXEC THREADS TIMELIMIT UMASK UNBUFFEREDIO
    USE_MIN_NODES WAIT WAIT4SWITCH WCKEY WORKING_DIR
"""
_STEP_OPTIONS = frozenset(f"SLURM_{name}" for name in _STEP_OPTION_NAMES.split())
"""Variables that are options of `srun`, but for those by which sbatch hands on its own."""

_STEP_PREFIXES = ("SLURM_NTASKS", "SLURMD_DEBUG", "SRUN_CONTAINER", "SRUN_EXPORT_ENV")
"""How the names of the others begin."""

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
    task would be lost, because `srun` takes them from another variable. All else comes from Slurm.
    """
    whole = {
        name: value
        for name, value in environment.items()
        if name not in _STEP_OPTIONS and not name.startswith(_STEP_PREFIXES)
    }
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
