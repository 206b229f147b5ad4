"""What a machine with a GPU does differently, where no GPU is needed to see it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorflow_processes import run_with_tensorflow

SCRIPTS = Path(__file__).parent / "scripts"

pytestmark = pytest.mark.tensorflow


def test_values_in_main_memory_stay_there(tmp_path):
    """A table that is larger than the memory of a GPU can be saved and restored."""
    ended = run_with_tensorflow(SCRIPTS / "placement.py", tmp_path)
    assert ended.returncode == 0, ended.stderr
    placed = json.loads(ended.stdout.splitlines()[-1])
    # Only what has a device stays; so the script sees what it looks for.
    assert placed.pop("plain read") == ["Identity"]
    assert {name: kinds for name, kinds in placed.items() if kinds} == {}


def test_a_self_test_reads_the_peak_since_the_last_one_of_each_gpu():
    ended = run_with_tensorflow(SCRIPTS / "memory.py")
    assert ended.returncode == 0, ended.stderr
    names, first, second = json.loads(ended.stdout.splitlines()[-1])
    assert names == ["/physical_device:GPU:0", "H200"]
    assert (first["devices"], second["devices"]) == ([1000, 2000], [10, 10])
    assert second["host"] >= first["host"] > 0


def test_gpus_that_a_strategy_leaves_idle_are_named():
    ended = run_with_tensorflow(SCRIPTS / "idle.py")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [
        "CPUs 0, 2 are idle: the strategy uses 1 of 3 CPUs.",
        "CPU 2 is idle: the strategy uses 2 of 3 CPUs.",
        "",
        "CPUs 1, 2 are idle: the strategy uses 1 of 3 CPUs.",
        "",
    ]


class Nvml:
    """NVIDIA's management library on a machine with three GPUs, the last of them in parts."""

    class NVMLError(Exception):
        pass

    PROCESSES = (
        [SimpleNamespace(pid=7, usedGpuMemory=1 << 30), SimpleNamespace(pid=8, usedGpuMemory=None)],
        [],
        [SimpleNamespace(pid=7, usedGpuMemory=2 << 30)],
    )
    UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222", "GPU-cccc3333")

    def nvmlDeviceGetCount(self):
        return len(self.UUIDS)

    def nvmlDeviceGetHandleByIndex(self, number):
        if number >= len(self.UUIDS):
            raise self.NVMLError
        return number

    def nvmlDeviceGetUUID(self, handle):
        return self.UUIDS[handle]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-part":
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetName(self, handle):
        return f"card {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle == 1:
            raise self.NVMLError
        return SimpleNamespace(used=1 << 30, total=80 << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self.PROCESSES[handle]

    def nvmlDeviceGetUtilizationRates(self, handle):
        if handle == "MIG-part":
            raise self.NVMLError
        return SimpleNamespace(gpu=90)


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, ["card 0", "card 2"]),  # The second cannot be read.
        ("2,0", ["card 2", "card 0"]),
        ("", []),
        ("-1", []),
        ("0,-1,2", ["card 0"]),
        ("0,7,2", ["card 0"]),
        ("GPU-cccc3333, GPU-aaaa", ["card 2", "card 0"]),
        ("MIG-part", ["card MIG-part"]),
    ],
)
def test_the_heartbeat_has_the_gpus_that_cuda_shows(monkeypatch, visible, cards):
    from tfckpt_trainer.training.telemetry.gpus import GpuReader

    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    statuses = GpuReader(Nvml()).read()
    assert [status.name for status in statuses] == cards
    assert {status.use_percent for status in statuses} <= {90.0, None}
    assert all((status.use_percent is None) == ("MIG" in status.name) for status in statuses)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    ended = run_with_tensorflow(SCRIPTS / "replicas.py", tmp_path_factory.mktemp("replicas"))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_replicas_are_compared_where_they_are(replicas):
    """Only what a restore compares with its file is copied, and that once."""
    sizes, copied = replicas["sizes"], replicas["copied"]
    in_main_memory = sum(sizes[name] for name in ("int32", "bool", "small"))
    # The step and the number of saves have one replica each.
    counters = 2 * 8
    assert copied["save"] == 3 * in_main_memory + counters
    # Workers compare checksums of one kind, whoever computes them.
    assert copied["save, one device full"] == copied["save"]
    assert copied["restore"] == 2 * in_main_memory + sum(sizes.values()) + counters


def test_every_change_of_a_replica_is_seen_where_it_is(replicas):
    found = dict(replicas["found"])
    assert found.pop("nothing") == [[], []]
    # Replicas that are equal, and not those of the checkpoint.
    assert found.pop("all replicas") == [[], ["float32"]]
    assert len(found) > 5
    assert found == {name: [["float32"], ["float32"]] for name in found}


def test_a_restore_adds_at_most_one_value_at_a_time_to_a_device(replicas):
    most = dict(replicas["most"])
    # The values are seen: they are counted if all are read at the same time.
    assert most.pop("read all") == len(replicas["sizes"]) - 1
    assert max(most.values()) <= 1


def test_checksums_are_computed_where_the_values_are():
    ended = run_with_tensorflow(SCRIPTS / "checksums.py")
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["different"] == []
    operations, devices = zip(*seen["ran"], strict=True)
    assert {"Slice", "Bitcast", "Cast", "Mul", "Sum"} <= set(operations)
    assert {device.partition("device:")[2] for device in devices} == {seen["accelerator"]}


def test_memory_of_a_process_is_that_of_all_gpus():
    from tfckpt_trainer.machine.nvidia import gpu_memory_by_process

    assert gpu_memory_by_process(Nvml()) == {7: 3 << 30}
    lost = Nvml()
    lost.nvmlDeviceGetComputeRunningProcesses = lost.nvmlDeviceGetHandleByUUID
    assert gpu_memory_by_process(lost) == {}
