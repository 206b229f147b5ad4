"""Which processes a process number speaks of: those of one PID namespace since one boot."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def process_namespace() -> str:
    """Names the processes that this one can see by their numbers; empty where it is unknown."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return f"{boot}:{os.stat(_NAMESPACE).st_ino}"
    except (OSError, UnicodeDecodeError):
        return ""


def is_seen_from_here(status: WorkerStatus | SupervisorStatus) -> bool:
    """Whether the process of a heartbeat is among those that this process can see, if it lives.

    Containers share a host name and have process numbers of their own. Where the heartbeat names
    no namespace, as those of version 0.1, the name of the host decides.
    """
    return is_seen(status.host, status.namespace)


def is_seen(host: str, namespace: str) -> bool:
    """Whether processes of `host` and `namespace` can be seen from here by their numbers."""
    here = process_namespace()
    if namespace and here:
        return namespace == here
    return host == socket.gethostname()
