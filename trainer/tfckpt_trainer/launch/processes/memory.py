"""The memory that processes may use, and whether the kernel killed one because it ran out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tfckpt_trainer.rundir.records.failure import OutOfMemory

_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_SLURM_KILL = re.compile(r"^slurmstepd: .*(?:oom[-_]kill|Out Of Memory)")
_LONGEST_FILE = 1 << 16


class MemoryWatch:
    """Counts the processes that the kernel kills for lack of memory, from now on."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        """Reads the counters.

        Args:
            proc: Where the process file system is mounted.
            groups: Where control groups are mounted.
        """
        self._proc = proc
        self._groups = groups
        self._before = self._in_group(), self._on_host()

    @property
    def limit(self) -> int:
        """The memory that a process can use, in bytes: that of the host or of the group."""
        limits = [int(psutil.virtual_memory().total)]
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(ValueError):
                limits += [int(text) for text in self._read_group(name)]
        return min(limits)

    def judge(self) -> OutOfMemory | None:
        """Returns what shows that a process was killed since this object was made."""
        in_group, on_host = self._before
        if self._in_group() > in_group:
            return OutOfMemory.COUNTED
        return OutOfMemory.ON_HOST if self._on_host() > on_host else None

    def _in_group(self) -> int:
        files = [*self._read_group("memory.events"), *self._read_group("memory.oom_control")]
        return sum(map(_kills, files))

    def _on_host(self) -> int:
        return _kills(_read(self._proc / "vmstat"))

    def _read_group(self, name: str) -> Iterator[str]:
        """Yields a file of the control group of this process, of versions 2 and 1."""
        for line in _read(self._proc / "self" / "cgroup").splitlines():
            _, _, after = line.partition(":")
            kinds, _, path = after.partition(":")
            if kinds and "memory" not in kinds.split(","):
                continue
            mount = self._groups / "memory" if kinds else self._groups
            # In a container, the path may be that of the host, which the container does not see.
            text = _read(mount / path.lstrip("/") / name) or _read(mount / name)
            if text:
                yield text


def names_memory_kill(log: str) -> bool:
    """Whether Slurm wrote into the log of a worker that the kernel killed a process of it."""
    return any(_SLURM_KILL.match(line) for line in log.splitlines())


def _kills(text: str) -> int:
    found = _KILLS.search(text)
    return int(found[1]) if found is not None else 0


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_FILE)
    except OSError:
        return ""
