"""Lists of runs with the batch jobs of the user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from app_driving import shown, until_shown
from batch_runs import with_job
from json_reference import check
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from recorded_slurm import RecordedSlurm, job_line
from tfckpt_trainer.launch.slurm.commands import CommandOutput
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.reports.run_facts import RunsReport
from tfckpt_tui.services.batch.job_reader import (
    ENDED_SECONDS,
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    WAITING_SECONDS,
)
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.recent_runs import remember_run
from tfckpt_tui.settings.config import Config


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run_with_job(root: Path, job_id: str) -> RunFactory:
    made = without_heartbeats(two_branches(root))
    with_job(made, id=job_id)
    made.run.job_script.write_text("#!/bin/sh\n")
    return made


@pytest.fixture
def known(tmp_path: Path) -> RunFactory:
    made = run_with_job(tmp_path / "known", "1234")
    remember_run(made.run.root)
    return made


@pytest.fixture
def other(tmp_path: Path) -> RunFactory:
    """A run that is in no list, but whose job is in the queue."""
    return run_with_job(tmp_path / "elsewhere" / "other", "1235")


class SlurmOfTwoUsers(RecordedSlurm):
    """Slurm with a job of another user, which it lists only for questions about its number."""

    def __call__(self, command: Sequence[str], seconds: float) -> CommandOutput:
        by_user = any(part.startswith("--user=") for part in command)
        said = super().__call__(command, seconds)
        return CommandOutput(0, "", "") if by_user else said


def line_of(made: RunFactory, job_id: str, **fields: object) -> str:
    return job_line(id=job_id, script=made.run.job_script, **fields)


def listed(
    slurm: RecordedSlurm, *made: RunFactory, with_others: bool = True
) -> dict[str, RunAccount]:
    roots = [one.run.root for one in made]
    found = JobList(Slurm(slurm)).read(roots, with_others=with_others)
    return {one.root.name: one for one in found}


def test_each_run_has_its_job_and_jobs_without_a_known_run_are_offered(
    known: RunFactory, other: RunFactory, tmp_path: Path
) -> None:
    gone = tmp_path / "gone" / ".tfckpt" / "job.sbatch"
    slurm = RecordedSlurm(
        line_of(known, "1234", reason="Priority")
        + line_of(other, "1235", state="RUNNING", start=2_000_000_000, nodes="tn1")
        + job_line(id=1236, script=gone)
        + job_line(id=1237, script="/home/ada/notes.sh")
        + job_line(id=1238, script="(null)")
        + job_line(id=1239, script="job.sbatch")
    )
    found = listed(slurm, known)
    assert set(found) == {"known", "other"}
    assert (found["known"].state, found["known"].job_in_short) == (RunState.QUEUED, "1234 Priority")
    assert (found["other"].state, found["other"].job_in_short) == (RunState.STARTING, "1235")
    assert set(listed(slurm, known, with_others=False)) == {"known"}
    assert slurm.asked("squeue") == 2


def test_a_script_that_somebody_submitted_by_hand_belongs_to_its_run(known: RunFactory) -> None:
    slurm = RecordedSlurm(
        line_of(known, "1234", state="CANCELLED") + line_of(known, "1300", reason="Resources")
    )
    assert listed(slurm, known)["known"].job_in_short == "1300 Resources"


def test_a_job_that_has_ended_adds_no_run(known: RunFactory, other: RunFactory) -> None:
    slurm = RecordedSlurm(
        line_of(known, "1234", state="NODE_FAIL") + line_of(other, "1235", state="COMPLETED")
    )
    found = listed(slurm, known)
    assert set(found) == {"known"}
    assert (found["known"].state, found["known"].job_in_short) == (
        RunState.FAILED,
        "1234 node failure",
    )


def test_the_list_asks_once_for_all_and_not_often(known: RunFactory, other: RunFactory) -> None:
    now = [0.0]
    slurm = RecordedSlurm(line_of(known, "1234") + line_of(other, "1235"))
    jobs = JobList(Slurm(slurm), lambda: now[0])
    roots = [known.run.root, other.run.root]
    jobs.read(roots, with_others=True, ask=False)
    assert slurm.commands == []
    for _ in range(5):
        jobs.read(roots, with_others=True)
    assert slurm.asked("squeue") == 1
    now[0] += WAITING_SECONDS
    slurm.raises = FileNotFoundError("squeue")
    found = jobs.read(roots, with_others=True)
    assert [one.job_in_short for one in found] == ["", ""]
    now[0] += LONGEST_SILENT_SECONDS - 1
    jobs.read(roots, with_others=True)
    assert slurm.asked("squeue") == 2


def test_jobs_of_other_users_and_forgotten_ones_are_asked_for_together_and_seldom(
    known: RunFactory, other: RunFactory
) -> None:
    """`squeue --user` knows neither; `status` asks for each by its number."""
    now = [0.0]
    slurm = SlurmOfTwoUsers(line_of(other, "1235", reason="Priority"))
    jobs = JobList(Slurm(slurm), lambda: now[0])
    roots = [known.run.root, other.run.root]
    for _ in range(3):
        found = {one.root.name: one for one in jobs.read(roots, with_others=False)}
        assert found["other"].job_in_short == "1235 Priority"
        assert (found["other"].state, found["known"].state) == (RunState.QUEUED, RunState.FAILED)
        assert "Slurm has forgotten why" in found["known"].reason
    assert slurm.asked("squeue") == 2
    assert "--jobs=1234,1235" in slurm.commands[1]
    now[0] += RUNNING_SECONDS
    jobs.read(roots, with_others=False)
    assert "--jobs=1235" in slurm.commands[-1], "the forgotten one later"
    now[0] += ENDED_SECONDS
    slurm.raises = FileNotFoundError("squeue")
    found = {one.root.name: one for one in jobs.read(roots, with_others=False)}
    assert {one.state for one in found.values()} == {RunState.UNATTENDED}


def test_the_command_lists_jobs(
    known: RunFactory, other: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = RecordedSlurm(line_of(known, "1234") + line_of(other, "1235", reason="Dependency"))
    monkeypatch.setattr("tfckpt_tui.cli.run.runs.JobList", partial(JobList, Slurm(slurm)))
    said = tool("runs", "--json")
    check(RunsReport, said.json)
    assert {one["job"] for one in said.json["runs"]} == {"1234 Resources", "1235 Dependency"}
    text = tool("runs").data
    assert "queued: job 1234 Resources" in text
    assert "queued: job 1235 Dependency" in text
    assert "1235" not in tool("runs", known.run.root).data


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_the_app_lists_jobs(
    known: RunFactory, other: RunFactory, size: tuple[int, int]
) -> None:
    hostile = "\x1b[31mDown\nward"
    slurm = RecordedSlurm(line_of(known, "1234") + line_of(other, "1235", reason=hostile))
    app = RunsApp(None, Config(), JobList(Slurm(slurm)))
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, "◷ queued")
        await until_shown(pilot, "other")
        assert "1234 Resources" in shown(app)
        assert "1235 ␛[31mDown␊" in shown(app)
        await pilot.press("q")
    assert slurm.asked("squeue") == 1
