from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import psutil
import pytest
from msgspec.structs import replace

from tfckpt_trainer.rundir.heartbeats.attention import IDLE_LOST_SECONDS, IDLE_SECONDS
from tfckpt_trainer.rundir.heartbeats.health import (
    RunState,
    WorkerState,
    run_state,
    with_started,
    worker_state,
)
from tfckpt_trainer.rundir.heartbeats.process_table import (
    find_process,
    own_process,
    process_lives,
    runs_since,
)
from tfckpt_trainer.rundir.records.process import ProcessIdentity
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase, WorkerStatus
from waiting import wait_until

NOW = 1_000_000.0

RARE = {
    "host": "elsewhere",
    "interval_seconds": IDLE_SECONDS,
    "lost_after_seconds": IDLE_LOST_SECONDS,
    "step_seconds": 0.1,
}
"""A heartbeat that is written while nobody looks."""


def a_worker(**changes):
    fields = {
        "index": 0,
        "host": socket.gethostname(),
        "pid": 1,
        "process_started_at": 0.0,
        "updated_at": NOW,
        "interval_seconds": 1.0,
        "activity": Activity.TRAINING,
        "step": 10,
    }
    return WorkerStatus(**{**fields, **changes})


def a_supervisor(state):
    return SupervisorStatus(
        pid=2,
        host=socket.gethostname(),
        process_started_at=0.0,
        updated_at=NOW,
        interval_seconds=1.0,
        state=state,
    )


def alive(_process):
    return True


def dead(_process):
    return False


@pytest.mark.parametrize(
    ("changes", "lives", "expected"),
    [
        ({}, alive, WorkerState.TRAINING),
        ({}, dead, WorkerState.LOST),
        ({"updated_at": NOW - 6}, alive, WorkerState.LOST),
        ({"updated_at": NOW - 4}, alive, WorkerState.TRAINING),
        ({"host": "elsewhere"}, dead, WorkerState.TRAINING),
        ({"host": "elsewhere", "updated_at": NOW - 6}, alive, WorkerState.LOST),
        ({"activity": Activity.EXITED}, dead, WorkerState.EXITED),
        ({"activity": Activity.PAUSED, "last_step_at": 1.0}, alive, WorkerState.PAUSED),
        ({"last_step_at": NOW - 11, "step_seconds": 0.1}, alive, WorkerState.STALLED),
        ({"last_step_at": NOW - 11, "step_seconds": 1.0}, alive, WorkerState.TRAINING),
        ({"updated_at": NOW + 3600}, alive, WorkerState.TRAINING),
        ({**RARE, "updated_at": NOW - 14}, alive, WorkerState.TRAINING),
        ({**RARE, "updated_at": NOW - 15}, alive, WorkerState.LOST),
        ({**RARE, "updated_at": NOW - 9, "last_step_at": NOW - 11}, alive, WorkerState.TRAINING),
        ({**RARE, "updated_at": NOW - 9, "last_step_at": NOW - 20}, alive, WorkerState.STALLED),
    ],
)
def test_the_state_of_a_worker(changes, lives, expected):
    assert worker_state(a_worker(**changes), NOW, lives) is expected


@pytest.mark.parametrize(
    ("states", "supervisor", "lives", "expected"),
    [
        ([], None, alive, RunState.UNATTENDED),
        ([], SupervisorState.RUNNING, alive, RunState.STARTING),
        (["training", "training"], None, alive, RunState.TRAINING),
        (["training", "serving", "serving"], None, alive, RunState.TRAINING),
        (["paused", "serving"], None, alive, RunState.PAUSED),
        (["training", "serving", "lost"], SupervisorState.RUNNING, alive, RunState.DEGRADED),
        (["training", "lost"], SupervisorState.RUNNING, alive, RunState.DEGRADED),
        (["lost", "lost"], SupervisorState.RUNNING, alive, RunState.DEGRADED),
        (["lost", "lost"], None, alive, RunState.FAILED),
        (["training", "starting"], None, alive, RunState.STARTING),
        (["paused", "paused"], None, alive, RunState.PAUSED),
        (["training", "stalled"], None, alive, RunState.DEGRADED),
        (["lost", "training"], SupervisorState.RESTARTING, alive, RunState.RESTARTING),
        (["exited", "lost"], SupervisorState.FAILED, dead, RunState.FAILED),
        (["exited", "exited"], SupervisorState.FINISHED, dead, RunState.FINISHED),
        (["exited", "lost"], SupervisorState.FAILED, alive, RunState.FAILED),
        ([], SupervisorState.FINISHED, alive, RunState.FINISHED),
        (["training", "training"], SupervisorState.RUNNING, dead, RunState.TRAINING),
    ],
)
def test_the_state_of_a_run(states, supervisor, lives, expected):
    workers = [(a_worker(index=i), WorkerState(state)) for i, state in enumerate(states)]
    status = a_supervisor(supervisor) if supervisor else None
    assert run_state(workers, status, NOW, lives) is expected


def test_a_run_whose_chief_trains_does_not_start_because_a_worker_does():
    chief = a_worker(index=0, job="chief")
    beside = [(a_worker(index=1), WorkerState.STARTING), (a_worker(index=2), WorkerState.SERVING)]
    running = a_supervisor(SupervisorState.RUNNING)
    for state, expected in (
        (WorkerState.TRAINING, RunState.TRAINING),
        (WorkerState.PAUSED, RunState.PAUSED),
        (WorkerState.STARTING, RunState.STARTING),
    ):
        assert run_state([(chief, state), *beside], running, NOW, alive) is expected


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ([Ending.FINISHED, Ending.FINISHED], RunState.FINISHED),
        ([Ending.STOPPED, Ending.STOPPED], RunState.STOPPED),
        ([Ending.PREEMPTED, Ending.FINISHED], RunState.STOPPED),
        ([Ending.FINISHED, Ending.FAILED], RunState.FAILED),
        ([Ending.STOPPED, Ending.FAILED], RunState.FAILED),
        ([Ending.FINISHED, None], RunState.FAILED),
    ],
)
def test_how_a_run_without_supervisor_ended(endings, expected):
    workers = [
        (a_worker(index=i, activity=Activity.EXITED, ending=ending), WorkerState.EXITED)
        for i, ending in enumerate(endings)
    ]
    assert run_state(workers, None, NOW, dead) is expected


@pytest.mark.parametrize("pid", [7, 8], ids=["the process", "its shell"])
def test_a_worker_that_starts_on_another_host_lives_as_long_as_its_process(pid):
    process = WorkerProcess(index=0, pid=pid, process_started_at=NOW - 601, host="other")
    supervisor = replace(a_supervisor(SupervisorState.RUNNING), workers=[process])
    building = a_worker(
        host="other",
        pid=7,
        process_started_at=NOW - 600,
        updated_at=NOW - 500,
        activity=Activity.STARTING,
        phase=Phase.BUILD,
    )
    (status,) = with_started([building], supervisor)
    assert worker_state(status, NOW, dead) is WorkerState.STARTING
    later = replace(process, process_started_at=NOW - 400)
    (status,) = with_started([building], replace(supervisor, workers=[later]))
    assert (status.phase, status.pid) == (Phase.IMPORT, pid)


@pytest.mark.parametrize("off", [3600.0, -3600.0])
@pytest.mark.parametrize("pid", [7, 8], ids=["the process", "its shell"])
def test_a_worker_that_starts_is_known_after_the_clock_was_set(pid, off):
    beside = {"namespace": "boot:1"}
    shell = WorkerProcess(
        index=0, pid=pid, process_started_at=NOW - 10 + off, process_after_boot=500.0
    )
    supervisor = replace(a_supervisor(SupervisorState.RUNNING), workers=[shell], **beside)
    supervisor = replace(supervisor, updated_at=NOW + off)
    before = {"process_started_at": NOW - 9.5, "process_after_boot": 500.5, "updated_at": NOW - 8}
    starts = {"pid": 7, "activity": Activity.STARTING, "phase": Phase.BUILD, **beside}
    (status,) = with_started([a_worker(**starts, **before)], supervisor)
    assert (status.phase, status.pid) == (Phase.BUILD, 7)
    assert status.updated_at == max(NOW - 8, NOW + off)
    earlier = {"process_started_at": NOW - 19.5, "process_after_boot": 490.5}
    (status,) = with_started([a_worker(**{**starts, **before, **earlier, "pid": 6})], supervisor)
    assert status.updated_at == NOW - 8
    earlier["updated_at"] = NOW - 12
    (status,) = with_started([a_worker(**{**starts, **earlier, "pid": 6})], supervisor)
    assert (status.phase, status.pid) == (Phase.IMPORT, pid)


def test_a_reused_process_number_is_not_the_worker():
    own = own_process()
    assert process_lives(own)
    assert not process_lives(own._replace(process_after_boot=own.process_after_boot - 100))


def test_a_process_that_an_earlier_release_recorded_is_known_by_its_start_since_the_epoch():
    told = ProcessIdentity(os.getpid(), psutil.Process().create_time())
    assert process_lives(told)
    assert not process_lives(told._replace(process_started_at=told.process_started_at - 100))


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_process_is_known_after_the_clock_was_set(monkeypatch, off):
    told = own_process()
    monkeypatch.setattr(time, "time", lambda time=time.time: time() + off)
    assert process_lives(told)


def test_a_start_is_told_by_the_present_clock(monkeypatch):
    first, true_time = own_process(), time.time
    assert own_process() == first
    monkeypatch.setattr(time, "time", lambda: true_time() + 3600)
    later = own_process()
    assert later.process_started_at == pytest.approx(first.process_started_at + 3600, abs=1)
    assert later.process_after_boot == first.process_after_boot


def test_the_process_table_says_what_psutil_says():
    with subprocess.Popen(["sleep", "60"]) as process:
        found = find_process(process.pid)
        started = psutil.Process(process.pid).create_time()
        # psutil adds to the time of boot, which the kernel tells in whole seconds.
        assert found is not None and -0.1 < found.started_at - started < 1.1
        assert runs_since(process.pid, found.after_boot)
        assert not runs_since(process.pid, found.after_boot - 100)
        assert not found.is_zombie and not found.is_stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: find_process(process.pid).is_stopped, 10, "stopped")
        process.kill()
        wait_until(lambda: find_process(process.pid).is_zombie, 10, "a zombie")
        assert not process_lives(found.process)
        assert not runs_since(process.pid, found.after_boot)
    assert find_process(process.pid) is None


@pytest.mark.parametrize("pid", [0, -1, 10**30])
def test_no_process_has_an_impossible_number(pid: int):
    assert find_process(pid) is None


@pytest.mark.parametrize(
    ("ending", "later", "expected"),
    [
        (Ending.PREEMPTED, 5, RunState.FAILED),
        (Ending.PREEMPTED, 3600, RunState.STOPPED),
        (Ending.STOPPED, 5, RunState.STOPPED),
        (Ending.FINISHED, 5, RunState.FINISHED),
    ],
)
def test_workers_that_ended_because_their_supervisor_was_killed_are_a_failure(
    ending, later, expected
):
    ended = a_worker(activity=Activity.EXITED, ending=ending, updated_at=NOW + later)
    workers = [(ended, WorkerState.EXITED)]
    supervisor = a_supervisor(SupervisorState.RUNNING)
    assert run_state(workers, supervisor, NOW + later, dead) is expected
    reported = a_supervisor(SupervisorState.STOPPED)
    assert run_state(workers, reported, NOW + later, dead) is RunState.STOPPED
