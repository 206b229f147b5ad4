"""NVIDIA's management library: what the driver tells of GPUs, without CUDA."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any


@cache
def management_library() -> Any:
    """Returns the module `pynvml`; None if it or the driver is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu_memory_by_process(library: Any = None) -> Counter[int]:
    """Returns the bytes that processes hold on all GPUs of this host, by process ID.

    Args:
        library: The module `pynvml`; None takes it if it is installed.
    """
    nvml = library or management_library()
    held: Counter[int] = Counter()
    if nvml is None:
        return held
    try:
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                # Not every driver tells it.
                if process.usedGpuMemory is not None:
                    held[process.pid] += process.usedGpuMemory
    except nvml.NVMLError:
        # What a broken GPU holds is unknown, and so are the sums.
        return Counter()
    return held
