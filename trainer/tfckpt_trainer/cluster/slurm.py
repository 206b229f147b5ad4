"""The TensorFlow cluster of a Slurm job step, from the environment of one of its tasks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfckpt_trainer.cluster.gpu_shares import VisibleGpus
from tfckpt_trainer.cluster.host_list import expand_counts, expand_hosts
from tfckpt_trainer.cluster.tasks import cluster_of, least_tasks_in_words, tasks, tf_config
from tfckpt_trainer.errors import UsageError

FIRST_PORT = 12000
"""First port for TensorFlow. The range is below the ports that Linux gives to clients."""

PORT_COUNT = 15000

PORTS_PER_JOB = 128
"""Distance between the first ports of two consecutive jobs, which may share nodes."""

SCONTROL_SECONDS = 10.0
"""Time limit for `scontrol show hostnames`, which asks no other machine."""

Environment = Mapping[str, str]


@dataclass(frozen=True)
class SlurmStep:
    """A job step, as one of its tasks sees it.

    Attributes:
        job: The job ID.
        step: The step ID.
        hosts: Host names of the nodes, in Slurm's order.
        places: For each task, the index of its node.
        task: The index of this task.
    """

    job: int
    step: int
    hosts: tuple[str, ...]
    places: tuple[int, ...]
    task: int

    @property
    def addresses(self) -> list[str]:
        """Host and port of each task."""
        return addresses(self.hosts, self.places, self.job, self.step)


def addresses(hosts: Sequence[str], places: Sequence[int], job: int, step: int) -> list[str]:
    """Returns host and port of each task.

    The ports follow from job and step, so that all tasks know them without asking. Tasks of one
    node have different ports, and so have consecutive jobs and steps.

    Args:
        hosts: Host names of the nodes.
        places: For each task, the index of its node.
        job: The job ID.
        step: The number of the step in its job.
    """
    most = max(places.count(node) for node in set(places))
    first = job * PORTS_PER_JOB + step * most
    used = [0] * len(hosts)
    endpoints = []
    for node in places:
        port = FIRST_PORT + (first + used[node]) % PORT_COUNT
        used[node] += 1
        endpoints.append(f"{hosts[node]}:{port}")
    return endpoints


def task_count(environment: Environment) -> int:
    """Returns the number of tasks of this job step; 1 outside of a step."""
    if not _is_step(environment):
        return 1
    return _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def show_hostnames(node_list: str) -> tuple[str, ...]:
    """Expands a list of nodes in Slurm's order, by `scontrol` if it is installed here."""
    try:
        shown = subprocess.run(
            ["scontrol", "show", "hostnames", node_list],
            capture_output=True,
            text=True,
            timeout=SCONTROL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return expand_hosts(node_list)
    return tuple(shown.stdout.split())


def read_step(
    environment: Environment, expand: Callable[[str], tuple[str, ...]] = show_hostnames
) -> SlurmStep | None:
    """Returns the job step of this process; None outside of Slurm.

    Args:
        environment: The environment of a task.
        expand: Expands a list of nodes.

    Raises:
        UsageError: This process is one of a job with several tasks, but `srun` did not start it;
            or the variables contradict each other.
    """
    if not _is_step(environment):
        _refuse_batch_script(environment)
        return None
    if int(environment.get("SLURM_HET_SIZE", "1") or 1) > 1:
        raise UsageError(
            "This job has several components (a heterogeneous job); expected one. Ask for "
            "different numbers of tasks on the nodes of one job instead."
        )
    counts = expand_counts(_text(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    hosts = expand(_text(environment, "SLURM_STEP_NODELIST", "SLURM_NODELIST"))
    if len(hosts) != len(counts):
        raise UsageError(
            f"Slurm names {len(hosts)} nodes but the tasks of {len(counts)}; unset TF_CONFIG and "
            "the variables SLURM_* that do not come from `srun`."
        )
    distribution = environment.get("SLURM_DISTRIBUTION", "block")
    size = int(environment.get("SLURM_DIST_PLANESIZE", "1") or 1)
    places = task_places(counts, distribution, size)
    step = SlurmStep(
        job=_number(environment, "SLURM_JOB_ID", "SLURM_JOBID"),
        step=_number(environment, "SLURM_STEP_ID", "SLURM_STEPID"),
        hosts=hosts,
        places=places,
        task=_number(environment, "SLURM_PROCID"),
    )
    _check_place(step, environment)
    return step


def task_places(counts: Sequence[int], distribution: str, plane: int = 1) -> tuple[int, ...]:
    """Returns the index of the node of each task.

    Args:
        counts: Number of tasks on each node.
        distribution: Slurm's distribution of tasks: `block`, `cyclic`, `plane`, and what may
            follow a colon.
        plane: Tasks in a row on one node, with `plane`.

    Raises:
        UsageError: The distribution is arbitrary, so that only Slurm knows it.
    """
    kind = distribution.partition(":")[0].partition("=")[0].partition(",")[0].strip() or "block"
    if kind == "arbitrary":
        raise UsageError(
            "The tasks are distributed arbitrarily; use `srun --distribution=block` or cyclic."
        )
    size = {"cyclic": 1, "plane": plane}.get(kind, max(counts))
    left = list(counts)
    places: list[int] = []
    while any(left):
        for node, count in enumerate(left):
            taken = min(size, count)
            places += [node] * taken
            left[node] -= taken
    return tuple(places)


def slurm_tf_config(step: SlurmStep, parameter_servers: int = 0) -> str:
    """Returns `TF_CONFIG` of a task of a job step.

    With parameter servers, task 0 is the chief, and the last tasks are the parameter servers.

    Raises:
        UsageError: There are too few tasks.
    """
    others = parameter_servers + 1 if parameter_servers else 0
    workers = len(step.places) - others
    if workers < 1:
        raise UsageError(
            f"The step has {len(step.places)} tasks; expected at least {others + 1}: "
            f"{least_tasks_in_words(parameter_servers)}. Use `srun --ntasks={others + 1}`."
        )
    members = tasks(workers, parameter_servers)
    return tf_config(cluster_of(members, step.addresses), members[step.task])


def own_gpus(environment: Environment) -> str | None:
    """Returns `CUDA_VISIBLE_DEVICES` for this task; None if it must not change.

    Tasks that share a node see all of its GPUs unless Slurm was told to bind them. TensorFlow
    takes all memory of the GPUs that it sees, so each task gets its own share.
    """
    if not _is_step(environment):
        return None
    visible = _names(environment, "CUDA_VISIBLE_DEVICES")
    told = environment.get("SLURM_GPUS_ON_NODE", "")
    of_node = int(told) if told.isdigit() else len(_names(environment, "SLURM_STEP_GPUS"))
    if of_node > len(visible):
        return None  # Slurm has bound them.
    counts = expand_counts(environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    node, local = int(environment.get("SLURM_NODEID", 0)), int(environment.get("SLURM_LOCALID", 0))
    tasks_here = counts[node] if node < len(counts) else 1
    if tasks_here < 2 or len(visible) < tasks_here:
        return None
    return ",".join(VisibleGpus(tuple(visible)).divide(tasks_here)[local])


def refuse_several_tasks(environment: Environment, processes: int) -> None:
    """Refuses a step of several tasks that do not train together.

    Args:
        environment: The environment of the process.
        processes: Number of processes that the strategy connects.

    Raises:
        UsageError: Each task would train alone in the same run directory.
    """
    count = task_count(environment)
    if count > 1 and processes == 1:
        raise UsageError(
            f"Slurm started {count} tasks, but the strategy of this script trains in one process. "
            'Create the strategy with `create_strategy("multi-worker")`, or start one task: '
            "`srun --ntasks=1 python SCRIPT`."
        )


def _refuse_batch_script(environment: Environment) -> None:
    """Refuses a script that a batch script starts without `srun`: no other task would follow."""
    count = int(environment.get("SLURM_NTASKS", "1") or 1)
    if environment.get("SLURM_JOB_ID") and count > 1:
        raise UsageError(
            f"The job has {count} tasks, but `srun` did not start this process. Start the script "
            "with `srun python SCRIPT`, which starts it once for each task."
        )


def _check_place(step: SlurmStep, environment: Environment) -> None:
    """Compares the computed tasks of this node with Slurm's list of them."""
    told = environment.get("SLURM_GTIDS")
    node = environment.get("SLURM_NODEID")
    if told is None or node is None:
        return
    expected = sorted(int(task) for task in told.split(","))
    computed = [task for task, place in enumerate(step.places) if place == int(node)]
    if expected != computed:
        raise UsageError(
            f"Slurm runs tasks {told} on {step.hosts[int(node)]}; expected "
            f"{','.join(map(str, computed))}. Use `srun --distribution=block`."
        )


def _is_step(environment: Environment) -> bool:
    """Whether `srun` started this process; batch scripts have no step ID."""
    return "SLURM_STEP_ID" in environment or "SLURM_STEPID" in environment


def _text(environment: Environment, *names: str) -> str:
    for name in names:
        if environment.get(name):
            return environment[name]
    raise UsageError(f"{names[0]} is missing; start the script with `srun python SCRIPT`.")


def _names(environment: Environment, name: str) -> list[str]:
    return [entry for entry in environment.get(name, "").split(",") if entry]


def _number(environment: Environment, *names: str) -> int:
    text = _text(environment, *names)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{names[0]} is {text!r}; expected a number.")
    return int(text)
