"""How a supervisor starts the workers of a run: the interface of the interchangeable ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tfckpt_trainer.cluster.gpu_shares import GpuShares
from tfckpt_trainer.cluster.tasks import Task, cluster_of
from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.processes.workers import Worker
from tfckpt_trainer.launch.supervision.restart_policy import Next


class CannotStartError(LaunchError):
    """The workers cannot be started now.

    Attributes:
        next: What the supervisor does about it.
    """

    def __init__(self, reason: str, next_action: Next) -> None:
        super().__init__(reason)
        self.next = next_action


@dataclass(frozen=True)
class Placement:
    """The processes of one start of all workers.

    Attributes:
        tasks: Their tasks in TensorFlow's cluster, in the order of their numbers.
        addresses: Host and port of each.
        gpus: How those of one machine divide its GPUs.
    """

    tasks: tuple[Task, ...]
    addresses: tuple[str, ...]
    gpus: GpuShares = field(default_factory=GpuShares)

    @property
    def replaceable(self) -> frozenset[int]:
        """Indexes of the workers without which the others train on."""
        has_chief = any(task.job == "chief" for task in self.tasks)
        workers = (index for index, task in enumerate(self.tasks) if task.job == "worker")
        return frozenset(workers if has_chief else ())

    @property
    def cluster(self) -> dict[str, list[str]]:
        """The addresses by job, as `TF_CONFIG` has them."""
        return cluster_of(self.tasks, self.addresses)


class WorkerStarter(Protocol):
    """Starts all workers of a run together, and ends them together."""

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers of the last start."""

    @property
    def logs(self) -> Sequence[Path]:
        """The logs of the processes that it started on this machine."""

    def place(self) -> Placement:
        """Chooses where the next workers run, and their ports.

        Raises:
            CannotStartError: No worker can run now.
        """

    def start(self, placement: Placement, environment: Mapping[str, str], attempt: int) -> None:
        """Starts all workers.

        Args:
            placement: What `place` returned.
            environment: Additional environment variables of all workers.
            attempt: Number of this start, for the logs.

        Raises:
            CannotStartError: They could not be started, for a reason that another start may not
                have.
            OSError: The command cannot be run, or a log cannot be written.
        """

    def replace(self, index: int) -> bool:
        """Starts one worker again, with the same address, while the others go on.

        Args:
            index: Its number.

        Returns:
            Whether it was started; if not, all have to be.
        """

    def prepare_restart(self, environment: Mapping[str, str]) -> None:
        """Prepares a faster restart; called repeatedly while the workers train."""

    def end(self, grace_seconds: float, while_waiting: Callable[[], None]) -> list[int]:
        """Asks all workers to exit, waits, and kills those that do not.

        Args:
            grace_seconds: Seconds between the request and the kill; 0 kills at once.
            while_waiting: Called repeatedly.

        Returns:
            Indexes of the killed workers.
        """

    def close(self) -> None:
        """Ends what `prepare_restart` started."""
