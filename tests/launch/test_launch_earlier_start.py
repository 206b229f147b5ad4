"""Two starts of one job never train at once, whether the disk shares locks or not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tfckpt_trainer.errors import ExitCode, LaunchError
from tfckpt_trainer.launch.batch.submissions import UNANSWERED
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm import batch_step, earlier_start
from tfckpt_trainer.launch.slurm.earlier_start import (
    JobStart,
    await_earlier_start,
    describe_lost_start,
    read_later_start,
    require_job_of_run,
)
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.launch.supervision.stop import accepted_stop
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries, write_entry
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.locks import is_locked, take_lock
from waiting import wait_until

SECOND = JobStart("7", 1)


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDirectory:
    monkeypatch.setattr(earlier_start, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(earlier_start, "POLL_SECONDS", 0.05)
    made = RunDirectory(tmp_path)
    made.create()
    store(made.job_file, job())
    return made


def job(**fields: object) -> BatchJob:
    known = {"scheduler": "slurm", "id": "7", "submitted_at": 1.0, "script": "s", "started_at": 2.0}
    return BatchJob(**(known | fields))


def test_a_lock_that_is_held_is_given_to_nobody_else(run: RunDirectory) -> None:
    held = take_lock(run.supervisor_lock)
    assert held is not None
    assert is_locked(run.supervisor_lock)
    assert take_lock(run.supervisor_lock) is None
    os.close(held)
    assert not is_locked(run.supervisor_lock)


def beat(run: RunDirectory, state: SupervisorState) -> None:
    """Writes a heartbeat of a supervisor on another machine, whose clock is an hour late."""
    status = SupervisorStatus(
        pid=5,
        host="cut-off",
        namespace="another-boot:1",
        process_started_at=1.0,
        updated_at=time.time() - 3600,
        interval_seconds=1.0,
        state=state,
    )
    store(run.supervisor_status, status)


class Waiting:
    """A start that waits in a thread.

    Attributes:
        told: What it waits for.
        lock: The lock that it got; None until then.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.told: list[str] = []
        self.lock: int | None = None
        self._thread = threading.Thread(target=self._wait, args=(run,), daemon=True)
        self._thread.start()

    def _wait(self, run: RunDirectory) -> None:
        self.lock = await_earlier_start(run, SECOND, self.told.append)

    def has_lock(self) -> bool:
        return self.lock is not None


@pytest.fixture
def waiting(run) -> Iterator[Callable[[], Waiting]]:
    made: list[Waiting] = []

    def start() -> Waiting:
        made.append(Waiting(run))
        return made[-1]

    yield start
    for one in made:
        if one.lock is not None:
            os.close(one.lock)


def test_a_directory_without_an_earlier_start_is_taken_at_once(run, waiting):
    beat(run, SupervisorState.STOPPED)
    start = waiting()
    wait_until(start.has_lock, 10, "the lock")
    assert start.told == []
    assert load(run.job_file, BatchJob).requeues == 0


def test_it_waits_for_a_lock_whose_holder_is_silent(run, waiting):
    held = take_lock(run.supervisor_lock)
    start = waiting()
    wait_until(lambda: start.told, 10, "words")
    assert start.told[0].startswith(
        "The supervisor of an earlier start is silent, but still holds the lock. This start waits"
    )
    assert not start.has_lock()
    os.close(held)
    wait_until(start.has_lock, 10, "the lock")


def test_it_waits_for_a_supervisor_that_lives_though_the_lock_is_free(run, waiting):
    beat(run, SupervisorState.RUNNING)
    start = waiting()

    def told() -> bool:
        beat(run, SupervisorState.RUNNING)
        return bool(start.told)

    wait_until(told, 30, "words")
    assert start.told[0].startswith(
        "The supervisor of an earlier start still runs on cut-off (process 5). This start waits"
    )
    assert not start.has_lock()
    # The earlier start learns of it here.
    assert read_later_start(run, JobStart("7", 0)).started_at == 2.0
    beat(run, SupervisorState.STOPPED)
    wait_until(start.has_lock, 10, "the lock")


def test_after_the_limit_it_says_what_is_left(run):
    held = take_lock(run.supervisor_lock)
    with pytest.raises(LaunchError, match=r"holds the lock. It did not end within 0.1 s."):
        await_earlier_start(run, SECOND, lambda _: None, limit_seconds=0.1)
    os.close(held)


@pytest.mark.parametrize(
    ("known", "replaced"),
    [
        (job(), False),
        (job(requeues=1), True),
        (job(id="8", started_at=None), True),
        (job(id="8"), True),
    ],
)
def test_a_start_learns_of_a_later_one(run, known, replaced):
    store(run.job_file, known)
    assert (read_later_start(run, JobStart("7", 0)) is not None) is replaced
    run.job_file.unlink()
    assert read_later_start(run, JobStart("7", 0)) is None


def test_a_start_of_another_job_does_not_end_the_one_that_trains(run):
    JobStart("8", 3).announce(run)
    assert load(run.job_file, BatchJob) == job()


@pytest.mark.parametrize(
    ("slurm", "why"),
    [
        (SlurmOptions(), "job 7 is the job of this run."),
        (None, "the run was launched without Slurm after the job was submitted."),
    ],
)
def test_a_job_that_is_not_the_one_of_the_run_ends_at_once(run, monkeypatch, capfd, slurm, why):
    options = LaunchOptions(
        run_directory=str(run.root),
        command=("python", "train.py"),
        working_directory=str(run.root),
        slurm=slurm,
    )
    store(run.launch_file, options)
    monkeypatch.setenv("SLURM_JOB_ID", "6")
    lock = take_lock(run.supervisor_lock)
    assert batch_step.main([str(run.root)]) == ExitCode.PROBLEM
    os.close(lock)
    (entry,) = read_entries(run)
    assert entry.message == f"Job 6 ends without training: {why}"
    log = capfd.readouterr().err
    assert log.startswith(entry.message)
    # Only the log names the app: the app shows the event log.
    assert ("press L in `tfckpt-tui attach" in log) is (slurm is not None)
    assert load(run.job_file, BatchJob) == job()


def test_a_job_waits_until_its_launch_has_recorded_it(run):
    recorder = threading.Timer(0.2, lambda: store(run.job_file, job(id="8", started_at=None)))
    recorder.start()
    require_job_of_run(run, JobStart("8", 0), limit_seconds=60)
    recorder.join()
    with pytest.raises(LaunchError, match="Job 9 ends without training: job 8 is the job of this"):
        require_job_of_run(run, JobStart("9", 0), limit_seconds=0.1)


@pytest.mark.parametrize("state", [SupervisorState.RUNNING, SupervisorState.RESTARTING])
def test_a_start_that_ended_without_a_report_is_reported_by_the_next(run, monkeypatch, state):
    monkeypatch.setattr(
        earlier_start, "describe_dead_nodes", lambda nodes: f"Node {nodes[0]} is down: gone."
    )
    beat(run, state)
    said = describe_lost_start(run, job(nodes=["tn0", "tn1"]), SECOND)
    assert said.startswith("The start before ended on cut-off without a report; its last heartbeat")
    assert said.endswith("Node tn0 is down: gone. Slurm has started job 7 again.")


def test_a_start_that_reported_its_end_is_not_reported_twice(run):
    assert describe_lost_start(run, job(), SECOND) == ""
    beat(run, SupervisorState.STOPPED)
    assert describe_lost_start(run, job(), SECOND) == ""
    beat(run, SupervisorState.RUNNING)
    # A job that was just submitted has no start before it.
    assert describe_lost_start(run, job(started_at=None), JobStart("7", 0)) == ""


def note(run: RunDirectory, kind: EventKind, **fields: Any) -> None:
    write_entry(run, EventEntry(at=1.0, kind=kind, message="…", **fields))


def claim_a_stop(run: RunDirectory) -> None:
    queue = CommandQueue(run)
    queue.submit(CommandKind.STOP, requested_by="ada, test")
    assert queue.claim(time.time()) is not None


def carry_out_a_stop(run: RunDirectory) -> None:
    note(run, EventKind.START, by=SUPERVISOR)
    note(run, EventKind.STOP, by="ada, test")
    note(run, EventKind.REQUEUE, by=SUPERVISOR)


@pytest.mark.parametrize("stop", [claim_a_stop, carry_out_a_stop])
def test_a_start_after_a_stop_was_accepted_ends_without_training(run, monkeypatch, stop):
    stop(run)
    options = LaunchOptions(
        run_directory=str(run.root),
        command=("true",),
        working_directory=str(run.root),
        slurm=SlurmOptions(),
    )
    store(run.launch_file, options)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    output = os.dup(1)
    try:
        assert batch_step.main([str(run.root)]) == ExitCode.DONE
    finally:
        os.dup2(output, 1)
        os.close(output)
    status = read_supervisor(run)
    assert status.state is SupervisorState.STOPPED
    assert "stopped by ada, test before this start" in status.reason
    assert accepted_stop(run) == "ada, test"
    assert not CommandQueue(run).working()


@pytest.mark.parametrize(
    "launch",
    [
        {"kind": EventKind.SUBMIT},
        {"kind": EventKind.START},
        {"kind": EventKind.RESTART},
        {"kind": EventKind.NOTE, "details": {"submit": UNANSWERED}},
    ],
)
def test_a_stop_before_the_last_launch_counts_no_more(run, launch):
    carry_out_a_stop(run)
    note(run, **launch)
    note(run, EventKind.STOP, by=SUPERVISOR)
    assert accepted_stop(run) == ""
