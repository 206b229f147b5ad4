"""A training run that a test sends commands to and observes by its run directory."""

from __future__ import annotations

from typing import Any

from training_cluster import Cluster

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from waiting import wait_until


class SteeredRun:
    """A cluster that runs `steered.py`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.run = RunDirectory(cluster.run_dir)
        self.box = CommandQueue(self.run)

    def ask(self, kind: CommandKind, timeout: float = 60, **arguments: Any) -> Command:
        """Sends a command and returns its outcome."""
        command = self.box.submit(kind, arguments, requested_by="test", lifetime=timeout)
        outcome = self.box.wait(command, timeout=timeout)
        assert outcome.state.is_final, f"{outcome}\n{self.cluster.output()}"
        return outcome

    def workers(self) -> list[WorkerStatus]:
        """Returns the newest heartbeats."""
        try:
            return read_workers(self.run)
        except DamagedFileError:
            return []

    def wait_for_step(self, step: int) -> None:
        """Waits until every worker that trains has reached `step`."""

        def reached() -> bool:
            assert all(p.poll() is None for p in self.cluster.processes), self.cluster.output()
            # An earlier attempt may have left heartbeats behind.
            alive = {process.pid for process in self.cluster.processes}
            workers = [worker for worker in self.workers() if worker.pid in alive]
            return len(workers) == len(alive) and all(
                w.activity is Activity.SERVING
                or (w.step >= step and w.activity is Activity.TRAINING)
                for w in workers
            )

        wait_until(reached, 90, f"step {step}")

    def progress(self) -> None:
        """Waits until training has done five more steps."""
        workers = wait_until(self.workers, 10, "heartbeats that can be read")
        self.wait_for_step(max(worker.step for worker in workers) + 5)

    def wait_until_paused(self) -> WorkerStatus:
        """Waits until the chief is paused; returns its heartbeat."""

        def paused() -> WorkerStatus | None:
            assert all(p.poll() is None for p in self.cluster.processes), self.cluster.output()
            return next((w for w in self.workers() if w.activity is Activity.PAUSED), None)

        return wait_until(paused, 90, "a pause")

    def names(self) -> set[str]:
        """Returns the names of all committed checkpoints."""
        return {path.stem for path in self.run.root.glob("*.index")}

    def event_log(self) -> list[str]:
        """Returns the kinds of all journal entries, oldest first."""
        return [entry.kind.value for entry in read_entries(self.run)]
