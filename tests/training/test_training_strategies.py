"""Which strategy a script gets, and what it is told where there is none."""

from __future__ import annotations

import os

import pytest
from training_cluster import SCRIPTS, Cluster

from reserved_ports import reserved_ports
from tensorflow_processes import TensorFlowProcess, run_with_tensorflow
from tfckpt_trainer.cluster.tasks import Task, cluster_of, tasks, tf_config
from tfckpt_trainer.launch.processes.cluster import addresses
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Phase
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def message_of(name, *communication, **environment):
    done = run_with_tensorflow(SCRIPTS / "new_strategy.py", name, *communication, **environment)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "'local'"),
        ({"TPU_NAME": "no-such-tpu"}, "'no-such-tpu'"),
        ({"TPU_NAME": "grpc://127.0.0.1:{port}"}, "'grpc://127.0.0.1:"),
        ({"TPU_NAME": "grpc://nonsense"}, "'grpc://nonsense'"),
    ],
)
def test_without_a_tpu_one_message_says_what_was_looked_for(environment, named):
    with reserved_ports(1) as (port,):
        message = message_of("tpu", **{k: v.format(port=port) for k, v in environment.items()})
    assert f"No usable TPU found as {named}" in message
    assert "choose another strategy" in message


def test_an_unknown_strategy_is_told_of_with_all_there_are():
    message = message_of("horovod")
    assert "Unknown strategy 'horovod'" in message
    assert "one-device, mirrored, multi-worker, parameter-server, tpu" in message


def test_several_workers_without_a_cluster_are_told_how_to_get_one():
    message = message_of("multi-worker", TF_CONFIG="")
    assert "needs TF_CONFIG" in message


@pytest.mark.parametrize("text", ["soon", "0", "nan"])
def test_an_invalid_time_for_lost_peers_is_refused(text):
    with reserved_ports(1) as ports:
        (member,) = tasks(1, 0)
        cluster = tf_config(cluster_of([member], addresses(ports)), member)
        message = message_of("multi-worker", TF_CONFIG=cluster, TFCKPT_PEER_SECONDS=text)
    assert f"TFCKPT_PEER_SECONDS is {text!r}; expected a number of seconds" in message


def test_parameter_servers_without_a_cluster_are_told_how_to_get_one():
    message = message_of("parameter-server", TF_CONFIG="")
    assert "needs TF_CONFIG with a chief, workers and parameter servers" in message
    assert "--parameter-servers M" in message


@pytest.mark.parametrize("strategy", ["multi-worker", "parameter-server"])
def test_an_evaluator_is_told_to_read_checkpoints_instead(strategy):
    members = [*tasks(1, 1), Task("evaluator", 0)]
    cluster = cluster_of(members[:-1], addresses([1, 2, 3]))
    message = message_of(strategy, TF_CONFIG=tf_config(cluster, members[-1]))
    assert "TF_CONFIG makes this process an evaluator" in message
    assert "tf.train.checkpoints_iterator" in message


def test_a_pod_without_its_index_is_told_what_is_missing():
    message = message_of("multi-worker", TF_CONFIG="", TFCKPT_SERVICE="train")
    assert "JOB_COMPLETION_INDEX is missing" in message


def test_a_worker_is_heard_while_it_waits_for_others(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with reserved_ports(1) as (port,), open(tmp_path / "log", "wb") as log:
        # A pod of an indexed Job, whose other pod never starts.
        pod = {
            **os.environ,
            "HOSTNAME": "train-1",
            "JOB_COMPLETION_INDEX": "1",
            "TFCKPT_SERVICE": "train.invalid",
            "TFCKPT_WORKER_COUNT": "2",
            "TFCKPT_PORT": str(port),
            "TFCKPT_RUN_DIR": str(run.root),
        }
        process = TensorFlowProcess([SCRIPTS / "new_strategy.py", "multi-worker"], pod, log)
        try:
            (worker,) = wait_until(lambda: read_workers(run), 60, "a heartbeat")
        finally:
            process.kill()
            process.wait()
    assert (worker.index, worker.pid, worker.activity) == (1, process.pid, Activity.STARTING)
    assert worker.phase is Phase.JOIN


@pytest.mark.parametrize("loop", ["custom", *weekly("fit")])
def test_a_replica_is_compiled_for_a_device_that_reaches_no_variable_elsewhere(tmp_path, loop):
    done = run_with_tensorflow(SCRIPTS / "compiled_replicas.py", tmp_path / "run", loop)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "ckpt-6.index").exists()


@pytest.mark.parametrize(
    ("strategy", "workers", "communication"),
    [("multi-worker", 2, "ring"), *weekly(("multi-worker", 2, ""), ("mirrored", 1, ""))],
)
def test_gradients_that_overflow_on_one_replica_are_applied_on_none(
    tmp_path, strategy, workers, communication
):
    chosen = {"TFCKPT_COMMUNICATION": communication}
    run = tmp_path / "run"
    with Cluster(run, "loss_scaling.py", [], workers, strategy, environment=chosen) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
        assert cluster.output().count("updates 2, scale 4.0, finite True") == workers
        if strategy == "multi-worker":
            used = f"CommunicationImplementation.{(communication or 'auto').upper()}"
            assert cluster.output().count(used) == workers


def test_an_unknown_communication_is_refused_with_those_there_are():
    message = message_of("multi-worker", TFCKPT_COMMUNICATION="mpi")
    assert "TFCKPT_COMMUNICATION is 'mpi'; expected auto, ring or nccl." in message


@pytest.mark.parametrize("strategy", ["mirrored", *weekly("one-device", "tpu", "parameter-server")])
def test_a_communication_is_refused_for_a_strategy_that_has_none(strategy):
    message = message_of(strategy, "RING")
    assert f"communication has no effect on the strategy {strategy!r}" in message
    assert "choose multi-worker" in message
