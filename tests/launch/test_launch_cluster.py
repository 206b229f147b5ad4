"""Who is who in a cluster, and how each process is told."""

from __future__ import annotations

import json

import pytest

from tfckpt_trainer.cluster.gpu_shares import share_gpus, visible_gpus
from tfckpt_trainer.cluster.tasks import Task, cluster_of, tasks, tf_config
from tfckpt_trainer.launch.cluster import processes_in_words


@pytest.mark.parametrize(
    ("workers", "servers", "jobs", "words"),
    [
        (1, 0, "worker", "1 worker"),
        (2, 0, "worker worker", "2 workers"),
        (1, 1, "chief worker ps", "1 worker and 1 parameter server"),
        (2, 2, "chief worker worker ps ps", "2 workers and 2 parameter servers"),
    ],
)
def test_the_processes_of_a_run(workers, servers, jobs, words):
    members = tasks(workers, servers)
    assert [task.job for task in members] == jobs.split()
    assert len(set(members)) == len(members)
    assert processes_in_words(members) == words


def test_each_process_is_told_where_all_are_and_which_it_is():
    members = tasks(2, 1)
    cluster = cluster_of(members, ["a:1", "b:2", "c:3", "d:4"])
    assert cluster == {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}
    told = json.loads(tf_config(cluster, members[2]))
    assert told == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert members[2] == Task("worker", 1)


@pytest.mark.parametrize(
    ("workers", "servers", "gpus", "shares"),
    [
        (1, 0, "0,1", [None]),  # One process may use all of them.
        (2, 0, "", [None, None]),
        (2, 0, "0", [None, None]),  # Too few to share.
        (2, 0, "0,1", ["0", "1"]),
        (2, 0, "GPU-a,GPU-b,GPU-c,GPU-d,GPU-e", ["GPU-a,GPU-b", "GPU-c,GPU-d"]),
        (1, 1, "0", ["-1", "0", "-1"]),
        (2, 1, "0,1,2,3", ["-1", "0,1", "2,3", "-1"]),
    ],
)
def test_workers_of_a_machine_share_its_gpus(workers, servers, gpus, shares):
    visible = visible_gpus({"CUDA_VISIBLE_DEVICES": gpus})
    assert share_gpus(visible, tasks(workers, servers)) == shares


def test_the_gpus_of_a_machine_are_found_by_their_device_files(tmp_path):
    assert visible_gpus({}, tmp_path) == []
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    # Inside a container the files keep their numbers, and CUDA counts from 0.
    assert visible_gpus({}, tmp_path) == ["0", "1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, tmp_path) == ["1"]
