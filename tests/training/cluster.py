"""Starts real worker processes of a script, as any cluster would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nobody uses now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass
class Cluster:
    """The workers of one run of `script`; a context manager that leaves none behind."""

    run_dir: Path
    script: str
    arguments: list[str]
    workers: int = 2
    strategy: str = "multi-worker"
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen] = field(default_factory=list)

    def __enter__(self) -> Cluster:
        self.run_dir.mkdir(exist_ok=True)
        addresses = [f"127.0.0.1:{port}" for port in free_ports(self.workers)]
        for index in range(self.workers):
            environment = {
                **os.environ,
                "TFCKPT_RUN_DIR": str(self.run_dir),
                "TFCKPT_WORKER_INDEX": str(index),
                "TF_CPP_MIN_LOG_LEVEL": "2",
                **self.environment,
            }
            if self.strategy == "multi-worker":
                environment["TF_CONFIG"] = json.dumps(
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                )
            with open(self.log(index), "ab") as output:
                self.processes.append(
                    subprocess.Popen(
                        [
                            sys.executable,
                            str(SCRIPTS / self.script),
                            *self.arguments,
                            "--strategy",
                            self.strategy,
                        ],
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                    )
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def log(self, index: int) -> Path:
        """What worker `index` printed."""
        return self.run_dir.with_name(f"{self.run_dir.name}-worker-{index}.log")

    def wait(self, timeout: float = 120) -> list[int]:
        """Returns the exit statuses of all workers."""
        return [process.wait(timeout) for process in self.processes]

    def output(self) -> str:
        """Returns the ends of all logs, for the message of a failed test."""
        return "\n".join(
            f"--- worker {index}\n{self.log(index).read_text(errors='replace')[-3000:]}"
            for index in range(self.workers)
        )
