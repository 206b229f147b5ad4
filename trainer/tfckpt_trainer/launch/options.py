"""What a launch is told: which command, how many workers, how patient to be."""

from __future__ import annotations

from tfckpt_trainer.launch.cluster import Task, tasks
from tfckpt_trainer.rundir.documents import Document


class LaunchOptions(Document, frozen=True, kw_only=True):
    """`launch.json`: what the supervisor was told; all times in seconds.

    Attributes:
        run_directory: Absolute path of the run directory.
        command: What each worker runs.
        working_directory: Where it runs.
        parameter_servers: How many processes keep the variables for all; with any, one more
            process is the chief, which tells the workers what to do.
        max_restarts: How often all workers are started again after one died.
        pause_seconds: Before the first restart; it doubles with each further one.
        grace_seconds: What workers have to save and end when they are asked to.
        start_timeout: After this long, a worker without a heartbeat beside others that have
            one did not come up.
        peer_seconds: Silence of a worker after which the others of its strategy give up.
        ports: Fixed ports for TensorFlow's cluster, one for each process; empty to choose.
        standby: Whether a process that has imported TensorFlow waits beside training, to become
            workers at once where they are started again.
        hang_seconds: After this long without a step on any worker, while they train, all are
            started again; None is never.
        environment: Further variables for the workers. They are written to the run directory:
            secrets belong into the environment of the launch itself, which workers inherit.
    """

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

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What each process is, in the order of their numbers."""
        return tasks(self.workers, self.parameter_servers)
