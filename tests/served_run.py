"""A launched run on a network disk, and who asks its server for what.

    with served_run(tmp_path) as served:
        served.settle()
        counted = served.count(60)              # by who asks: "chief", "worker 1", "supervisor"
        counted = served.count(60, looking)     # while something on another machine looks

Its state is read where the server has its files, so a look of the test is no operation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faulty_file_system import FaultyMount, faulty_mounts
from tensorflow_processes import python_with_tensorflow
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from waiting import MOST_SECONDS, wait_until

CACHE_SECONDS = 3.0
"""For so long clients keep names and attributes, as NFS does at least."""

SCRIPT = Path(__file__).parent / "training" / "scripts" / "steered.py"

Asked = dict[str, Counter[str]]


class ServedRun:
    """The run, and the clients of its server.

    Attributes:
        run: The run directory where the workers see it.
        elsewhere: The same on another machine.
        on_server: The same where the server has its files.
    """

    def __init__(self, place: Path, here: FaultyMount, there: FaultyMount) -> None:
        self._here, self._there = here, there
        self.run = RunDirectory(here.root / "run")
        self.elsewhere = RunDirectory(there.root / "run")
        self.on_server = RunDirectory(place / "server" / "run")

    def workers(self) -> list[WorkerStatus]:
        """Returns the newest heartbeats."""
        try:
            return read_workers(self.on_server)
        except DamagedFileError:
            return []

    def count(self, seconds: float) -> Asked:
        """Returns the operations of so many seconds, by who asks."""
        self._here.count_calls()
        self._there.count_calls()
        time.sleep(seconds)
        return self.asked()

    def asked(self) -> Asked:
        """Returns the operations since the last time, by who asks."""
        names = {worker.pid: f"worker {worker.index}" for worker in self.workers()}
        names |= {worker.pid: "chief" for worker in self.workers() if not worker.index}
        supervisor = read_supervisor(self.on_server)
        if supervisor is not None:
            names[supervisor.pid] = "supervisor"
        asked: Asked = {}
        for process, calls in self._here.count_by_process().items():
            asked.setdefault(names.get(process, "others"), Counter()).update(calls)
        elsewhere = self._there.count_calls()
        return {**asked, "elsewhere": elsewhere} if elsewhere else asked


@contextmanager
def served_run(place: Path, *arguments: str, workers: int = 2) -> Iterator[ServedRun]:
    """Launches `steered.py`, and waits until all workers train.

    Args:
        place: A directory for the mount points.
        *arguments: Of the script.
        workers: How many there are.
    """
    with faulty_mounts(place, "here", "there", cache_seconds=CACHE_SECONDS) as mounts:
        served = ServedRun(place, *mounts)
        command = [sys.executable, "-m", "tfckpt_tui.cli.main", "launch", str(served.run.root)]
        command += ["--foreground", "--no-standby", "--workers", str(workers), "--"]
        command += [*python_with_tensorflow(), str(SCRIPT), *arguments]
        log = place / "launch.log"
        with open(log, "wb") as output:
            job = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ)

        def train() -> bool:
            assert job.poll() is None, log.read_text()
            found = served.workers()
            return len(found) == workers and all(worker.step > 5 for worker in found)

        try:
            wait_until(train, MOST_SECONDS, "all train")
            yield served
        finally:
            stop_supervisor(served.run, MOST_SECONDS)
            job.wait(MOST_SECONDS)
