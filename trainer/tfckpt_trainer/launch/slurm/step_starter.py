"""Starts workers as the tasks of one job step."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tfckpt_trainer.cluster.slurm import addresses
from tfckpt_trainer.cluster.tasks import least_tasks_in_words, tasks
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.cluster import plan_gpus
from tfckpt_trainer.launch.processes.workers import POLL_SECONDS
from tfckpt_trainer.launch.slurm.job_step import JobStep, silence_seconds
from tfckpt_trainer.launch.slurm.variables import step_environment
from tfckpt_trainer.launch.supervision.restart_policy import Next
from tfckpt_trainer.launch.supervision.starters import CannotStartError, Placement
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import WorkerProcess

TASK_MODULE = "tfckpt_trainer.launch.slurm.task_process"

PLACEMENT_VARIABLE = "TFCKPT_PLACEMENT"

ALIVE_WORD = "ALIVE"

KILL_SECONDS = 3.0
"""How long to wait until killed workers report their end; those of a dead node never do."""

LOST = -signal.SIGKILL
"""Exit status of a worker whose task or node is gone."""


class StepWorker:
    """One worker, as far as its task reports it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid = 0
        self.exit_code: int | None = None
        self.is_silent = False
        self.heard_at: float | None = None
        self._host = ""
        self._started_at = 0.0
        self._after_boot: float | None = None

    def take(self, message: Mapping[str, Any]) -> None:
        """Takes a report of the task."""
        self.heard_at = time.monotonic()
        if "pid" in message:
            self.pid = message["pid"]
            self._host = message["host"]
            self._after_boot = message.get("after_boot")
        # Again in each of its reports, because the clock may have been set.
        self._started_at = message.get("started_at", self._started_at)
        if "exit" in message:
            self.exit_code = message["exit"]

    def lose(self) -> None:
        """Counts it as ended, because it sends no more messages."""
        self.exit_code = LOST
        self.is_silent = True

    def kill(self) -> None:
        """Does nothing: the task kills what its worker started."""

    def facts(self) -> WorkerProcess:
        """Returns its entry in the supervisor's heartbeat."""
        return WorkerProcess(
            index=self.index,
            pid=self.pid,
            process_started_at=self._started_at,
            process_after_boot=self._after_boot,
            exit_code=self.exit_code,
            host=self._host,
        )


class _Workers(Sequence[StepWorker]):
    """The workers of a step; each look reads the reports that have come."""

    def __init__(self, step: JobStep, count: int, options: LaunchOptions) -> None:
        self._step = step
        self._silence = silence_seconds(options)
        self._start_by = time.monotonic() + options.start_timeout
        self._workers = [StepWorker(index) for index in range(count)]

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, position: Any) -> Any:
        self.refresh()
        return self._workers[position]

    def refresh(self) -> None:
        """Reads new reports. Workers are lost when they stay silent, or when the step ends."""
        ended = self._step.has_ended
        for message in self._step.messages():
            self._workers[message["index"]].take(message)
        now = time.monotonic()
        for worker in self._workers:
            heard = worker.heard_at
            silent = now > (self._start_by if heard is None else heard + self._silence)
            if worker.exit_code is None and (ended or silent):
                worker.lose()

    @property
    def run(self) -> bool:
        """Whether any worker has not ended."""
        self.refresh()
        return any(worker.exit_code is None for worker in self._workers)


@dataclass(frozen=True)
class ChosenNodes:
    """The nodes of the next start, in Slurm's order.

    Attributes:
        ports_taken: Whether another program uses one of the ports.
    """

    nodes: Sequence[str]
    ports_taken: bool = False


class NodeChooser(Protocol):
    """Chooses the nodes of a start."""

    def choose(
        self, ports: Callable[[Sequence[str]], Mapping[str, Sequence[int]]], lost: bool
    ) -> ChosenNodes:
        """Returns the nodes.

        Args:
            ports: Returns the ports that the start would use on some nodes.
            lost: Whether a worker of the last start ended without a report.

        Raises:
            CannotStartError: Too few nodes work.
        """


class StepStarter:
    """Starts all workers with one `srun` on the nodes of the job that work."""

    def __init__(
        self,
        run: RunDirectory,
        options: LaunchOptions,
        job: int,
        nodes: NodeChooser,
    ) -> None:
        """Prepares the starts.

        Args:
            run: The run directory.
            options: The options of the launch.
            job: The job ID.
            nodes: Chooses the nodes of each start.
        """
        assert options.slurm is not None
        self._run = run
        self._options = options
        self._job = job
        self._chooser = nodes
        self._starts = 0
        self._nodes: Sequence[str] = ()
        self._step: JobStep | None = None
        self._workers: _Workers | None = None

    @property
    def workers(self) -> Sequence[StepWorker]:
        """The workers of the last start."""
        return self._workers if self._workers is not None else []

    @property
    def logs(self) -> Sequence[Path]:
        """None: on the node of each worker, its task limits its log."""
        return ()

    def place(self) -> Placement:
        """Chooses nodes and ports; each start has other ports.

        Raises:
            CannotStartError: Too few nodes work, or there are too few tasks for the workers.
        """
        lost = any(worker.is_silent for worker in self.workers)
        chosen = self._chooser.choose(self._ports, lost)
        # Another program may use the ports of this start; the next ones are other ports.
        self._starts += int(chosen.ports_taken)
        self._nodes = chosen.nodes
        placement = place_tasks(self._options, self._job, self._starts, self._nodes)
        self._starts += 1
        return placement

    def _ports(self, nodes: Sequence[str]) -> dict[str, list[int]]:
        """Returns the ports of the next start, by node."""
        ports: dict[str, list[int]] = {node: [] for node in nodes}
        for place in place_tasks(self._options, self._job, self._starts, nodes).addresses:
            node, _, port = place.rpartition(":")
            ports[node].append(int(port))
        return ports

    def start(self, placement: Placement, environment: Mapping[str, str], attempt: int) -> None:
        """Starts the step.

        Raises:
            OSError: `srun` cannot be run.
        """
        whole = step_environment({**os.environ, **environment})
        whole[PLACEMENT_VARIABLE] = encode_placement(placement)
        command = [sys.executable, "-P", "-m", TASK_MODULE, str(self._run.root)]
        count = len(placement.tasks)
        self._step = JobStep(self._nodes, count, command, whole, ALIVE_WORD)
        self._workers = _Workers(self._step, count, self._options)

    def replace(self, index: int) -> bool:
        """Returns that it cannot: Slurm ends the step of all workers together."""
        del index
        return False

    def prepare_restart(self, environment: Mapping[str, str]) -> None:
        """Does nothing: nodes differ from start to start."""

    def end(self, grace_seconds: float, while_waiting: Callable[[], None]) -> list[int]:
        """Asks all workers to exit, waits, and kills those that do not; returns the killed."""
        step, workers = self._step, self._workers
        if step is None or workers is None:
            return []
        if grace_seconds > 0 and workers.run:
            step.send("TERM")
            _wait(lambda: not workers.run, grace_seconds, while_waiting)
        killed = [worker.index for worker in workers if worker.exit_code is None]
        if killed:
            step.send("KILL")
            _wait(lambda: not workers.run, KILL_SECONDS, while_waiting)
        _wait(lambda: step.has_ended, POLL_SECONDS * 10, while_waiting)
        step.cancel()
        workers.refresh()
        return killed

    def close(self) -> None:
        """Does nothing: there is no standby process."""


def place_tasks(options: LaunchOptions, job: int, number: int, nodes: Sequence[str]) -> Placement:
    """Returns the tasks on some nodes, and their addresses.

    Args:
        options: The options of the launch, with those for Slurm.
        job: The job ID.
        number: Number of this start in the job; it changes the ports.
        nodes: The nodes, in Slurm's order.

    Raises:
        CannotStartError: The nodes have too few tasks for the parameter servers.
    """
    assert options.slurm is not None
    per_node = options.slurm.tasks_per_node
    places = [node for node in range(len(nodes)) for _ in range(per_node)]
    servers = options.parameter_servers
    workers = len(places) - (servers + 1 if servers else 0)
    if workers < 1:
        raise CannotStartError(
            f"{len(places)} tasks are too few for {least_tasks_in_words(servers)}. Launch with "
            "more nodes or tasks per node.",
            Next.FAIL,
        )
    return Placement(
        tasks(workers, servers),
        tuple(addresses(nodes, places, job, number)),
        plan_gpus(options),
    )


def encode_placement(placement: Placement) -> str:
    """Returns a placement as text for an environment variable."""
    return msgspec.json.encode(placement).decode()


def decode_placement(text: str) -> Placement:
    """Reads what `encode_placement` wrote."""
    return msgspec.json.decode(text, type=Placement)


def _wait(done: Callable[[], bool], seconds: float, while_waiting: Callable[[], None]) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        while_waiting()
