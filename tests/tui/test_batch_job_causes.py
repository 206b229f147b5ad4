"""What is said about why a run waits or ended: the most specific cause that is known."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from app_driving import StillMonitor, shown, until, until_shown
from batch_runs import SUBMITTED_AT, ended, runs, waits, with_job
from rundir_factory import HOST, RunFactory, two_branches, without_heartbeats

from command_running import Tool
from recorded_slurm import RecordedSlurm
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.runs.job_list import JobList

CAUSE = "Worker 0 ended with status 1: train.py:1: ModuleNotFoundError: No module named 'numpi'."


def supervised(made: RunFactory, state: SupervisorState, reason: str = "", **fields: Any) -> None:
    """Leaves the last heartbeat of a supervisor; without other fields, its process has ended."""
    status = SupervisorStatus(
        pid=1,
        host=HOST,
        process_started_at=made.now - 100,
        updated_at=made.now,
        interval_seconds=1.0,
        state=state,
        reason=reason,
    )
    store(made.run.supervisor_status, msgspec.structs.replace(status, **fields))


def forget_answer(made: RunFactory) -> None:
    """Lets time pass, after which what Slurm said before is too old."""
    made.run.job_answer.unlink(missing_ok=True)


async def answered_snapshot(
    made: RunFactory, slurm: RecordedSlurm, later: float = 0.0
) -> RunSnapshot:
    """A snapshot for which Slurm has answered, some seconds after the heartbeats."""
    forget_answer(made)
    answered = threading.Event()
    reader = SnapshotReader(made.run, jobs=JobWatch(JobReader(Slurm(slurm)), answered.set))
    reader.read(made.now + later)
    assert await asyncio.to_thread(answered.wait, 60)
    return reader.read(made.now + later)


def state_line(
    tool: Tool, made: RunFactory, slurm: RecordedSlurm, monkeypatch: pytest.MonkeyPatch
) -> str:
    forget_answer(made)
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    lines = tool("status", made.run.root).data.splitlines()
    return next(line.removeprefix("state").strip() for line in lines if line.startswith("state"))


@pytest.fixture
def ended_run(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", now=time.time() - 600)
    with_job(made, started_at=made.now - 60)
    return made


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT"])
def test_what_the_supervisor_reported_comes_before_what_slurm_says(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    supervised(ended_run, SupervisorState.FAILED, CAUSE)
    slurm = ended(state, start=int(ended_run.now - 61))
    assert state_line(tool, ended_run, slurm, monkeypatch) == f"failed: {CAUSE}"


def test_what_a_worker_reported_comes_before_what_slurm_says(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised(ended_run, SupervisorState.RUNNING)
    ended_run.worker(
        0, activity=Activity.EXITED, ending=Ending.FAILED, detail="train.py:7: KeyError: 'x'"
    )
    slurm = ended("FAILED", start=int(ended_run.now - 61))
    line = state_line(tool, ended_run, slurm, monkeypatch)
    assert line == "failed: Worker 0 failed: train.py:7: KeyError: 'x'."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("NODE_FAIL", "node failure"),
        ("TIMEOUT", "time limit reached"),
        ("OUT_OF_MEMORY", "out of memory"),
    ],
)
def test_slurm_says_what_processes_could_not_report(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    supervised(ended_run, SupervisorState.RUNNING)
    slurm = ended(state, start=int(ended_run.now - 61))
    line = state_line(tool, ended_run, slurm, monkeypatch)
    assert line == f"failed: Batch job 1234 ended: {words}."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("CANCELLED", "stopped: Batch job 1235 ended before training started: cancelled."),
        (
            "FAILED",
            "failed: Batch job 1235 ended before training started: failed. It left no log: its "
            "nodes may not see this directory.",
        ),
    ],
)
def test_a_relaunch_that_never_trained_is_not_taken_for_the_start_before(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    supervised(ended_run, SupervisorState.FAILED, CAUSE)
    with_job(ended_run, id="1235", submitted_at=ended_run.now + 60)
    slurm = ended(state, id="1235", start=int(ended_run.now + 90), submitted=SUBMITTED_AT)
    slurm.output = slurm.output.replace(str(SUBMITTED_AT), str(int(ended_run.now + 60)))
    assert state_line(tool, ended_run, slurm, monkeypatch) == words


@pytest.mark.parametrize(
    ("state", "words"), [("CANCELLED", "stopped"), ("FAILED", "failed"), ("TIMEOUT", "failed")]
)
def test_a_first_job_that_never_trained_has_ended_as_slurm_says(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    line = state_line(tool, made, ended(state, start=int(SUBMITTED_AT)), monkeypatch)
    assert line.startswith(f"{words}: Batch job 1234 ended before training started: ")


def test_a_run_without_a_supervisor_that_was_stopped_stays_stopped(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_branches(tmp_path / "run", now=time.time() - 600)
    # A script of the user's own: nothing records when it started.
    with_job(made)
    for index in range(2):
        made.live_worker(index, activity=Activity.EXITED, ending=Ending.STOPPED)
    slurm = ended("COMPLETED", start=int(SUBMITTED_AT))
    assert state_line(tool, made, slurm, monkeypatch).startswith("stopped")


def test_a_job_that_slurm_has_forgotten_leaves_no_riddle(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    line = state_line(tool, made, RecordedSlurm(), monkeypatch)
    assert line.startswith("failed: Batch job 1234 ended before training started; ")
    made.event_log(EventKind.STOP, "Cancelled batch job 1234, which waited in the queue.")
    line = state_line(tool, made, RecordedSlurm(), monkeypatch)
    assert line.startswith("unattended: Batch job 1234 ended before training started; ")


def test_a_requeued_job_that_is_cancelled_had_trained_before(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised(ended_run, SupervisorState.STOPPED, "The time limit of the job is near.")
    slurm = ended("CANCELLED", start=int(ended_run.now + 300))
    line = state_line(tool, ended_run, slurm, monkeypatch)
    assert line == "stopped: Batch job 1234 ended before it started again: cancelled."


def test_a_supervisor_that_was_killed_is_a_failure(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised(ended_run, SupervisorState.RUNNING)
    for index in range(2):
        ended_run.worker(index, activity=Activity.EXITED, ending=Ending.PREEMPTED)
    slurm = ended("COMPLETING", start=int(ended_run.now - 61))
    assert state_line(tool, ended_run, slurm, monkeypatch).startswith("degraded")
    line = state_line(tool, ended_run, ended("FAILED"), monkeypatch)
    assert line == (
        "failed: The supervisor ended without a report: it was killed, or its node failed."
    )


def test_a_job_that_left_no_log_is_told(tool: Tool, ended_run: RunFactory) -> None:
    logs = ended_run.run.logs_directory
    for path in logs.glob("*"):
        path.unlink()
    said = tool("logs", ended_run.run.root).words
    assert "batch job 1234 has left no output either. It has not started, or its nodes" in said
    logs.mkdir(exist_ok=True)
    ended_run.run.job_log.write_text("srun: error\n")
    assert (
        f"the output of batch job 1234 is in {ended_run.run.job_log}."
        in tool("logs", ended_run.run.root).words
    )


def silent_run(made: RunFactory) -> None:
    """The node of a supervisor and a worker is gone: both were alive at their last heartbeats."""
    supervised(made, SupervisorState.RUNNING)


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_run_whose_node_is_lost_waits_for_slurm_and_has_not_failed(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    silent_run(ended_run)
    slurm = ended(state, start=int(ended_run.now - 61))
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    said = tool("status", ended_run.run.root, "--json")
    assert said.json["run"]["state"] == "degraded"
    assert said.code == 1
    alert = said.json["alerts"][0]
    assert alert["kind"] == "job-silent"
    assert alert["message"].startswith("No process of the run has written a heartbeat for 10 min")
    assert "Slurm still lists batch job 1234 on tn[0-1]." in alert["message"]
    assert "`sinfo -N -n 'tn[0-1]'`" in alert["advice"]


async def test_the_app_says_that_a_lost_node_waits_for_slurm(ended_run: RunFactory) -> None:
    silent_run(ended_run)
    slurm = ended("RUNNING", start=int(ended_run.now - 61))
    snapshot = await answered_snapshot(ended_run, slurm, later=600)
    app = TfckptApp(ended_run.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        lines = shown(app).splitlines()
        assert "degraded   ✗ node lost, waiting for Slurm" in lines[0]
        assert "r restore" not in lines[-1]


def test_a_start_that_reported_its_end_is_not_lost(
    tool: Tool, ended_run: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised(ended_run, SupervisorState.FAILED, CAUSE)
    slurm = ended("COMPLETING", start=int(ended_run.now - 61))
    assert state_line(tool, ended_run, slurm, monkeypatch) == f"failed: {CAUSE}"


@pytest.mark.parametrize(
    ("reason", "title", "advice"),
    [
        ("JobHeldUser", "the job is held", "scontrol release 1234"),
        ("PartitionNodeLimit", "the job cannot start", "tfckpt-tui stop"),
        ("PartitionConfig", "the job cannot start", "tfckpt-tui stop"),
    ],
)
async def test_a_job_that_never_starts_by_itself_is_an_alert(
    tool: Tool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    title: str,
    advice: str,
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    slurm = waits(reason=reason)
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    said = tool("status", made.run.root)
    assert said.code == 1
    (line,) = (line for line in said.data.splitlines() if line.startswith("alert"))
    assert "Batch job 1234 does not start by itself: " in line
    assert advice in line
    snapshot = await answered_snapshot(made, slurm)
    assert snapshot.alerts[0].title == title
    (summary,) = JobList(Slurm(slurm)).read([made.run.root], with_others=False)
    assert [alert.title for alert in summary.alerts] == [title]


def test_a_job_that_waits_for_its_turn_is_no_alert(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(waits())))
    assert tool("status", made.run.root).code == 0


async def test_an_empty_run_whose_job_waits_says_when_training_begins(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    with_job(made)
    snapshot = await answered_snapshot(made, waits())
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "Training begins when the batch job starts.")
        assert "press L" not in shown(app)


# -- the keys that are needed come first ---------------------------------------------------------


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_the_footer_begins_with_what_the_state_needs(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = two_branches(tmp_path / "run", now=time.time() - 600)
    with_job(made, started_at=made.now - 60)
    supervised(made, SupervisorState.STOPPED, "Told.")
    snapshot = await answered_snapshot(made, waits(), later=600)
    assert (await footer(made, snapshot, size)).startswith("x cancel")
    ended_job = ended("CANCELLED", start=int(made.now - 61))
    stopped = await answered_snapshot(made, ended_job, later=600)
    assert (await footer(made, stopped, size)).startswith("L launch  r restore")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_start_without_a_heartbeat_can_be_ended_by_a_key_of_the_footer(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = RunFactory(tmp_path / "run", now=time.time()).create()
    with_job(made)
    begins = ended("RUNNING", start=int(made.now - 5))
    snapshot = await answered_snapshot(made, begins)
    assert snapshot.state is RunState.STARTING
    assert (await footer(made, snapshot, size)).startswith("X force stop")


async def footer(made: RunFactory, snapshot: RunSnapshot, size: tuple[int, int]) -> str:
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        return shown(app).splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("restarts", "words"),
    [
        ({"attempt": 1, "restarts": 1}, "restarted 1 of 3 times"),
        # A checkpoint came after each.
        ({"attempt": 4, "restarts": 1}, "restarted 4 times"),
        ({"attempt": 6, "restarts": 2}, "restarted 6 times, 2 of 3 in a row"),
    ],
)
async def test_a_restarted_run_without_a_heartbeat_has_no_lonely_dot(
    tmp_path: Path, restarts: dict[str, int], words: str
) -> None:
    made = RunFactory(tmp_path / "run", now=time.time()).create()
    supervised(made, SupervisorState.RUNNING, max_restarts=3, **restarts)
    snapshot = SnapshotReader(made.run).read(made.now)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, f"{words} ─")
        assert f"{words} ·" not in shown(app)


def test_a_lost_worker_of_a_job_is_said_to_come_back_by_itself(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunFactory(tmp_path / "run", now=time.time()).create()
    made.live_worker(0)
    made.worker(1, host="tn1", namespace="another-boot:1", updated_at=made.now - 12)
    own = psutil.Process()
    process = {"pid": own.pid, "process_started_at": own.create_time()}
    supervised(made, SupervisorState.RUNNING, **process)
    with_job(made, started_at=made.now - 60)
    options = LaunchOptions(
        run_directory=str(made.run.root), command=("python",), working_directory="/"
    )
    store(made.run.launch_file, options)
    slurm = runs(made.now)
    line = state_line(tool, made, slurm, monkeypatch)
    assert line.startswith("degraded: Worker 1 has sent no heartbeat for 1")
    assert line.endswith(" All workers start again by themselves after 30 s without a sign of it.")
    made.run.launch_file.write_text("{")
    assert state_line(tool, made, slurm, monkeypatch).startswith("degraded: Worker 1 has sent")
