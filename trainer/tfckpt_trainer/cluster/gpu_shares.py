"""The GPUs of each process on one machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import msgspec

from tfckpt_trainer.cluster.tasks import Task
from tfckpt_trainer.words.counts import count, noun

NO_GPUS = "-1"
"""Value of `CUDA_VISIBLE_DEVICES` that hides all GPUs."""

_CUDA, _HIP = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
_ROCM = (_HIP, _CUDA, "ROCR_VISIBLE_DEVICES")
"""Variables that ROCm reads: the first that is set chooses among the GPUs of the last."""

_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_COMMUNICATION = "TFCKPT_COMMUNICATION"

_NAME = re.compile(r"\d+|(?:GPU|MIG)-[\w./-]+", re.ASCII)
_MIG = "MIG-"

_ACCELERATOR = re.compile(r"/dev/(nvidia|kfd|dri/|dxg|accel|vfio)")
"""Beginnings of device files: NVIDIA, ROCm, WSL2 and TPU."""


class VisibleGpus(msgspec.Struct, frozen=True):
    """The GPUs that the processes of this machine see.

    Attributes:
        names: Their names in `variable`.
        variable: The environment variable that chooses some of them.
        unknown: Why their number is unknown, as a clause; empty if it is known.
    """

    names: tuple[str, ...] = ()
    variable: str = _CUDA
    unknown: str = ""

    @property
    def has_mig(self) -> bool:
        """Whether some are MIG instances, of which one process can use only one."""
        return any(name.startswith(_MIG) for name in self.names)

    @property
    def of_one_process(self) -> tuple[str, ...]:
        """Those that one process can use."""
        return self.names[:1] if self.has_mig else self.names

    def divide(self, processes: int) -> list[tuple[str, ...]]:
        """Returns the GPUs of each process, the same number for all.

        If there are fewer GPUs than processes, some processes share one.
        """
        names = self.names
        share = 1 if self.has_mig else max(1, len(names) // processes)
        starts = (index * share % len(names) for index in range(processes))
        return [names[start : start + share] for start in starts]


class GpuShares(msgspec.Struct, frozen=True):
    """How the processes of one machine divide its GPUs.

    Attributes:
        variables: Environment variables of each process.
        remark: What a user should know, as a sentence: GPUs that are idle, shared or not counted.
        too_few: The number of GPUs, if workers would have to share them; 0 otherwise.
    """

    variables: tuple[Mapping[str, str], ...] = ()
    remark: str = ""
    too_few: int = 0


def visible_gpus(environment: Mapping[str, str], root: Path = Path("/")) -> VisibleGpus:
    """Returns the GPUs that the processes of this machine see.

    Args:
        environment: The environment of the processes.
        root: The root directory, with the files of the drivers.
    """
    number = _nvidia_gpus(root)
    has_rocm = not number and (root / "dev/kfd").exists()
    variables = _ROCM if has_rocm else (_CUDA,)
    variable = next((name for name in variables if name in environment), variables[0])
    if variable in environment:
        named = (name.strip() for name in environment[variable].split(","))
        # CUDA ignores everything after an invalid name.
        valid = takewhile(_NAME.fullmatch, named)
        return VisibleGpus(tuple(dict.fromkeys(valid)), variable)
    unknown = ""
    if has_rocm:
        unknown = "the GPUs of ROCm are not counted"
    elif not number and (root / "dev/dxg").exists():
        unknown = "WSL2 has no device files to count GPUs"
    elif any(root.glob("proc/driver/nvidia/capabilities/gpu*/mig/gi*")):
        unknown = "a GPU has MIG instances, which only `nvidia-smi -L` lists"
    names = () if unknown else tuple(map(str, range(number)))
    return VisibleGpus(names, variable, unknown)


def _nvidia_gpus(root: Path) -> int:
    """Returns the number of NVIDIA's GPUs."""
    nodes = (root / "dev").glob("nvidia*")
    number = sum(bool(re.fullmatch(r"nvidia\d+", node.name)) for node in nodes)
    # The driver makes the device files when a program first asks for them.
    return number or len(list(root.glob("proc/driver/nvidia/gpus/*")))


def share_gpus(
    gpus: VisibleGpus, tasks: Sequence[Task], environment: Mapping[str, str]
) -> GpuShares:
    """Divides the GPUs of one machine among its workers.

    TensorFlow takes all memory of the GPUs that a process sees, and NCCL refuses to connect workers
    that share a GPU. So each worker gets GPUs of its own. The chief and parameter servers, which
    compute no gradients, get none. Workers share GPUs only if the user lets TensorFlow's memory
    grow. Then they reduce values without NCCL, as MIG instances of one GPU have to.

    Args:
        gpus: The GPUs.
        tasks: The processes.
        environment: The environment of the processes.
    """
    names = gpus.names
    workers = [task.job for task in tasks].count("worker")
    untouched: tuple[Mapping[str, str], ...] = ({},) * len(tasks)
    if len(tasks) < 2:
        return GpuShares(untouched, _idle_in_words(gpus, gpus.of_one_process, workers))
    if gpus.unknown:
        remark = (
            f"All {len(tasks)} processes see the same GPUs, because {gpus.unknown}. "
            f"To divide them, list them in {gpus.variable}."
        )
        return GpuShares(untouched, remark)
    if not names:
        return GpuShares(untouched)
    shared = len(names) < workers
    if shared and environment.get(_GROWTH) != "true":
        return GpuShares(untouched, too_few=len(names))
    parts = gpus.divide(workers)
    by_ring = workers > 1 and (shared or gpus.has_mig)
    how = {_COMMUNICATION: environment.get(_COMMUNICATION) or "ring"} if by_ring else {}
    remark = _idle_in_words(gpus, [name for part in parts for name in part], workers)
    if shared:
        settings = f"{_GROWTH}=true and {_COMMUNICATION}={how[_COMMUNICATION]}"
        remark = f"{count(workers, 'worker')} share {_in_words(names)}, with {settings}."
    variables = (
        {gpus.variable: ",".join(parts[task.index]), **how}
        if task.job == "worker"
        else {gpus.variable: NO_GPUS}
        for task in tasks
    )
    return GpuShares(tuple(variables), remark)


def _idle_in_words(gpus: VisibleGpus, used: Sequence[str], workers: int) -> str:
    """Returns which GPUs no worker uses, as a sentence; empty if all are used."""
    idle = [name for name in gpus.names if name not in used]
    if not idle:
        return ""
    who = f"{count(workers, 'worker')} {noun(workers, 'uses', 'use')}"
    each = f"{count(len(used) // workers, 'GPU')}{noun(workers, '', ' each')}"
    why = "; a process can use only one MIG instance" if gpus.has_mig else ""
    return f"{_in_words(idle)} {noun(len(idle), 'is', 'are')} idle: {who} {each}{why}."


def _in_words(names: Sequence[str]) -> str:
    return f"{noun(len(names), 'GPU')} {', '.join(names)}"


def open_accelerators(descriptors: Path = Path("/proc/self/fd")) -> list[str]:
    """Returns the device files of accelerators that a process has open.

    Args:
        descriptors: A directory with a link to each of its open files; that of this process.
    """
    devices = set()
    for descriptor in descriptors.iterdir():
        # The descriptor of this listing may be closed by now.
        with suppress(OSError):
            devices.add(os.readlink(descriptor))
    return sorted(filter(_ACCELERATOR.match, devices))
