"""All front ends say the same about a run, in each of its states.

`tests/training/test_training_start.py` holds the same with real processes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from app_driving import StillMonitor, shown, until_shown
from batch_runs import SUBMITTED_AT, waits, with_job
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from front_ends import Said, read_snapshot, what_all_say
from recorded_slurm import RecordedSlurm
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.processes import process_namespace
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.request import FrontEnd
from tfckpt_tui.services.restore import choose_start

REFUSAL = "Slurm refused the job: invalid partition specified: gpuu."


_started: list[subprocess.Popen[bytes]] = []


def started_process() -> int:
    """Starts a process that does nothing; it ends with the test."""
    _started.append(subprocess.Popen(["sleep", "600"]))
    return _started[-1].pid


@pytest.fixture(autouse=True)
def ended_processes() -> Iterator[None]:
    yield
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()


def supervised(made: RunFactory, **fields: object) -> None:
    """Leaves the heartbeat of a supervisor that lives, with one worker process that just began."""
    process, worker = psutil.Process(), psutil.Process(started_process())
    facts = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "process_started_at": process.create_time(),
        "namespace": process_namespace(),
        "updated_at": made.now,
        "interval_seconds": 3600.0,
        "state": SupervisorState.RUNNING,
        "workers": [
            WorkerProcess(index=0, pid=worker.pid, process_started_at=worker.create_time())
        ],
    }
    store(made.run.supervisor_status, SupervisorStatus(**{**facts, **fields}))


def starting(made: RunFactory) -> None:
    supervised(without_heartbeats(made))


def between_starts(made: RunFactory) -> None:
    supervised(without_heartbeats(made), attempt=1, state=SupervisorState.STARTING, workers=[])


def restarting(made: RunFactory) -> None:
    supervised(made, attempt=1)
    for index in range(2):
        made.live_worker(
            index,
            activity=Activity.RESTORING,
            phase=Phase.RESTORE,
            step=0,
            branch=0,
            detail="ckpt-b1-400",
        )


def training(made: RunFactory) -> None:
    for index in range(2):
        made.live_worker(index)


def paused(made: RunFactory) -> None:
    for index in range(2):
        made.live_worker(index, activity=Activity.PAUSED)


def stopped(made: RunFactory) -> None:
    for index in range(2):
        made.worker(index, activity=Activity.EXITED, ending=Ending.STOPPED)


def chosen(made: RunFactory) -> None:
    stopped(made)
    choose_start(made.run, "ckpt-200", through=FrontEnd.COMMAND_LINE)


def failed(made: RunFactory) -> None:
    for index in range(2):
        made.worker(index, activity=Activity.EXITED, ending=Ending.FAILED, detail="train.py:1: x")


def queued(made: RunFactory) -> None:
    with_job(without_heartbeats(made))


def refused(made: RunFactory) -> None:
    stopped(made)
    made.journal(JournalKind.START, "Started 2 workers.", 100)
    made.journal(JournalKind.FAILED, REFUSAL, details={"submit": "refused"})


def unanswered(made: RunFactory) -> None:
    stopped(made)
    made.journal(JournalKind.START, "Started 2 workers.", 100)
    made.journal(JournalKind.NOTE, "Slurm did not answer.", details={"submit": "unanswered"})


@pytest.mark.parametrize(
    ("arrange", "expected", "code"),
    [
        (starting, ("starting", 400, 1), 0),
        (between_starts, ("restarting", 400, 1), 1),
        (restarting, ("restarting", 400, 1), 1),
        (training, ("training", 438, 1), 0),
        (paused, ("paused", 438, 1), 0),
        (stopped, ("stopped", 438, 1), 0),
        (chosen, ("stopped", 200, 2), 0),
        (failed, ("failed", 438, 1), 1),
        (queued, ("queued", 400, 1), 0),
        (refused, ("refused", 438, 1), 1),
        (unanswered, ("unanswered", 438, 1), 1),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
async def test_all_front_ends_name_the_same_state_step_and_branch(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arrange: Callable[[RunFactory], None],
    expected: Said,
    code: int,
) -> None:
    made = two_branches(tmp_path / "run")
    arrange(made)
    slurm = waits(submitted=int(SUBMITTED_AT)) if arrange is queued else RecordedSlurm("")
    found = what_all_say(made.run, slurm)
    assert found == dict.fromkeys(found, expected)

    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(slurm))
    said = Tool(capsys)("status", made.run.root)
    assert said.code == code
    state, step, branch = expected
    assert f"state     {state}" in said.data
    assert f"step      {step} of 5,000 on branch {branch}" in said.data

    snapshot = read_snapshot(made.run, slurm)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, f" {state}")
        await until_shown(pilot, f"branch {branch}")
        await until_shown(pilot, f"step {step} of 5,000")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_start_has_a_line_for_each_worker_with_its_phase(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = two_branches(tmp_path / "run")
    starting(made)
    made.live_worker(
        1,
        activity=Activity.STARTING,
        phase=Phase.STEP,
        phase_since=time.time() - 40,
        step=0,
        step_seconds=None,
        loss=None,
        metrics={},
    )
    snapshot = read_snapshot(made.run, RecordedSlurm(""))
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, "◌ starting")
        await until_shown(pilot, "importing TensorFlow")
        await until_shown(pilot, "first step 40 s")


async def test_rates_of_a_paused_run_and_processes_that_ended_are_of_the_past(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = two_branches(tmp_path / "run")
    paused(made)
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(200, 50)) as pilot:
        await until_shown(pilot, "was 412 examples/s")
        await until_shown(pilot, "was 118 ms a step")
        await until_shown(pilot, "912 MB")
    stopped(made)
    assert "912 MB" not in Tool(capsys)("status", made.run.root).data
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(200, 50)) as pilot:
        await until_shown(pilot, "■ stopped")
        assert "912 MB" not in shown(app)
        assert "98%" not in shown(app)
