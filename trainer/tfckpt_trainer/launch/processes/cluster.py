"""The ports, addresses and GPUs of a run on this machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.cluster.gpu_shares import GpuShares, VisibleGpus, share_gpus, visible_gpus
from tfckpt_trainer.cluster.tasks import Task, tasks
from tfckpt_trainer.errors import LaunchError, UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.words.advice import Advice
from tfckpt_trainer.words.counts import count

LOOPBACK = "127.0.0.1"

_LAST_PORT = 65535
_PORT_TAKEN = re.compile(
    r"address already in use|could not start grpc server|EADDRINUSE", re.IGNORECASE
)


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of this machine that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def check_ports(ports: Sequence[int]) -> None:
    """Checks that ports are valid, different and free.

    Raises:
        UsageError: A port is invalid or named twice.
        LaunchError: A port is in use.
    """
    if len(set(ports)) < len(ports):
        raise UsageError(f"A port is given twice: {', '.join(map(str, ports))}.")
    for port in ports:
        if not 0 < port <= _LAST_PORT:
            raise UsageError(f"{port} is not a port; expected a number from 1 to {_LAST_PORT}.")
        with socket.socket() as probe:
            # As servers do: lingering connections of an earlier run do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise LaunchError(
                    f"Port {port} cannot be used: {error.strerror}. Launch again with other ports, "
                    "or without ports to use free ones."
                ) from None


def says_port_taken(log: str) -> bool:
    """Whether the output of a worker says that its port was taken."""
    return _PORT_TAKEN.search(log) is not None


def addresses(ports: Sequence[int]) -> list[str]:
    """Returns the addresses of processes on this machine."""
    return [f"{LOOPBACK}:{port}" for port in ports]


def processes_in_words(members: Sequence[Task]) -> str:
    """Returns `2 workers`, or `2 workers and 1 parameter server`."""
    jobs = [task.job for task in members]
    words = [
        count(jobs.count(job), noun)
        for job, noun in (("worker", "worker"), ("ps", "parameter server"))
        if job in jobs
    ]
    return " and ".join(words)


def plan_gpus(options: LaunchOptions, root: Path = Path("/")) -> GpuShares:
    """Returns how the processes of a launch divide the GPUs.

    With Slurm, these are the processes of one node, and the GPUs that `--gpus-per-node` asks for.

    Args:
        options: The options of the launch.
        root: The root directory, with the files of the drivers.
    """
    asked = options.slurm
    if asked is None:
        environment = {**os.environ, **dict(options.environment)}
        return share_gpus(visible_gpus(environment, root), options.tasks, environment)
    members = tasks(asked.tasks_per_node)
    # Slurm may bind GPUs otherwise, and where parameter servers run is not known before.
    is_ours = not any(argument.startswith(("--gp", "--gres", "-G")) for argument in asked.arguments)
    if options.parameter_servers or len(members) < 2 or not is_ours:
        return GpuShares(({},) * len(members))
    names = tuple(map(str, range(asked.gpus_per_node)))
    shares = share_gpus(VisibleGpus(names), members, {})
    return replace(shares, remark=shares.remark and f"On each node, {shares.remark}")


def check_gpus(options: LaunchOptions) -> None:
    """Checks that each worker gets a GPU of its own, or none has one.

    Raises:
        UsageError: There are fewer GPUs than workers.
    """
    gpus = plan_gpus(options).too_few
    if not gpus:
        return
    asked = options.slurm
    workers = options.workers if asked is None else asked.tasks_per_node
    counts = f"{count(workers, 'worker')} and {count(gpus, 'GPU')}"
    needs = "each worker needs a GPU of its own"
    if asked is not None:
        raise UsageError(
            f"Each node has {counts}, but {needs}.",
            Advice.of(
                "Launch with `--tasks-per-node {gpus}`, or with `--gpus-per-node {workers}`.",
                "",
                gpus=gpus,
                workers=workers,
            ),
        )
    settings = (
        "To train on CPUs, set `CUDA_VISIBLE_DEVICES=-1`. To share GPUs, set "
        "`TF_FORCE_GPU_ALLOW_GROWTH=true`."
    )
    raise UsageError(
        f"There are {counts}, but {needs}.",
        Advice.of(
            "Launch with `--workers {gpus}`. {settings}",
            "Launch {workers}. {settings}",
            gpus=gpus,
            workers=count(gpus, "worker"),
            settings=settings,
        ),
    )
