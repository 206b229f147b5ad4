"""Alerts that a supervisor sends, and what it notices before anything ends."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from supervised import Run

from receiving_server import HANG, receiving
from tfckpt_trainer.launch.supervision.restart_policy import Attempt, Exit
from tfckpt_trainer.launch.supervision.watch import (
    DEGRADED_SECONDS,
    STALLED_SECONDS,
    Episodes,
)
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.health import STALLED_AFTER_CALLS, RunState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_tui.services.runs.report import status_report
from waiting import MOST_SECONDS, PassingTime, wait_until

TRAINS = Attempt(workers=2, seconds=300.0, heard=frozenset({0, 1}), stepped=True)
SILENT = replace(TRAINS, silent=(1, "has sent no heartbeat for 6 s"))


def tells(run: Run, url: str) -> None:
    run.directory.create()
    run.directory.config_file.write_text(f'[[alerts.webhooks]]\nurl = "{url}"\nretries = 0\n')


@pytest.mark.e2e
def test_a_run_that_fails_tells_a_webhook_with_nobody_looking(run: Run) -> None:
    with receiving([500]) as server:
        tells(run, server.url)
        status = run.to_the_end(run.options("step", "w1:exit=3", "sleep=60", max_restarts=1))
    assert status.state is SupervisorState.FAILED
    sent = [body["kind"] for body in server.bodies]
    assert sent == ["worker lost", "restart", "worker lost", "failed"]
    assert server.bodies[-1]["message"] == "The run ended: worker 1 failed."
    assert server.bodies[-1]["run"] == str(run.root)
    (noted,) = [entry.message for entry in run.event_log(EventKind.NOTE)]
    assert noted == "An alert was not sent: webhook 127.0.0.1: answered HTTP 500."


@pytest.mark.e2e
def test_a_webhook_that_hangs_delays_no_restart_and_no_next_launch(run: Run) -> None:
    with receiving([HANG] * 9) as server:
        tells(run, server.url)
        first = run.supervise(run.options("step", "w1a0:kill", "a0:sleep=60"))
        assert run.wait_for(SupervisorState.FINISHED).attempt == 1
        assert status_report(run.directory).run.state is RunState.FINISHED
        assert run.supervise(run.options()).wait(MOST_SECONDS) == 0
        assert first.wait(MOST_SECONDS) == 0
    assert "were not sent in time" in run.event_log(EventKind.NOTE)[0].message


@pytest.mark.e2e
@pytest.mark.weekly
def test_a_stopped_worker_degrades_the_run_once(run: Run) -> None:
    supervisor = run.supervise(
        run.options("step", "ready", "w0:train=20", "w1:sleep=4", "end=finished")
    )
    stopped = int(run.wait_for_file("ready-1"))
    os.kill(stopped, signal.SIGSTOP)
    told = wait_until(lambda: run.event_log(EventKind.DEGRADED), 60, "the event")
    assert "Worker 1 is stopped by a signal" in told[0].message
    os.kill(stopped, signal.SIGCONT)
    assert supervisor.wait(MOST_SECONDS) == 0
    kinds = [entry.kind for entry in read_entries(run.directory)]
    assert kinds.count(EventKind.DEGRADED) == 1 and EventKind.STALLED not in kinds


@pytest.fixture
def clock() -> PassingTime:
    return PassingTime()


def test_a_worker_that_does_not_react_is_an_event_once_for_each_time(clock: PassingTime) -> None:
    episodes = Episodes(clock)
    assert episodes.begun(SILENT) is None
    clock.now = DEGRADED_SECONDS
    told = (EventKind.DEGRADED, "Worker 1 has sent no heartbeat for 6 s.")
    assert episodes.begun(SILENT) == told
    assert episodes.begun(SILENT) is None
    assert episodes.begun(TRAINS) is None
    assert episodes.begun(SILENT) is None
    clock.now *= 2
    assert episodes.begun(SILENT) == told


def test_a_worker_that_is_silent_for_a_moment_is_no_event(clock: PassingTime) -> None:
    episodes = Episodes(clock)
    for attempt in (SILENT, TRAINS, SILENT, TRAINS):
        assert episodes.begun(attempt) is None
        clock.now += 0.9 * DEGRADED_SECONDS


def test_a_worker_whose_rare_heartbeats_end_is_an_event_as_early(clock: PassingTime) -> None:
    found = Episodes(clock).begun(replace(SILENT, silent_before=DEGRADED_SECONDS))
    assert found == (EventKind.DEGRADED, "Worker 1 has sent no heartbeat for 6 s.")


def test_a_worker_that_is_silent_because_one_has_ended_is_no_event(clock: PassingTime) -> None:
    episodes = Episodes(clock)
    for _ in range(3):
        assert episodes.begun(replace(SILENT, exits=(Exit(0, 1),))) is None
        clock.now += DEGRADED_SECONDS


def test_a_stall_is_an_event_once_for_each_time(clock: PassingTime) -> None:
    episodes = Episodes(clock)
    stalls = replace(
        TRAINS, stands_for=STALLED_SECONDS + 1, suspect=(1, "has waited for input for 70 s")
    )
    told = (
        EventKind.STALLED,
        "No worker made a step in 61 s. Worker 1 has waited for input for 70 s.",
    )
    assert episodes.begun(replace(stalls, stands_for=STALLED_SECONDS)) is None
    assert episodes.begun(stalls) == told
    assert episodes.begun(replace(stalls, stands_for=3000)) is None
    assert episodes.begun(TRAINS) is None
    assert episodes.begun(stalls) == told


def test_long_steps_and_code_between_steps_are_no_stall(clock: PassingTime) -> None:
    long = replace(TRAINS, stands_for=100.0, call_seconds=10.0)
    assert Episodes(clock).begun(long) is None
    assert Episodes(clock).begun(replace(long, stands_for=STALLED_AFTER_CALLS * 10.0 + 1))
    assert Episodes(clock).begun(replace(TRAINS, stands_for=100.0, in_script=True)) is None
