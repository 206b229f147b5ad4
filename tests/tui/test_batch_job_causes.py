"""What is said about why a run waits or ended: the most specific cause that is known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from batch_runs import SUBMITTED_AT, ended, with_job
from rundir_factory import HOST, RunFactory, two_branches, without_heartbeats

from command_running import Tool
from recorded_slurm import RecordedSlurm
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_tui.services.batch.job_reader import JobReader

CAUSE = "Worker 0 ended with status 1: train.py:1: ModuleNotFoundError: No module named 'numpi'."


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


def supervised(made: RunFactory, state: SupervisorState, reason: str = "") -> None:
    """Leaves the last heartbeat of a supervisor that has ended; reported only with its state."""
    store(
        made.run.supervisor_status,
        SupervisorStatus(
            pid=1,
            host=HOST,
            process_started_at=made.now - 100,
            updated_at=made.now,
            interval_seconds=1.0,
            state=state,
            reason=reason,
        ),
    )


def state_line(
    tool: Tool, made: RunFactory, slurm: RecordedSlurm, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setattr("tfckpt_tui.cli.status.JobReader", lambda: JobReader(slurm))
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
    assert line == "failed: Worker 0 failed: train.py:7: KeyError: 'x'"


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


def test_a_job_that_slurm_has_forgotten_leaves_no_riddle(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    line = state_line(tool, made, RecordedSlurm(), monkeypatch)
    assert line.startswith("failed: Batch job 1234 ended before training started; ")
    made.journal(JournalKind.STOP, "Cancelled batch job 1234, which waited in the queue.")
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
