"""A chief, workers and parameter servers: as exact as one process, whatever ends."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest
from steered import SteeredRun
from test_training_exact import steps_of
from training_cluster import SCRIPTS, Cluster

from standby_processes import standby_process
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SHORT = ["--steps", "30", "--save-every", "10"]
BACK = ["--restore-at", "17", "--restore", "ckpt-5"]
THEN_KILLED = ["--die-at", "14", "--die-with", "ckpt-b1-10"]


def coordinated(root, log, *words, workers=2, servers=2):
    arguments = ["--log", str(log), *words]
    return Cluster(
        root, "exact.py", arguments, workers, "parameter-server", parameter_servers=servers
    )


def unordered(run_dir):
    """The level of exactness of a run, and what its workers change in no fixed order."""
    found = load(RunDirectory(run_dir).run_file, RunInfo).exactness
    names = [text.partition(" at exact.py:")[0] for text in found.step.unordered]
    return found.level, sorted(name.rpartition("/")[2] for name in names)


@pytest.mark.parametrize(
    ("workers", "servers", "how"),
    [
        (1, 1, ()),
        *weekly((2, 2, ("--plain",))),
        *weekly((2, 1, ("--plain", "--in-parts"))),
    ],
)
def test_what_follows_a_restore_equals_a_run_that_never_stopped(tmp_path, workers, servers, how):
    root, log, resumed_log = tmp_path / "run", tmp_path / "log", tmp_path / "resumed"
    run = RunDirectory(root)
    often = ["--save-every", "5", *how]
    words = ["--steps", "20", *often, *BACK, *THEN_KILLED]
    with coordinated(root, log, *words, workers=workers, servers=servers) as cluster:
        # Those that serve leave with the chief, however it ended.
        assert cluster.wait() == [-signal.SIGKILL, *[0] * (workers + servers)], cluster.output()
    words = ["--steps", "100000", *often]
    with coordinated(root, resumed_log, *words, workers=workers, servers=servers) as cluster:

        def trains_again():
            pids = {process.pid for process in cluster.processes}
            return any(one.pid in pids and one.step > 20 for one in read_workers(run))

        wait_until(trains_again, 90, "some steps")
        # Without a parameter server the rest leaves.
        cluster.processes[-1].kill()
        left = [75, *[0] * (workers + servers - 1), -signal.SIGKILL]
        assert cluster.wait(MOST_SECONDS) == left, cluster.output()
    uninterrupted = steps_of(log, 0)
    restored = steps_of(log, 0, branch=1)
    assert [restored[step] for step in range(6, 15)] == [
        uninterrupted[step] for step in range(6, 15)
    ]
    resumed = steps_of(resumed_log, 0, branch=1)
    assert min(resumed) == 11
    assert [resumed[step] for step in range(11, 18)] == [
        uninterrupted[step] for step in range(11, 18)
    ]
    assert unordered(root) == ("expected", [])


def test_what_workers_change_in_no_fixed_order_is_named(tmp_path):
    words = ["--steps", "4", "--save-every", "4"]
    with coordinated(tmp_path / "run", tmp_path / "log", *words, servers=1) as cluster:
        assert set(cluster.wait()) == {0}, cluster.output()
    changed = ["_state_var", "moving_mean", "moving_variance", "state"]
    assert unordered(tmp_path / "run") == ("not possible", changed)


@pytest.mark.weekly  # Preemptions are tried with workers, and restores with parameter servers.
def test_heartbeats_tell_who_serves_and_a_preempted_chief_saves_first(tmp_path):
    """Until then, two workers compute what two mirrored replicas do."""
    run, log, other = RunDirectory(tmp_path / "run"), tmp_path / "log", tmp_path / "other"
    with coordinated(run.root, log, "--plain", "--steps", "100000") as cluster:

        def trains():
            found = read_workers(run)
            return len(found) == 5 and found[0].step > 30 and found

        found = wait_until(trains, 90, "all processes at work")
        assert [status.job for status in found] == ["chief", "worker", "worker", "ps", "ps"]
        assert [status.activity for status in found[1:]] == [Activity.SERVING] * 4
        for process in cluster.processes:
            os.kill(process.pid, signal.SIGTERM)
        assert cluster.wait(MOST_SECONDS) == [143, 0, 0, 0, 0], cluster.output()
    saves = [entry for entry in read_entries(run) if entry.kind is EventKind.SAVE]
    steps = steps_of(log, 0)
    assert saves[-1].step in {max(steps), max(steps) + 1}
    assert [status.ending.value for status in read_workers(run)] == ["preempted"] * 5
    assert unordered(run.root) == ("expected", [])

    words = ["--log", str(other), "--plain", *SHORT]
    with Cluster(tmp_path / "mirrored", "exact.py", words, 1, "mirrored") as cluster:
        assert cluster.wait() == [0], cluster.output()
    for step, (loss, *_) in steps_of(other, 0).items():
        found = float.fromhex(steps[step][0])
        assert found == pytest.approx(float.fromhex(loss), rel=1e-4), step


@pytest.mark.weekly
def test_a_chief_is_steered_and_takes_over_from_other_strategies(tmp_path):
    root = tmp_path / "run"
    for strategy, workers in (("mirrored", 1), ("parameter-server", 2), ("multi-worker", 2)):
        with Cluster(root, "steered.py", [], workers, strategy) as cluster:
            run = SteeredRun(cluster)
            run.wait_for_step(5)
            if run.names():
                first = run.ask(CommandKind.RESTORE, name=min(run.names(), key=len))
                assert first.state is CommandState.DONE, first.message
            assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
            saved = run.ask(CommandKind.SAVE)
            assert saved.state is CommandState.DONE, saved.message
            assert run.ask(CommandKind.RESUME).state is CommandState.DONE
            run.progress()
            back = run.ask(CommandKind.RESTORE, name=saved.result["name"])
            assert back.state is CommandState.DONE, back.message
            run.progress()
            assert run.ask(CommandKind.STOP).state is CommandState.DONE
            assert set(cluster.wait()) == {0}, cluster.output()


@pytest.mark.weekly  # Without a supervisor, and asynchronously, each is tried in every run.
def test_whoever_is_killed_the_numbers_stay(tmp_path, monkeypatch):
    """Without a worker the others train on; without a server all start again."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plain, log = tmp_path / "plain", tmp_path / "log"
    with coordinated(tmp_path / "whole", plain, "--plain", *SHORT, servers=1) as cluster:
        assert set(cluster.wait()) == {0}, cluster.output()
    run = RunDirectory(tmp_path / "run")
    command = [sys.executable, str(SCRIPTS / "exact.py"), "--plain", *SHORT, "--log", str(log)]
    command += ["--strategy", "parameter-server", "--hold-at", "15", "25", "28"]
    options = LaunchOptions(
        run_directory=str(run.root),
        command=tuple(command),
        working_directory=str(tmp_path),
        workers=2,
        parameter_servers=1,
        pause_seconds=0.1,
    )
    worker, server = 1, 3
    launch(options)
    try:
        for killed, saved, held in ((worker, "ckpt-10", 15), (server, "ckpt-20", 25)):
            wait_until((run.root / f"{saved}.index").exists, 90, saved)
            standby = standby_process(run)
            pids = [process.pid for process in read_supervisor(run).workers]
            again = {worker} if killed == worker else {*range(len(pids))}
            os.kill(pids[killed], signal.SIGKILL)
            log.with_name(f"log-hold-{held}").touch()

            def others(pids=pids, again=again):
                found = [process.pid for process in read_supervisor(run).workers]
                changed = {i for i, pid in enumerate(found) if pid != pids[i]}
                return found if changed == again else None

            started = wait_until(others, 90, "other processes")
            if sys.platform == "linux":
                assert {psutil.Process(started[i]).ppid() for i in again} == {standby.pid}
        log.with_name("log-hold-28").touch()
        ended = {SupervisorState.FINISHED, SupervisorState.FAILED}
        wait_until(lambda: read_supervisor(run).state in ended, 120, "the end")
        assert read_supervisor(run).state is SupervisorState.FINISHED
    finally:
        stop_supervisor(run, 0)
    lost = [entry for entry in read_entries(run) if entry.kind is EventKind.WORKER_LOST]
    found = [entry.details["worker"] for entry in lost if entry.by == "supervisor"]
    assert found == [worker, server]
    assert steps_of(log, 0, first_only=False) == steps_of(plain, 0)


@pytest.mark.parametrize(("processors", "threads"), [(1, 5), (4, 5), (64, 64)])
def test_each_task_can_wait_for_all_others_at_once(monkeypatch, processors, threads):
    import tensorflow as tf

    from tfckpt_trainer.training.start.strategies import threads_of_calls

    jobs = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}
    spec = tf.train.ClusterSpec(jobs)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec)
    assert threads_of_calls(resolver) == threads
