"""Who is who in a cluster, and how each process is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tfckpt_trainer.cluster.gpu_shares import GpuShares, VisibleGpus, share_gpus, visible_gpus
from tfckpt_trainer.cluster.tasks import Task, cluster_of, tasks, tf_config
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.preflight import check_options
from tfckpt_trainer.launch.processes.cluster import plan_gpus, processes_in_words
from tfckpt_trainer.launch.slurm_options import SlurmOptions


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


def plan(gpus: str, *names: int, **environment: str) -> GpuShares:
    """How workers and parameter servers divide the GPUs of `CUDA_VISIBLE_DEVICES`."""
    environment["CUDA_VISIBLE_DEVICES"] = gpus
    return share_gpus(visible_gpus(environment), tasks(*names), environment)


@pytest.mark.parametrize(
    ("workers", "servers", "gpus", "shares"),
    [
        (1, 0, "0,1", [None]),  # One process may use all of them.
        (2, 0, "", [None, None]),
        (2, 0, "NoDevFiles", [None, None]),
        (2, 0, "0,1", ["0", "1"]),
        (2, 0, "GPU-a,GPU-b,GPU-c,GPU-d,GPU-e", ["GPU-a,GPU-b", "GPU-c,GPU-d"]),
        (2, 0, "MIG-a,MIG-b,MIG-c,MIG-d", ["MIG-a", "MIG-b"]),
        (1, 1, "0", ["-1", "0", "-1"]),
        (2, 1, "0,1,2,3", ["-1", "0,1", "2,3", "-1"]),
    ],
)
def test_workers_of_a_machine_divide_its_gpus(workers, servers, gpus, shares):
    variables = plan(gpus, workers, servers).variables
    assert [one.get("CUDA_VISIBLE_DEVICES") for one in variables] == shares


@pytest.mark.parametrize(
    ("workers", "gpus", "remark"),
    [
        (2, "0,1", ""),
        (2, "0,1,2,3,4", "GPU 4 is idle: 2 workers use 2 GPUs each."),
        (2, "3,2,1", "GPU 1 is idle: 2 workers use 1 GPU each."),
        (
            1,
            "MIG-a,MIG-b,MIG-c",
            "GPUs MIG-b, MIG-c are idle: 1 worker uses 1 GPU; a process can use only one MIG "
            "instance.",
        ),
    ],
)
def test_idle_gpus_are_named(workers, gpus, remark):
    assert plan(gpus, workers).remark == remark


@pytest.mark.parametrize(
    ("workers", "gpus", "too_few"), [(2, "0", 1), (2, "0,0", 1), (3, "MIG-a,MIG-b", 2), (2, "", 0)]
)
def test_too_few_gpus_for_the_workers_are_counted(workers, gpus, too_few):
    found = plan(gpus, workers)
    assert (found.too_few, found.remark) == (too_few, "")
    assert not any(found.variables)


def test_workers_share_gpus_if_their_memory_grows_and_do_so_without_nccl():
    found = plan("5,7", 3, TF_FORCE_GPU_ALLOW_GROWTH="true")
    ring = {"TFCKPT_COMMUNICATION": "ring"}
    assert list(found.variables) == [
        {"CUDA_VISIBLE_DEVICES": name, **ring} for name in ("5", "7", "5")
    ]
    assert found.remark == (
        "3 workers share GPUs 5, 7, with TF_FORCE_GPU_ALLOW_GROWTH=true and "
        "TFCKPT_COMMUNICATION=ring."
    )
    assert plan("5,7", 3, TF_FORCE_GPU_ALLOW_GROWTH="false").too_few == 2
    # NCCL also refuses to connect the MIG instances of one GPU; GPUs of their own need nothing.
    assert plan("MIG-a,MIG-b", 2).variables[1] == {"CUDA_VISIBLE_DEVICES": "MIG-b", **ring}
    chosen = plan("MIG-a,MIG-b", 2, TFCKPT_COMMUNICATION="nccl")
    assert chosen.variables[1]["TFCKPT_COMMUNICATION"] == "nccl"
    assert plan("0,1", 2, TF_FORCE_GPU_ALLOW_GROWTH="true").variables[0].keys().isdisjoint(ring)


def make_files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_the_gpus_of_a_machine_are_found_by_their_device_files(tmp_path):
    assert visible_gpus({}, tmp_path) == VisibleGpus()
    make_files(tmp_path, "proc/driver/nvidia/gpus/0000:65:00.0/information")
    # The driver has not made the device files yet.
    assert visible_gpus({}, tmp_path).names == ("0",)
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        make_files(tmp_path, f"dev/{name}")
    # Inside a container the files keep their numbers, and CUDA counts from 0.
    assert visible_gpus({}, tmp_path).names == ("0", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path).names == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, tmp_path).names == ("1",)
    assert visible_gpus({"HIP_VISIBLE_DEVICES": "0"}, tmp_path).names == ("0", "1")


@pytest.mark.parametrize(
    ("files", "variable", "why"),
    [
        (["dev/dxg"], "CUDA_VISIBLE_DEVICES", "WSL2 has no device files to count GPUs"),
        (["dev/kfd"], "HIP_VISIBLE_DEVICES", "the GPUs of ROCm are not counted"),
        (
            ["dev/nvidia0", "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"],
            "CUDA_VISIBLE_DEVICES",
            "a GPU has MIG instances, which only `nvidia-smi -L` lists",
        ),
    ],
)
def test_gpus_that_cannot_be_counted_are_left_alone_until_they_are_listed(
    tmp_path, files, variable, why
):
    make_files(tmp_path, *files)
    found = share_gpus(visible_gpus({}, tmp_path), tasks(2), {})
    assert not any(found.variables)
    assert found.remark == (
        f"All 2 processes see the same GPUs, because {why}. To divide them, list them in "
        f"{variable}."
    )
    assert share_gpus(visible_gpus({}, tmp_path), tasks(1), {}).remark == ""
    listed = share_gpus(visible_gpus({variable: "0,1"}, tmp_path), tasks(2), {})
    assert [one[variable] for one in listed.variables] == ["0", "1"]
    assert not listed.remark


def test_rocm_divides_the_last_list_that_it_reads(tmp_path):
    make_files(tmp_path, "dev/kfd")
    given = {"ROCR_VISIBLE_DEVICES": "2,3"}
    assert visible_gpus(given, tmp_path) == VisibleGpus(("2", "3"), "ROCR_VISIBLE_DEVICES")
    given["CUDA_VISIBLE_DEVICES"] = "1,0"
    assert visible_gpus(given, tmp_path) == VisibleGpus(("1", "0"))
    given["HIP_VISIBLE_DEVICES"] = "0"
    assert visible_gpus(given, tmp_path) == VisibleGpus(("0",), "HIP_VISIBLE_DEVICES")


def test_a_launch_with_fewer_gpus_than_workers_is_refused_with_what_to_do(tmp_path):
    options = LaunchOptions(
        run_directory=str(tmp_path / "run"),
        command=("true",),
        working_directory=str(tmp_path),
        workers=2,
        environment=(("CUDA_VISIBLE_DEVICES", "0"),),
    )
    with pytest.raises(UsageError) as refused:
        check_options(options)
    assert str(refused.value) == (
        "There are 2 workers and 1 GPU, but each worker needs a GPU of its own. Launch with "
        "`--workers 1`. To train on CPUs, set `CUDA_VISIBLE_DEVICES=-1`. To share GPUs, set "
        "`TF_FORCE_GPU_ALLOW_GROWTH=true`."
    )
    for setting in (("CUDA_VISIBLE_DEVICES", "-1"), ("TF_FORCE_GPU_ALLOW_GROWTH", "true")):
        check_options(replace(options, environment=(*options.environment, setting)))


@pytest.mark.parametrize(
    ("asked", "problem", "remark"),
    [
        ({"gpus_per_node": 1}, "Each node has 2 workers and 1 GPU", ""),
        ({"gpus_per_node": 3}, "", "On each node, GPU 2 is idle: 2 workers use 1 GPU each."),
        ({"gpus_per_node": 2}, "", ""),
        ({}, "", ""),
        ({"gpus_per_node": 1, "arguments": ("--gpu-bind=none",)}, "", ""),
        ({"gpus_per_node": 1, "tasks_per_node": 1}, "", ""),
    ],
)
def test_the_gpus_that_a_launch_asks_of_slurm_are_compared_with_its_tasks(
    tmp_path, asked, problem, remark
):
    options = LaunchOptions(
        run_directory=str(tmp_path / "run"),
        command=("true",),
        working_directory=str(tmp_path),
        slurm=SlurmOptions(**{"tasks_per_node": 2, **asked}),
    )
    if problem:
        with pytest.raises(UsageError, match=f"{problem}.*`--gpus-per-node 2`"):
            check_options(options)
        return
    check_options(options)
    assert plan_gpus(options).remark == remark
