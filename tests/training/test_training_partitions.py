"""Two workers on two hosts, whose network is cut for a short and a long time."""

from __future__ import annotations

import os
import re
import time

import pytest
from separate_hosts import SeparateHosts
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from requirements import needs
from tensorflow_processes import TensorFlowProcess
from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Ending

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

PEER_SECONDS = 11
PORT = 2222


class SpreadCluster(Cluster):
    """A cluster whose workers are on hosts of their own."""

    hosts: SeparateHosts

    def __enter__(self) -> SpreadCluster:
        self.run_dir.mkdir()
        self.hosts = self._stack.enter_context(SeparateHosts(self.workers))
        members = tasks(self.workers, 0)
        cluster = cluster_of(members, [f"{host}:{PORT}" for host in self.hosts.addresses])
        for index, task in enumerate(members):
            environment = {
                **os.environ,
                "TFCKPT_RUN_DIR": str(self.run_dir),
                "TFCKPT_WORKER_INDEX": str(index),
                "TFCKPT_PEER_SECONDS": str(PEER_SECONDS),
                "TF_CONFIG": tf_config(cluster, task),
            }
            place = [self.hosts.namespaces[index], f"host-{index}"]
            words = [SCRIPTS / "in_network.py", *place, SCRIPTS / self.script]
            with open(self.log(index), "ab") as output:
                self.processes.append(TensorFlowProcess(words, environment, output))
        return self


@needs("mounts", "network namespaces")
def test_a_short_cut_costs_no_restart_and_a_long_one_names_the_pair(tmp_path):
    with SpreadCluster(tmp_path / "run", "steered.py", []) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        for seconds in (3, 10):
            cluster.hosts.cut(1)
            # How long the network is away is what is tested.
            time.sleep(seconds)
            cluster.hosts.heal(1)
            run.progress()

        cluster.hosts.cut(1)
        assert cluster.wait() == [75, 75], cluster.output()
        workers = run.workers()
        assert [worker.ending for worker in workers] == [Ending.PEER_LOST, Ending.PEER_LOST]
        for worker in workers:
            pair = rf"Worker {worker.index} on host-{worker.index} lost "
            pair += rf"worker {1 - worker.index} on host-{1 - worker.index} for \d+ s\. "
            assert re.match(pair, worker.detail), worker.detail
        (entry,) = [e for e in read_entries(run.run) if e.kind is EventKind.WORKER_LOST]
        assert entry.message == workers[0].detail
        assert "check the network between the two" in entry.message
