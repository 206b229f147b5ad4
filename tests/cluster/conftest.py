"""Runs that are launched on a real Slurm cluster of three hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_running import BINARY
from requirements import require
from slurm_cluster import CLUSTER_NEEDS, Cluster, slurm_cluster
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from waiting import wait_until

WORKER = Path(__file__).parent.parent / "launch" / "scripts" / "worker.py"


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
        command = [BINARY, "launch", self.root, "--slurm", "--detach", "--time", "10", *options]
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
    require(*CLUSTER_NEEDS)
    with slurm_cluster() as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(started.configuration))
        yield started


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
