"""Reads memory and use of the GPUs of this process, with NVIDIA's management library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tfckpt_trainer.machine.nvidia import management_library
from tfckpt_trainer.rundir.records.worker import GpuStatus


class GpuReader:
    """Reads memory and use of the visible GPUs; none if there is no NVIDIA driver."""

    def __init__(self, library: Any = None) -> None:
        """Opens the library.

        Args:
            library: The module `pynvml`; None imports it, if it is installed.
        """
        self._library = library or management_library()

    def read(self) -> list[GpuStatus]:
        """Returns one status for each visible GPU that can be read."""
        if self._library is None:
            return []
        # A failing GPU must neither stop the heartbeat nor hide the other GPUs.
        statuses = (self._status(handle) for handle in self._visible())
        return [status for status in statuses if status is not None]

    def _status(self, handle: Any) -> GpuStatus | None:
        nvml = self._library
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            name = nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError:
            return None
        return GpuStatus(
            name=name.decode() if isinstance(name, bytes) else str(name),
            memory_used=int(memory.used),
            memory_total=int(memory.total),
            use_percent=self._use(handle),
        )

    def _use(self, handle: Any) -> float | None:
        """Returns the use in percent; None for a part of a GPU, which has no such counter."""
        try:
            return float(self._library.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._library.NVMLError:
            return None

    def _visible(self) -> Iterator[Any]:
        """Yields the handles of the GPUs that CUDA shows to this process."""
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            names = [str(number) for number in range(self._count())]
        else:
            names = [name.strip() for name in named.split(",")]
        for name in names:
            handle = self._handle(name)
            if handle is None and named is not None:
                return  # CUDA ignores everything after an invalid name.
            if handle is not None:
                yield handle

    def _count(self) -> int:
        try:
            return int(self._library.nvmlDeviceGetCount())
        except self._library.NVMLError:
            return 0

    def _handle(self, name: str) -> Any:
        """Returns the GPU with a number or a UUID, of which the beginning suffices; or None."""
        nvml = self._library
        try:
            if name.isascii() and name.isdigit():
                return nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.startswith("MIG-"):
                return nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError:
            return None
        return self._handle_by_beginning(name) if name.startswith("GPU-") else None

    def _handle_by_beginning(self, beginning: str) -> Any:
        nvml = self._library
        for number in range(self._count()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                if nvml.nvmlDeviceGetUUID(handle).startswith(beginning):
                    return handle
            except nvml.NVMLError:
                continue
        return None
