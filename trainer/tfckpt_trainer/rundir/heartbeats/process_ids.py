"""Decides whether the process IDs of another process are valid for this one.

A process ID identifies a process only within one PID namespace and one boot of a machine.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt_trainer.rundir.records.run import SupervisorStatus
    from tfckpt_trainer.rundir.records.worker import WorkerStatus

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def process_namespace() -> str:
    """Returns an identifier of this boot and PID namespace; empty if unknown."""
    return _namespace_of(os.getpid())


@lru_cache(maxsize=1)
def _namespace_of(_own_pid: int) -> str:
    """Reads it once: a process stays in its namespace, and only a forked one may be in another."""
    try:
        # To read it as text would import a codec.
        boot = _BOOT_ID.read_bytes().decode("ascii").strip()
        return f"{boot}:{os.stat(_NAMESPACE).st_ino}"
    except (OSError, UnicodeDecodeError):
        return ""


def host_name() -> str:
    """Returns the name of this machine; `socket.gethostname` is the same, but slow to import."""
    return os.uname().nodename


def process_of(status: WorkerStatus | SupervisorStatus) -> tuple[str, str, int]:
    """Returns which process wrote a heartbeat, among those that live.

    Without the time of its start: that is another one after the clock was set.
    """
    return status.host, status.namespace, status.pid


def is_pid_valid_here(status: WorkerStatus | SupervisorStatus) -> bool:
    """Whether the process ID in a heartbeat is valid for this process."""
    return are_pids_valid_here(status.host, status.namespace)


def are_pids_valid_here(host: str, namespace: str) -> bool:
    """Whether process IDs of `host` and `namespace` are valid for this process.

    Containers may share a host name but have their own process IDs. Without a namespace, which
    not every system tells, the host name decides.
    """
    here = process_namespace()
    if namespace and here:
        return namespace == here
    return host == host_name()
