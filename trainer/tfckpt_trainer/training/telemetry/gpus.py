"""Reads memory and use of the GPUs of this process, with NVIDIA's management library."""

from __future__ import annotations

import os
from typing import Any

from tfckpt_trainer.rundir.records.worker import GpuStatus


class GpuReader:
    """Reads memory and use of the visible GPUs; none if there is no NVIDIA driver."""

    def __init__(self) -> None:
        self._library = _nvml()

    def read(self) -> list[GpuStatus]:
        """Returns one status for each visible GPU."""
        if self._library is None:
            return []
        nvml = self._library
        try:
            return self._read_all(nvml)
        except nvml.NVMLError:
            # A failing GPU must not stop the heartbeat.
            return []

    def _read_all(self, nvml: Any) -> list[GpuStatus]:
        statuses = []
        for number in _visible(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            statuses.append(
                GpuStatus(
                    name=str(nvml.nvmlDeviceGetName(handle)),
                    memory_used=int(memory.used),
                    memory_total=int(memory.total),
                    use_percent=float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                )
            )
        return statuses


def _nvml() -> Any:
    """Returns NVIDIA's management library; None if it or the driver is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _visible(count: int) -> list[int]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(count))
    numbers = [int(part) for part in named.split(",") if part.strip().isdigit()]
    return [number for number in numbers if number < count]
