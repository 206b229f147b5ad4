"""What a process does that trains for a chief: a worker or a parameter server of a cluster."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import tensorflow as tf

from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.health import is_live
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, WorkerStatus
from tfckpt_trainer.training.process import leave
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

POLL_SECONDS = 0.1
"""How often it is looked whether the chief is gone."""


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> NoReturn:
    """Serves the chief of the cluster until that is gone, and then ends the process.

    SIGTERM is left to the chief: it saves, which needs what is served here, and leaves.

    Args:
        resolver: Tells the cluster, and which task of it this process is.
    """
    # Kept: a server that nobody refers to is stopped.
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        start=True,
    )
    place, index = os.environ.get("TFCKPT_RUN_DIR"), os.environ.get("TFCKPT_WORKER_INDEX")
    if place is None or index is None:
        # Our launcher did not start it: whoever did ends it.
        server.join()
        leave(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run, metrics = RunDirectory(Path(place)), StepMetrics()
    metrics.activity = Activity.SERVING
    heartbeat = Heartbeat(
        run,
        int(index),
        metrics,
        total_steps=None,
        every_beat=lambda: "",
        job=str(resolver.task_type),
    )
    heartbeat.start()
    metrics.ending = _ending_of_chief(run)
    metrics.activity = Activity.EXITED
    heartbeat.stop()
    leave(0)


def _ending_of_chief(run: RunDirectory) -> Ending:
    """Waits until the chief's process is gone; returns what it said at its end."""
    chief: WorkerStatus | None = None
    while chief is None or is_live(chief, time.time()):
        time.sleep(POLL_SECONDS)
        said = load_if_there(run.worker_status(0), WorkerStatus)
        # What a chief of the past left there says nothing of this one.
        if said is not None and is_live(said, time.time()):
            chief = said
    last = load_if_there(run.worker_status(0), WorkerStatus)
    is_its_own = last is not None and last.pid == chief.pid
    return (last.ending if last is not None and is_its_own else None) or Ending.PEER_LOST
