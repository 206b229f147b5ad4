"""The options of a launch: the command, the number of workers, the timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from tfckpt_trainer.cluster.tasks import Task, tasks
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.storage.documents import Document


class LaunchRecord(Document, frozen=True, kw_only=True):
    """`launch.json`, to be shown: whoever wrote it. All times in seconds.

    Attributes:
        run_directory: Absolute path of the run directory.
        command: The command of each worker.
        working_directory: The working directory of the command.
        parameter_servers: Number of parameter servers. With any, one more process is the chief
            that coordinates the workers.
        max_restarts: How often all workers are restarted without a new checkpoint in between.
        pause_seconds: Pause before the first restart; it doubles with each further one.
        grace_seconds: Time for workers to save and exit when they are asked to stop.
        start_timeout: Time limit for a worker's first heartbeat, once others have one.
        peer_seconds: Longest network failure between workers that costs no restart.
        ports: Fixed ports of TensorFlow's cluster, one per process; empty to use free ones.
        standby: Whether to keep a standby process that has imported TensorFlow, for fast restarts.
        hang_seconds: Time without a step, while all train, after which all workers are restarted;
            None for no limit.
        environment: Additional environment variables of the workers. They are stored in the run
            directory. Put secrets into the environment of the launch, which workers inherit.
        slurm: What to ask of Slurm; None to run on this machine. Then `workers` is the smallest
            number of workers.
    """

    is_private: ClassVar[bool] = True

    run_directory: str
    command: tuple[str, ...]
    working_directory: str
    workers: int = 1
    parameter_servers: int = 0
    max_restarts: int = 3
    pause_seconds: float = 1.0
    grace_seconds: float = 30.0
    start_timeout: float = 180.0
    peer_seconds: float = 10.0
    ports: tuple[int, ...] = ()
    standby: bool = True
    hang_seconds: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    slurm: SlurmOptions | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of all processes, in the order of their numbers."""
        return tasks(self.workers, self.parameter_servers)


class LaunchOptions(LaunchRecord, frozen=True, kw_only=True):
    """`launch.json`, to be executed: only this user or root could have written it."""

    is_trusted: ClassVar[bool] = True


def program_name(command: Sequence[str]) -> str:
    """Returns the script or program that a command runs, without arguments: they may be secret."""
    for option, word in pairwise(("", *command)):
        if word == "-c":
            break
        if option == "-m" or word.endswith(".py"):
            return Path(word).name
    return Path(command[0]).name if command else ""
