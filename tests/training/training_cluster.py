"""Starts the worker processes of a training script, as a cluster does."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from reserved_ports import reserved_ports
from tensorflow_processes import TensorFlowProcess
from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.launch.processes.cluster import addresses

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass
class Cluster:
    """The workers of one run of `script`; a context manager that kills them at its end."""

    run_dir: Path
    script: str
    arguments: list[str]
    workers: int = 2
    strategy: str = "multi-worker"
    environment: dict[str, str] = field(default_factory=dict)
    parameter_servers: int = 0
    ends_fully: bool = False
    processes: list[TensorFlowProcess] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Cluster:
        self.run_dir.mkdir(exist_ok=True)
        coordinated = self.strategy == "parameter-server"
        members = tasks(self.workers, self.parameter_servers or int(coordinated))
        ports = self._stack.enter_context(reserved_ports(len(members)))
        cluster = cluster_of(members, addresses(ports))
        for index, task in enumerate(members):
            environment = {
                **os.environ,
                "TFCKPT_RUN_DIR": str(self.run_dir),
                "TFCKPT_WORKER_INDEX": str(index),
                **self.environment,
            }
            if self.strategy in {"multi-worker", "parameter-server"}:
                environment["TF_CONFIG"] = tf_config(cluster, task)
            with open(self.log(index), "ab") as output:
                self.processes.append(
                    TensorFlowProcess(
                        [SCRIPTS / self.script, *self.arguments, "--strategy", self.strategy],
                        environment,
                        output,
                        ends_fully=self.ends_fully,
                    )
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._stack.close()

    def log(self, index: int) -> Path:
        """The file with the output of worker `index`."""
        return self.run_dir.with_name(f"{self.run_dir.name}-worker-{index}.log")

    def wait(self, timeout: float = 300) -> list[int]:
        """Returns the exit statuses of all workers."""
        return [process.wait(timeout) for process in self.processes]

    def output(self) -> str:
        """Returns the exit statuses and the ends of all logs, for assertion messages."""
        return "\n".join(
            f"--- worker {index}, exit status {process.poll()}\n"
            f"{self.log(index).read_text(errors='replace')[-3000:]}"
            for index, process in enumerate(self.processes)
        )
