"""A process that writes the heartbeat of a worker, as a trainer does, and does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from requirements import require
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from waiting import wait_until

_SCRIPT = """
import os, socket, sys, time
from contextlib import suppress
from pathlib import Path
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import own_process
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus

run = RunDirectory(Path(sys.argv[1]))
parent = os.getppid()
while os.getppid() == parent:
    status = WorkerStatus(
        index=int(sys.argv[2]), host=socket.gethostname(), **own_process()._asdict(),
        updated_at=time.time(),
        interval_seconds=float(sys.argv[3]), activity=Activity.TRAINING, step=1,
        namespace=process_namespace(),
    )
    with suppress(OSError):
        store(run.worker_status(status.index), status, durable=False)
    time.sleep(0.3 * status.interval_seconds)
"""


@contextmanager
def beating(
    run: RunDirectory,
    index: int = 0,
    *,
    hidden: bool = False,
    interval: float = 1.0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """Starts one; yields the number of the process that has to be killed to end it.

    Args:
        run: The run directory.
        index: Which worker it is.
        hidden: Whether it lives in a PID namespace of its own, as in a container.
        interval: The seconds between its heartbeats.
        environment: Variables of it, beside those of this process.
    """
    run.create()
    words = [sys.executable, "-c", _SCRIPT, str(run.root), str(index), str(interval)]
    if hidden:
        words = [*_unshare(), *words]
    process = subprocess.Popen(words, start_new_session=True, env={**os.environ, **environment})
    try:
        wait_until(lambda: _beats(run, index), 30, "a first heartbeat")
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end(pid: int) -> None:
    """Kills one and waits until it is gone."""
    os.killpg(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _beats(run: RunDirectory, index: int) -> bool:
    path: Path = run.worker_status(index)
    return load_if_exists(path, WorkerStatus) is not None


def _unshare() -> list[str]:
    require("process namespaces")
    return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
