"""The cluster that a pod of an indexed Job finds in its environment."""

from __future__ import annotations

import json

import pytest

from tfckpt_trainer.cluster.indexed_job import cluster_of_indexed_job
from tfckpt_trainer.errors import UsageError

POD = {
    "TFCKPT_SERVICE": "workers",
    "TFCKPT_WORKER_COUNT": "2",
    "JOB_COMPLETION_INDEX": "1",
    "HOSTNAME": "my-train-1",
}


def test_each_pod_is_the_worker_of_its_index():
    made = cluster_of_indexed_job(POD)
    assert json.loads(made.pop("TF_CONFIG")) == {
        "cluster": {"worker": ["my-train-0.workers:2222", "my-train-1.workers:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert made == {"TFCKPT_WORKER_INDEX": "1"}


def test_the_port_can_be_chosen_and_a_long_host_name_is_understood():
    made = cluster_of_indexed_job(
        POD | {"TFCKPT_PORT": "4000", "HOSTNAME": "my-train-1.workers.default.svc"}
    )
    assert "my-train-0.workers:4000" in made["TF_CONFIG"]


def test_without_a_service_nothing_is_made():
    assert cluster_of_indexed_job({"JOB_COMPLETION_INDEX": "1"}) == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"JOB_COMPLETION_INDEX": None}, r'missing. Set `completionMode: "Indexed"` in the Job'),
        ({"TFCKPT_WORKER_COUNT": None}, "TFCKPT_WORKER_COUNT is missing. Set it to the `compl"),
        ({"TFCKPT_WORKER_COUNT": "two"}, "TFCKPT_WORKER_COUNT is 'two'; expected a number"),
        ({"TFCKPT_WORKER_COUNT": "1"}, "JOB_COMPLETION_INDEX is 1, but TFCKPT_WORKER_COUNT is 1"),
        ({"TFCKPT_PORT": "http"}, "TFCKPT_PORT is 'http'; expected a number"),
        ({"HOSTNAME": "node7"}, "HOSTNAME is 'node7'; expected the name of an indexed Job's pod"),
        ({"HOSTNAME": None}, "HOSTNAME is ''; expected"),
    ],
)
def test_what_is_missing_or_wrong_is_named(change, said):
    environment = {name: text for name, text in (POD | change).items() if text is not None}
    with pytest.raises(UsageError, match=said):
        cluster_of_indexed_job(environment)
