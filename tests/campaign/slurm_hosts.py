"""Commands, and faults of hosts and of their network, on a run on three hosts of a real Slurm.

A case is a number, as in `live_workers.py`. Workers run on two of the hosts.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import psutil

from faulty_file_system import FaultyMount
from requirements import missing
from slurm_cluster import CLUSTER_NEEDS, Cluster, slurm_cluster
from tensorflow_processes import TENSORFLOW
from waiting import wait_until

from .areas import is_left_out
from .live_workers import Episode, Form, LiveWorkers, is_marked

TWO_HOSTS = ("--slurm", "--nodes", "2", "--time", "30", "--peer-seconds", "5")
ENDED = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "")
STEP_SECONDS, END_SECONDS = 300, 120


class SlurmHosts(LiveWorkers):
    """Schedules of commands and faults on the hosts of a cluster."""

    name = "slurm"
    imports = (TENSORFLOW,)

    def __init__(self, place: Path) -> None:
        """Starts the cluster, for as long as this process lives."""
        self.is_left_out = is_left_out("slurm: left out", missing(*CLUSTER_NEEDS))
        if self.is_left_out:
            return
        super().__init__(place)
        running = ExitStack()
        self._cluster = running.enter_context(slurm_cluster())
        atexit.register(running.close)
        os.environ["SLURM_CONF"] = str(self._cluster.configuration)

    def _episode(self, case: str, place: Path, disk: FaultyMount | None) -> Episode:
        return SlurmEpisode(case, place, disk, self._clock, self._cluster)


class SlurmEpisode(Episode):
    """One run on the hosts of a cluster."""

    actions = 6
    live = (
        "save", "set", "pause", "resume", "restore", "prune", "undo", "pin", "stop", "kill-chief",
        "kill-worker", "kill-supervisor", "crash", "crash", "cut", "cut", "requeue", "silence",
    )  # fmt: skip
    stopped = ("launch", "launch", "damage", "prune", "undo", "pin", "next-start")

    def __init__(
        self, case: str, place: Path, disk: FaultyMount | None, clock: Path, cluster: Cluster
    ) -> None:
        """Draws the run."""
        super().__init__(case, place, disk, clock)
        self.form = Form("multi-worker", TWO_HOSTS, 2, imports="")
        self._cluster, self._hastened = cluster, {0}

    def _job(self) -> str:
        """The ID of its job, empty if it has none."""
        place = self._root / ".tfckpt" / "job.json"
        return str(json.loads(place.read_text())["id"]) if place.exists() else ""

    def _state(self) -> str:
        """What Slurm says of its job."""
        return self._cluster.facts(job).state if (job := self._job()) else ""

    def lives(self) -> bool:
        """Whether its job has not ended."""
        return self._state() not in ENDED

    def processes(self) -> list[psutil.Process]:
        """Returns the processes of its job: all hosts share their process IDs."""
        marks = {"SLURM_JOB_ID": self._job(), "SLURM_CLUSTER_NAME": self._cluster.name}
        return [
            one
            for one in psutil.process_iter()
            if all(is_marked(one, *mark) for mark in marks.items())
        ]

    def _wait_for_steps(self) -> None:
        first = self._heard("worker-0")

        def trains() -> bool:
            self._hasten()
            chief = self._heard("worker-0")
            is_other = chief.get("pid") != first.get("pid")
            goes_on = is_other or (bool(chief) and chief["step"] > first["step"])
            activity = chief.get("activity")
            return not self.lives() or activity == "paused" or (activity == "training" and goes_on)

        wait_until(trains, STEP_SECONDS, "training goes on")

    def _hasten(self) -> None:
        """Lets its job start that was put back into the queue: Slurm would wait for two minutes."""
        facts = self._cluster.facts(self._job())
        if facts.state == "PENDING" and facts.restarts not in self._hastened:
            self._hastened.add(facts.restarts)
            self._slurm("scontrol", "update", f"JobId={self._job()}", "StartTime=now+2")

    def _wait_for_end(self) -> None:
        wait_until(lambda: not self.lives(), END_SECONDS, "the job ends")

    def kill_all(self) -> None:
        """Cancels its job."""
        self._thaw()
        if self.lives():
            self._slurm("scancel", "--full", self._job())
            self._wait_for_end()
        super().kill_all()

    def _slurm(self, *words: str) -> None:
        subprocess.run(words, check=False, capture_output=True, timeout=60)

    def _host(self) -> str:
        """A host, as the script of the cluster knows it."""
        return str(self._chance.randrange(3))

    def _crash(self) -> None:
        """Kills all of a host, and starts it again."""
        host = self._host()
        self._cluster.control("crash", host)
        self._stay_away()
        self._cluster.control("boot", host)
        self.done[-1] = f"crash {host}"
        self.ledger.disturb()

    def _cut(self) -> None:
        """Takes the network of a host away for a while."""
        host = self._host()
        self._cluster.control("cut", host)
        seconds = self._stay_away()
        self._cluster.control("heal", host)
        self.done[-1] = f"cut {host} for {seconds} s"
        self.ledger.disturb()

    def _requeue(self) -> None:
        """Puts its job back into the queue, as an operator does."""
        self._slurm("scontrol", "requeue", self._job())
        self.ledger.disturb()

    def _silence(self) -> None:
        """Has the controller not answer for a while."""
        with self._cluster.silent_controller():
            self._stay_away()
