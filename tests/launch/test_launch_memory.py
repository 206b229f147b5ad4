"""Memory limits and kills are read from the kernel's files, in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfckpt_trainer.launch.supervision.watch import MemoryWatch, names_memory_kill
from tfckpt_trainer.rundir.records.failure import OutOfMemory


class Kernel:
    """The files of a kernel."""

    def __init__(self, root: Path) -> None:
        self.proc, self.groups = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.groups.mkdir()

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def joins(self, line: str) -> None:
        self.write(self.proc / "self" / "cgroup", f"3:cpuset:/\n{line}\n")

    def kills(self, number: int) -> None:
        self.write(self.proc / "vmstat", f"pgfault 7\noom_kill {number}\n")

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self.proc, self.groups)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.mark.parametrize(
    ("group", "directory", "kills", "limit"),
    [
        ("0::/user/run", "user/run", "memory.events", "memory.max"),
        ("4:memory:/job/run", "memory/job/run", "memory.oom_control", "memory.limit_in_bytes"),
        # In a container, the path is that of the host.
        ("0::/docker/5f0c", "", "memory.events", "memory.max"),
    ],
)
def test_a_kill_in_the_control_group_is_counted(
    kernel: Kernel, group: str, directory: str, kills: str, limit: str
) -> None:
    kernel.joins(group)
    own = kernel.groups / directory
    kernel.write(own / limit, "64000000\n")
    kernel.write(own / kills, "oom 3\noom_kill 1\n")
    kernel.kills(1)
    watch = kernel.watch()
    assert watch.limit == 64_000_000
    assert watch.judge() is None
    kernel.kills(2)
    assert watch.judge() is OutOfMemory.ON_HOST
    kernel.write(own / kills, "oom 3\noom_kill 2\n")
    assert watch.judge() is OutOfMemory.COUNTED


def test_a_group_without_a_limit_has_that_of_the_host(kernel: Kernel) -> None:
    before = kernel.watch().limit
    kernel.joins("0::/")
    kernel.write(kernel.groups / "memory.max", "max\n")
    assert kernel.watch().limit == before


def test_without_counters_nothing_is_said(kernel: Kernel) -> None:
    kernel.write(kernel.proc / "vmstat", "oom_kill many\n" + "x" * 200_000)
    assert kernel.watch().judge() is None


def test_slurm_names_a_kill_in_the_log_of_a_worker() -> None:
    said = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks …"
    assert names_memory_kill(f"step 3\n{said}")
    assert names_memory_kill("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0 …")
    assert not names_memory_kill("my script: slurmstepd: oom_kill")
