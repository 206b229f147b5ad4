"""Runs a worker or a parameter server that serves the chief of a parameter server cluster."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import tensorflow as tf

from tfckpt_trainer.cluster.chief import wait_for_end_of_chief
from tfckpt_trainer.cluster.slurm import task_count
from tfckpt_trainer.rundir.heartbeats.health import is_live
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.training.process.signals_and_exit import leave
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

POLL_SECONDS = 0.1
"""Interval at which the process of the chief is checked."""


def threads_of_calls(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> int:
    """Returns how many operations a task runs at once, of which some wait for other tasks.

    TensorFlow takes one for each processor. With fewer than one for each task and one more, as its
    guide to parameter servers says, tasks wait for each other forever.
    """
    spec = resolver.cluster_spec()
    tasks: int = sum(spec.num_tasks(job) for job in spec.jobs)
    return max(tasks + 1, os.cpu_count() or 1)


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> NoReturn:
    """Serves the chief until the chief exits, and then exits too.

    Ignores SIGTERM: the chief handles it and needs this process to save a checkpoint.

    Args:
        resolver: Describes the cluster and the task of this process.
    """
    # TensorFlow stops a server that is not referenced.
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads_of_calls(resolver)),
        start=True,
    )
    place, index = os.environ.get("TFCKPT_RUN_DIR"), os.environ.get("TFCKPT_WORKER_INDEX")
    if place is None or index is None:
        if task_count(os.environ) > 1:
            # Nobody else would end this task of Slurm.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            wait_for_end_of_chief(resolver.cluster_spec().task_address("chief", 0))
        else:
            # Whoever started this process stops it.
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
    """Waits until the process of the chief exits; returns its ending."""
    chief: WorkerStatus | None = None
    while chief is None or is_live(chief, time.time()):
        time.sleep(POLL_SECONDS)
        said = load_if_exists(run.worker_status(0), WorkerStatus)
        # Ignores the heartbeat of an earlier chief.
        if said is not None and is_live(said, time.time()):
            chief = said
    last = load_if_exists(run.worker_status(0), WorkerStatus)
    is_its_own = last is not None and last.pid == chief.pid
    return (last.ending if last is not None and is_its_own else None) or Ending.PEER_LOST
