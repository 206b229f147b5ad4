"""GPUs of a real Slurm cluster: each worker gets its own. Null devices stand for GPUs."""

from __future__ import annotations

import ast
import sys

import pytest

pytestmark = pytest.mark.cluster

SHOW_GPUS = """
import os
from tfckpt_trainer.cluster.slurm import own_gpus
print(own_gpus(os.environ) or os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
"""


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--gpus-per-node=2", ["0", "1"]),
        ("--gpus-per-node=4", ["0,1", "2,3"]),
        ("--gpus-per-node=3", ["0", "1"]),
        ("--gpus-per-task=2", ["0,1", "2,3"]),
        ("--gpus-per-node=4 --gpu-bind=single:1", ["0", "1"]),
        ("--gpus-per-node=2 --gpu-bind=map_gpu:1,0", ["0", "1"]),
        ("--gpus-per-node=2 --gpu-bind=none", ["all", "all"]),
        ("--nodes=2 --gpus-per-node=2", ["0,1", "0,1"]),
    ],
)
def test_tasks_of_a_plain_srun_get_their_own_gpus(cluster, options, gpus):
    shown = cluster.call(
        "srun", "--quiet", "--ntasks=2", *options.split(), sys.executable, "-c", SHOW_GPUS
    )
    assert sorted(shown.split()) == gpus


def test_launched_workers_of_a_node_share_its_gpus(run):
    options = ("--nodes", "2", "--tasks-per-node", "2", "--gpus-per-node", "4")
    job = run.launch_worker("environment", "step", "end=finished", options=options)
    run.cluster.wait_for_state(job, "COMPLETED")
    assert [gpus_of(run, index) for index in range(4)] == ["0,1", "2,3", "0,1", "2,3"]


def gpus_of(run, index: int) -> str:
    """The GPUs that a worker sees, and no others."""
    text = (run.root / f"environment-{index}").read_text()
    environment = ast.literal_eval(text.removeprefix("environ(").removesuffix(")"))
    return environment["CUDA_VISIBLE_DEVICES"]
