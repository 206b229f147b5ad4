"""A real Slurm cluster of three hosts on this machine.

require(*CLUSTER_NEEDS)
with slurm_cluster() as cluster:
    os.environ["SLURM_CONF"] = str(cluster.configuration)
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command_running import BINARY
from tfckpt_trainer.launch.slurm.controller import SlurmJob, parse_job
from waiting import wait_until

CLUSTER_NEEDS = ("bash", "slurm", "munge", "root", "mounts", "network namespaces")
SCRIPT = Path(__file__).parent / "cluster" / "cluster.sh"


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Starts the cluster, and ends all of it."""
    # Paths of sockets must be short.
    started = Cluster(Path(f"/tmp/tfckpt-cluster-{os.getpid()}"))
    try:
        started.control("up", "3")
        yield started
    finally:
        started.control("down")


class Cluster:
    """The cluster, seen from the login host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {**os.environ, "CLUSTER_DIR": str(directory)}

    @property
    def configuration(self) -> Path:
        """What `SLURM_CONF` has to name."""
        return self.directory / "slurm.conf"

    @property
    def name(self) -> str:
        """Its name, which its jobs have in their environment."""
        return self.configuration.read_text().partition("ClusterName=")[2].split()[0]

    def number(self, node: str) -> str:
        """The number by which the script knows a node."""
        return node.rpartition("n")[2]

    def control(self, *words: str) -> None:
        """Runs the script of the cluster."""
        subprocess.run(
            [SCRIPT, *words],
            env=self._environment,
            check=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            # Daemons that the script starts would keep a pipe open.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def call(self, *command: str | Path, timeout: float = 60) -> str:
        """Runs a command on the login host and returns its output."""
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def app(self, *words: str | Path, timeout: float = 60) -> str:
        """Runs a command of the app on the login host."""
        return self.call(BINARY, *words, timeout=timeout)

    @contextmanager
    def silent_controller(self) -> Iterator[None]:
        """Stops Slurm's controller, and lets it go on."""
        controller = int((self.directory / "slurmctld.pid").read_text())
        os.kill(controller, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(controller, signal.SIGCONT)

    def facts(self, job: str) -> SlurmJob:
        """What Slurm says about a job."""
        return parse_job(self.call("scontrol", "--oneliner", "show", "job", job))

    def wait_for_state(self, job: str, *states: str) -> SlurmJob:
        """Waits until a job is in one of Slurm's states."""

        def seen() -> SlurmJob | None:
            facts = self.facts(job)
            return facts if facts.state in states else None

        return wait_until(seen, 60, f"job {job} {states}")

    @contextmanager
    def crash(self, node: str) -> Iterator[None]:
        """Kills all of a node, and boots it again: the next test needs it."""
        self.control("crash", self.number(node))
        try:
            yield
        finally:
            self.control("boot", self.number(node))
            wait_until(lambda: not self._is_dead(node), 120, f"{node} alive for Slurm")

    def wait_for_dead_node(self, node: str) -> None:
        """Waits until Slurm starts no job on a node that does not answer."""
        wait_until(lambda: self._is_dead(node), 120, f"{node} dead for Slurm")

    def _is_dead(self, node: str) -> bool:
        """Whether Slurm says that a node is down, or, with a star, that it does not answer."""
        states = self.call("sinfo", "--noheader", f"--nodes={node}", "--format=%T").split()
        return all(state.startswith("down") or state.endswith("*") for state in states)

    def release(self, job: str) -> None:
        """Waits until a job is requeued, and lets it start; Slurm would wait for two minutes."""

        def requeued() -> str:
            facts = self.facts(job)
            return facts.state if facts.restarts and facts.state != "COMPLETING" else ""

        if wait_until(requeued, 60, f"requeue of job {job}") == "PENDING":
            # In the same second, the nodes would take the new credential for the old one.
            self.call("scontrol", "update", f"JobId={job}", "StartTime=now+2")
