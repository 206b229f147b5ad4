"""Creates `tf.distribute` strategies, with the calls in the order that TensorFlow requires."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import tensorflow as tf

from tfckpt_trainer.cluster.chief import wait_for_end_of_chief
from tfckpt_trainer.cluster.indexed_job import cluster_of_indexed_job
from tfckpt_trainer.cluster.slurm import own_gpus, read_step, slurm_tf_config, task_count
from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.heartbeats.attention import Attention
from tfckpt_trainer.rundir.heartbeats.health import is_live
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.training.loop.export import export_request_path
from tfckpt_trainer.training.process.signals_and_exit import defer_sigterm, leave
from tfckpt_trainer.training.start.start_heartbeat import report_start
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

POLL_SECONDS = 0.1
"""Interval at which the process of the chief is checked."""

PEER_SECONDS = 10.0
"""Default time for which the network between workers may fail without a restart.

The launcher can override it with TFCKPT_PEER_SECONDS. TensorFlow allows at most 20 s: then its
connections are closed.
"""

TIMEOUT_PER_PEER_SECOND = 4.0
"""Timeout of TensorFlow's heartbeats for each second of a network failure to survive.

After a failure of N seconds, TCP sends again after up to 2 N seconds. A heartbeat may take half
the timeout.
"""

TPU_SECONDS = 10.0
"""Timeout of the connection to a TPU."""


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
        attention=Attention(run, asks=True),
        every_second=lambda _: "",
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


def create_strategy(
    name: StrategyName | str,
    *,
    replicas: int = 2,
    threads: int | None = None,
    parameter_servers: int = 1,
    variable_partitioner: tf.distribute.experimental.partitioners.Partitioner | None = None,
    communication: tf.distribute.experimental.CommunicationOptions | None = None,
) -> tf.distribute.Strategy:
    """Returns a strategy. Call this before any TensorFlow operation.

    Args:
        name: Name of the strategy. `multi-worker` and `parameter-server` read `TF_CONFIG`, which
            the launcher sets. Without it, they connect the tasks that Slurm's `srun` started, and
            `multi-worker` the pods of an indexed Job of Kubernetes, by `TFCKPT_SERVICE` and
            `TFCKPT_WORKER_COUNT`. `tpu` reads `TPU_NAME`; without it, the TPU of this machine is
            used. With `parameter-server`, this returns in the chief only: the other processes
            serve the chief and exit with it.
        replicas: Number of logical CPU devices for `mirrored` on a machine without GPUs.
        threads: Threads within one operation; None lets TensorFlow choose. Results depend on the
            number: use the same one for runs that you compare bit by bit.
        parameter_servers: Number of Slurm's tasks that are parameter servers, with
            `parameter-server` and without `TF_CONFIG`. They are the last tasks; the first one is
            the chief.
        variable_partitioner: Divides large variables among the parameter servers, with
            `parameter-server`; such as `FixedShardsPartitioner`, `MinSizePartitioner` and
            `MaxSizePartitioner` of `tf.distribute.experimental.partitioners`.
        communication: How the workers of `multi-worker` reduce values; by default with the
            implementation that `TFCKPT_COMMUNICATION` names: `auto`, `ring` or `nccl`.

    Raises:
        UsageError: The name is unknown, there is no TPU, neither `TF_CONFIG` nor Slurm describes a
            cluster, or this process is an evaluator.
    """
    try:
        chosen = StrategyName(name)
    except ValueError:
        names = ", ".join(member.value for member in StrategyName)
        raise UsageError(f"Unknown strategy {name!r}. Choose one of {names}.") from None
    if communication is not None and chosen is not StrategyName.MULTI_WORKER:
        raise UsageError(
            f"communication has no effect on the strategy {chosen.value!r}. Leave it out, or "
            "choose multi-worker."
        )
    if variable_partitioner is not None and chosen is not StrategyName.PARAMETER_SERVER:
        raise UsageError(
            f"variable_partitioner has no effect on the strategy {chosen.value!r}. Leave it out, "
            "or choose parameter-server."
        )
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if export_request_path() is not None:
        # An export runs in one process, whatever the strategy of the run is.
        return tf.distribute.OneDeviceStrategy("/CPU:0")
    if chosen.has_cluster:
        _refuse_evaluator()
        _use_slurm(parameter_servers if chosen is StrategyName.PARAMETER_SERVER else 0)
    if chosen is StrategyName.MULTI_WORKER and not os.environ.get("TF_CONFIG"):
        os.environ.update(cluster_of_indexed_job(os.environ))
    report_start(Phase.JOIN if chosen.has_cluster else Phase.PREPARE)
    strategy = _new_strategy(chosen, replicas, communication, variable_partitioner)
    report_start(Phase.BUILD)
    return strategy


def _new_strategy(
    chosen: StrategyName,
    replicas: int,
    communication: tf.distribute.experimental.CommunicationOptions | None,
    partitioner: tf.distribute.experimental.partitioners.Partitioner | None,
) -> tf.distribute.Strategy:
    if chosen is StrategyName.ONE_DEVICE:
        return tf.distribute.OneDeviceStrategy(_first_device())
    if chosen is StrategyName.MIRRORED:
        return tf.distribute.MirroredStrategy(_mirrored_devices(replicas))
    if chosen is StrategyName.TPU:
        return _tpu_strategy()
    if chosen is StrategyName.PARAMETER_SERVER:
        return _parameter_server_strategy(partitioner)
    options = communication or _communication()
    _configure_failure_detection()
    with defer_sigterm():
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _communication() -> tf.distribute.experimental.CommunicationOptions:
    text = os.environ.get("TFCKPT_COMMUNICATION") or "auto"
    try:
        named = tf.distribute.experimental.CommunicationImplementation(text.upper())
    except ValueError:
        raise UsageError(
            f"TFCKPT_COMMUNICATION is {text!r}; expected auto, ring or nccl."
        ) from None
    return tf.distribute.experimental.CommunicationOptions(implementation=named)


def _refuse_evaluator() -> None:
    """Refuses a task that is no part of the cluster."""
    if _task_type() == "evaluator":
        raise UsageError(
            "TF_CONFIG makes this process an evaluator, which takes no part in training. Evaluate "
            "in a script of its own, without a strategy: it restores the checkpoints of the run as "
            "they come, with tf.train.checkpoints_iterator."
        )


def _use_slurm(parameter_servers: int) -> None:
    """Sets `TF_CONFIG` and the visible GPUs in a task that Slurm started, if nothing else did."""
    if "TF_CONFIG" in os.environ:
        return
    step = read_step(os.environ)
    if step is None:
        return
    os.environ["TF_CONFIG"] = slurm_tf_config(step, parameter_servers)
    gpus = own_gpus(os.environ)
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def _parameter_server_strategy(
    partitioner: tf.distribute.experimental.partitioners.Partitioner | None,
) -> tf.distribute.Strategy:
    if not _jobs().keys() >= {"chief", "worker", "ps"}:
        raise UsageError(
            "The parameter server strategy needs TF_CONFIG with a chief, workers and parameter "
            "servers. Start the script with `tfckpt-tui launch RUN --workers N "
            "--parameter-servers M -- python SCRIPT`, which sets TF_CONFIG, or with Slurm's "
            "`srun python SCRIPT`."
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        serve(resolver)
    if not tf.config.threading.get_inter_op_parallelism_threads():
        tf.config.threading.set_inter_op_parallelism_threads(threads_of_calls(resolver))
    with defer_sigterm():
        return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


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
            f"No usable TPU found as {name!r} ({why}). On a TPU virtual machine, leave TPU_NAME "
            "unset. Elsewhere, set it to the name of the TPU or to grpc://HOST:PORT. Without a "
            "TPU, choose another strategy."
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def _check_reachable(name: str) -> None:
    """Checks that a TPU address accepts connections. TensorFlow itself would wait forever.

    Raises:
        OSError: The connection failed.
        ValueError: The address is invalid.
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
    """Sets the time after which other workers notice a lost worker.

    There is no public API for it. The strategy keeps a configuration that exists before it.
    """
    from tensorflow.python.eager import context

    jobs = _jobs()
    if not jobs:
        raise UsageError(
            "The multi-worker strategy needs TF_CONFIG in the environment. Start the script with "
            "`tfckpt-tui launch RUN --workers N -- python SCRIPT`, which sets TF_CONFIG, or with "
            "Slurm's `srun python SCRIPT`."
        )
    leader = "chief" if "chief" in jobs else "worker"
    context.context().configure_coordination_service(
        "standalone",
        service_leader=f"/job:{leader}/replica:0/task:0",
        heartbeat_timeout_in_ms=round(1000 * (1 + TIMEOUT_PER_PEER_SECOND * _peer_seconds())),
        coordinated_jobs=[
            # The module of this message has moved between releases of TensorFlow.
            context.coordination_config_pb2.CoordinatedJob(name=job, num_tasks=count)
            for job, count in jobs.items()
        ],
    )


def _peer_seconds() -> float:
    text = os.environ.get("TFCKPT_PEER_SECONDS") or str(PEER_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"TFCKPT_PEER_SECONDS is {text!r}; expected a number of seconds above 0.")
    return seconds


def _task_type() -> str:
    """Returns the job of this process in `TF_CONFIG`; empty if it is missing or invalid."""
    try:
        return str(json.loads(os.environ["TF_CONFIG"])["task"]["type"])
    except (KeyError, ValueError, TypeError):
        return ""


def _jobs() -> dict[str, int]:
    """Returns the number of tasks per job in `TF_CONFIG`; empty if it is missing or invalid."""
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        return {job: len(addresses) for job, addresses in cluster.items()}
    except (KeyError, ValueError, AttributeError):
        return {}
