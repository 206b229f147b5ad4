"""Creates a `tf.distribute` strategy in the one order of calls that TensorFlow accepts."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.liveness import refuse_another_trainer
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.processes import process_namespace
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.reserve import explain_disk_errors
from tfckpt_trainer.strategy_names import StrategyName
from tfckpt_trainer.training.export import export_asked
from tfckpt_trainer.training.process import termination_kept
from tfckpt_trainer.training.serving import serve

PEER_SECONDS = 10.0
"""Silence of a worker after which the others give up, where the launcher says nothing else.

TensorFlow's default depends on load.
"""

TPU_SECONDS = 10.0
"""How long the address of a TPU may take to answer."""

START_SECONDS = 60.0
"""How long a start may take between two heartbeats; the process itself is watched meanwhile."""


def create_strategy(
    name: StrategyName | str, *, replicas: int = 2, threads: int | None = None
) -> tf.distribute.Strategy:
    """Returns a strategy; call it before any other operation of TensorFlow.

    Args:
        name: Which. `multi-worker` and `parameter-server` read `TF_CONFIG`, which the launcher
            sets; `tpu` reads `TPU_NAME`, and without it takes the TPU of this machine. With
            `parameter-server` it returns in the chief alone: the other processes serve it until
            it is gone, and end here.
        replicas: For `mirrored` on a machine without GPUs: logical CPU devices to make.
        threads: Threads within one operation. Results depend on it: runs that are compared
            bit by bit have the same number. None leaves the choice to TensorFlow.

    Raises:
        UsageError: The name is unknown, `TF_CONFIG` is missing, or there is no TPU.
    """
    try:
        chosen = StrategyName(name)
    except ValueError:
        known = ", ".join(member.value for member in StrategyName)
        raise UsageError(f"{name!r} is no strategy known here; choose one of {known}.") from None
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if export_asked() is not None:
        # An export is the work of one process, on whatever the run was trained.
        return tf.distribute.OneDeviceStrategy("/CPU:0")
    announce_start()
    if chosen is StrategyName.ONE_DEVICE:
        return tf.distribute.OneDeviceStrategy(_first_device())
    if chosen is StrategyName.MIRRORED:
        return tf.distribute.MirroredStrategy(_mirrored_devices(replicas))
    if chosen is StrategyName.TPU:
        return _tpu_strategy()
    if chosen is StrategyName.PARAMETER_SERVER:
        return _parameter_server_strategy()
    _configure_failure_detection()
    with termination_kept():
        return tf.distribute.MultiWorkerMirroredStrategy()


def _parameter_server_strategy() -> tf.distribute.Strategy:
    if not _jobs().keys() >= {"chief", "worker", "ps"}:
        raise UsageError(
            "The parameter server strategy needs TF_CONFIG with a chief, workers and parameter "
            "servers; start the script with `tfckpt-tui launch RUN --workers N "
            "--parameter-servers M -- python SCRIPT`, which sets it."
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        serve(resolver)
    with termination_kept():
        return tf.distribute.ParameterServerStrategy(resolver)


def announce_start() -> None:
    """Writes a first heartbeat: a multi-worker strategy waits for all workers when it is made.

    Without it nobody could tell which one does not come. It is for workers that our launcher
    started; others are known only once they train.
    """
    run_dir, index = os.environ.get("TFCKPT_RUN_DIR"), os.environ.get("TFCKPT_WORKER_INDEX")
    if run_dir is None or index is None:
        return
    run = RunDirectory(Path(os.path.realpath(run_dir)))
    with explain_disk_errors(run):
        run.create()
        refuse_another_trainer(run, int(index))
        store(
            run.worker_status(int(index)),
            WorkerStatus(
                index=int(index),
                host=socket.gethostname(),
                pid=os.getpid(),
                namespace=process_namespace(),
                process_started_at=psutil.Process().create_time(),
                updated_at=time.time(),
                interval_seconds=START_SECONDS,
                activity=Activity.STARTING,
                step=0,
                detail="Waiting for all workers to come up.",
            ),
            durable=False,
        )


def _tpu_strategy() -> tf.distribute.Strategy:
    name = os.environ.get("TPU_NAME", "local")
    try:
        _check_reachable(name)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        why = str(error).splitlines()[0][:200]
        raise UsageError(
            f"There is no TPU that could be used as {name!r} ({why}). On a TPU virtual machine "
            "leave TPU_NAME unset; elsewhere set it to the TPU's name or to grpc://HOST:PORT. "
            "Without a TPU choose another strategy."
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def _check_reachable(name: str) -> None:
    """Makes sure that an address answers: TensorFlow would wait for it for ever.

    Raises:
        OSError: It does not.
        ValueError: It is no address.
    """
    if name.startswith("grpc://"):
        address = urlsplit(name)
        socket.create_connection((address.hostname, address.port), TPU_SECONDS).close()


def _first_device() -> str:
    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"


def _mirrored_devices(replicas: int) -> list[str] | None:
    if tf.config.list_physical_devices("GPU"):
        return None
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    )
    return [f"/CPU:{index}" for index in range(replicas)]


def _configure_failure_detection() -> None:
    """Makes survivors notice a dead worker within the time that the launcher says.

    The strategy keeps this configuration if it is there before it. There is no public API.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.eager import context

    jobs = _jobs()
    if not jobs:
        raise UsageError(
            "The multi-worker strategy needs TF_CONFIG in the environment; start the script "
            "with `tfckpt-tui launch RUN --workers N -- python SCRIPT`, which sets it."
        )
    leader = "chief" if "chief" in jobs else "worker"
    context.context().configure_coordination_service(
        "standalone",
        service_leader=f"/job:{leader}/replica:0/task:0",
        heartbeat_timeout_in_ms=round(1000 * _peer_seconds()),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=job, num_tasks=count)
            for job, count in jobs.items()
        ],
    )


def _peer_seconds() -> float:
    return float(os.environ.get("TFCKPT_PEER_SECONDS", PEER_SECONDS))


def _jobs() -> dict[str, int]:
    """Returns how many processes of each job `TF_CONFIG` names; none where it makes no sense."""
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        return {job: len(addresses) for job, addresses in cluster.items()}
    except (KeyError, ValueError, AttributeError):
        return {}
