"""Finds the process from which a supervisor forks workers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil

from tfckpt_trainer.launch.local.standby import MODULE
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from waiting import wait_until


def _handles_ends_of_children(pid: int) -> bool:
    """Whether a process handles SIGCHLD; a standby process does so once it has imported all."""
    status = Path(f"/proc/{pid}/status").read_text()
    handled = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(handled >> (signal.SIGCHLD - 1) & 1)


def standby_process(run: RunDirectory) -> psutil.Process:
    """Returns the standby process of a run, once it has imported all."""
    supervisor = psutil.Process(read_supervisor(run).pid)

    def ready() -> psutil.Process | None:
        for child in supervisor.children():
            if MODULE in child.cmdline() and _handles_ends_of_children(child.pid):
                return child if child.status() == psutil.STATUS_SLEEPING else None
        return None

    return wait_until(ready, 90, "a standby process")
