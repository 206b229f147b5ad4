"""A real Slurm cluster of three hosts on this machine, and runs that are launched on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from requirements import require
from tfckpt_trainer.launch.slurm.controller import SlurmJob, parse_job
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from waiting import wait_until

SCRIPT = Path(__file__).parent / "cluster.sh"
WORKER = Path(__file__).parent.parent / "launch" / "scripts" / "worker.py"
APP = Path(sys.executable).parent / "tfckpt-tui"


class Cluster:
    """The cluster, seen from the login host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {**os.environ, "CLUSTER_DIR": str(directory)}

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
        return self.call(APP, *words, timeout=timeout)

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


class LaunchedRun:
    """A run that was launched on the cluster."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster = cluster
        self.root = root
        self.directory = RunDirectory(root)

    def launch(self, *command: str, options: tuple[str, ...] = ()) -> str:
        """Launches a command; returns the ID of the job."""
        words = ["launch", str(self.root), "--slurm", "--detach", "--json", "--time", "10"]
        answer = self.cluster.app(*words, *options, "--", *command)
        return str(json.loads(answer)["job"])

    def try_to_launch(
        self, *actions: str, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Launches workers that do `actions`; returns how the command ended."""
        command = [APP, "launch", self.root, "--slurm", "--detach", "--time", "10", *options]
        return subprocess.run(
            [str(word) for word in (*command, "--", sys.executable, WORKER, *actions)],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def launch_worker(self, *actions: str, options: tuple[str, ...] = ()) -> str:
        """Launches workers that need no TensorFlow and do `actions`."""
        return self.launch(sys.executable, str(WORKER), *actions, options=options)

    @property
    def job(self) -> BatchJob:
        job = load_if_exists(self.directory.job_file, BatchJob)
        assert job is not None
        return job

    def messages(self, *kinds: EventKind) -> list[str]:
        """The messages in the event log, of some kinds."""
        entries = read_entries(self.directory)
        return [entry.message for entry in entries if not kinds or entry.kind in kinds]

    def wait_for_message(self, text: str, timeout: float = 60) -> None:
        """Waits until a message contains a text."""
        wait_until(
            lambda: any(text in message for message in self.messages()), timeout, f"{text!r}"
        )

    def wait_for_step(self, step: int) -> None:
        """Waits until all workers train and have made a step."""

        def reached() -> bool:
            assert not self.messages(EventKind.FAILED), self.messages()
            workers = read_workers(self.directory)
            return bool(workers) and all(
                one.activity is Activity.TRAINING and one.step >= step for one in workers
            )

        wait_until(reached, 120, f"step {step} in {self.root}")

    def wait_for_files(self, *names: str) -> None:
        """Waits for files that workers write."""
        wait_until(
            lambda: all((self.root / name).exists() for name in names), 120, f"{names} {self.root}"
        )

    def wait_for_processes(self, count: int) -> None:
        """Waits until the supervisor knows the processes of all workers."""

        def seen() -> bool:
            status = read_supervisor(self.directory)
            return status is not None and len(status.workers) == count

        wait_until(seen, 60, f"{count} processes in the heartbeat of the supervisor")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three hosts."""
    require("bash", "slurm", "munge", "root", "mounts", "network namespaces")
    # Paths of sockets must be short.
    started = Cluster(Path(f"/tmp/tfckpt-cluster-{os.getpid()}"))
    try:
        started.control("up", "3")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(started.directory / "slurm.conf"))
            yield started
    finally:
        started.control("down")


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Iterator[LaunchedRun]:
    """A run directory; its job is cancelled at the end."""
    launched = LaunchedRun(cluster, tmp_path / "run")
    yield launched
    if launched.directory.job_file.exists():
        # Shown if the test fails.
        print(*launched.messages(), sep="\n")
        print(cluster.call("scontrol", "show", "job", launched.job.id))
        print(cluster.call("sinfo", "--Node", "--long"))
        for log in (launched.directory.job_log, launched.directory.supervisor_log):
            print(log, log.read_text() if log.exists() else "does not exist", sep="\n")
        cluster.call("scancel", launched.job.id)
        cluster.wait_for_state(launched.job.id, "CANCELLED", "COMPLETED", "FAILED")
