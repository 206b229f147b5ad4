"""Questions to Slurm: recorded answers, hostile ones, and none at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded_slurm import RecordedSlurm, job_line
from tfckpt_trainer.errors import LaunchError, UsageError
from tfckpt_trainer.launch import preflight
from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.commands import ask_slurm, run_command
from tfckpt_trainer.launch.slurm.controller import read_job
from tfckpt_trainer.launch.slurm.job_queries import (
    cancel_job,
    is_job_id,
    parse_jobs,
    read_jobs,
)
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import store


def test_one_call_tells_all_jobs_of_a_user() -> None:
    slurm = RecordedSlurm.recorded("waiting")
    jobs = read_jobs(user="root", runner=slurm).jobs
    assert [list(command[:5]) for command in slurm.commands] == [
        ["squeue", "--noheader", "--array", "--states=all", "--user=root"]
    ]
    assert jobs["20"].name == "a|b name\nx JobState=FAILED"
    assert (jobs["20"].state, jobs["20"].nodes) == (JobState.RUNNING, ("tn0", "tn1", "tn2"))
    assert (jobs["20"].started_at, jobs["20"].ends_at) == (1795341875.0, 1795341995.0)
    assert (jobs["21"].state, jobs["21"].reason) == (JobState.QUEUED, "Resources")
    assert (jobs["21"].expected_start, jobs["21"].started_at) == (1795341995.0, None)
    assert jobs["21"].script == "/home/ada/runs/digits/.tfckpt/job.sbatch"
    assert (jobs["22"].reason, jobs["22"].expected_start) == ("Dependency", None)
    assert (jobs["24"].reason, jobs["24"].script) == ("JobHeldUser", "")
    assert jobs["23_4"].reason == "BeginTime"


def test_a_job_behind_one_without_a_time_limit_has_no_expected_start() -> None:
    """Slurm says then that it starts in a year."""
    start = int(time.time()) + 365 * 86_400
    found = read_jobs(["1234"], runner=RecordedSlurm(job_line(start=start))).jobs
    assert (found["1234"].state, found["1234"].expected_start) == (JobState.QUEUED, None)


def test_each_way_to_end_has_a_state() -> None:
    jobs = read_jobs(user="root", runner=RecordedSlurm.recorded("ended")).jobs
    assert (jobs["10"].state, jobs["10"].reason) == (JobState.FAILED, "NonZeroExitCode")
    assert jobs["11"].state is JobState.TIMEOUT
    assert jobs["11"].name == 'long name with ünïcode and "quotes"'
    assert jobs["12_9"].state is JobState.CANCELLED
    assert jobs["15"].state is JobState.PREEMPTED
    assert jobs["3_2"].state is JobState.FINISHED
    assert jobs["1"].reason.startswith("Nodes required for job are DOWN, DRAINED or reserved")


@pytest.mark.parametrize(
    ("record", "state"),
    [
        ("waiting", JobState.QUEUED),
        ("running", JobState.RUNNING),
        ("completing", JobState.COMPLETING),
        ("requeued", JobState.QUEUED),
    ],
)
def test_a_job_that_is_requeued_waits_again(record: str, state: JobState) -> None:
    job = read_jobs(["21"], runner=RecordedSlurm.recorded(record)).jobs["21"]
    assert job.state is state
    assert (job.reason == "BeginTime") == (record == "requeued")


def test_no_time_limit_is_no_end() -> None:
    line = job_line(state="RUNNING", start="1795341409", end="1826877409", limit="UNLIMITED")
    assert read_jobs(["1234"], runner=RecordedSlurm(line)).jobs["1234"].ends_at is None


@pytest.mark.parametrize(("days", "is_told"), [(50, True), (364, False)])
def test_a_start_in_a_year_is_no_estimate(days: int, is_told: bool) -> None:
    line = job_line(start=int(time.time()) + days * 86_400)
    report = read_jobs(["1234"], runner=RecordedSlurm(line)).jobs["1234"]
    assert (report.expected_start is not None) is is_told


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("NODE_FAIL", JobState.NODE_FAILURE),
        ("REQUEUE_HOLD", JobState.REQUEUED),
        ("SPECIAL_EXIT", JobState.REQUEUED),
        ("SUSPENDED", JobState.RUNNING),
        ("A_WORD_OF_A_LATER_VERSION", JobState.UNKNOWN),
    ],
)
def test_each_word_of_slurm_has_a_state(word: str, state: JobState) -> None:
    jobs = read_jobs(["1234"], runner=RecordedSlurm(job_line(state=word))).jobs
    assert jobs["1234"].state is state


def test_only_ids_of_jobs_reach_the_command_line() -> None:
    slurm = RecordedSlurm(job_line())
    read_jobs(["1234", "77_3", "--help", "1 --user=eve", "", "1234", "१"], runner=slurm)
    assert slurm.commands[0][4] == "--jobs=1234,77_3"
    assert read_jobs(["--help"], runner=slurm).jobs == {}
    assert len(slurm.commands) == 1


def test_a_machine_without_slurm_is_an_answer() -> None:
    slurm = RecordedSlurm()
    slurm.raises = FileNotFoundError("squeue")
    answer = read_jobs(["1"], runner=slurm)
    assert (answer.jobs, answer.is_present) == ({}, False)
    assert answer.problem == "this machine has no Slurm commands"


def test_a_slurm_that_does_not_answer_is_an_answer() -> None:
    slurm = RecordedSlurm()
    slurm.raises = subprocess.TimeoutExpired("squeue", 10)
    assert "within 10 s" in read_jobs(["1"], runner=slurm).problem
    slurm.raises = PermissionError(13, "Permission denied")
    assert "Permission denied" in read_jobs(["1"], runner=slurm).problem
    down = RecordedSlurm(status=1, errors="slurm_load_jobs error: Unable to contact slurm\n")
    answer = read_jobs(["1"], runner=down)
    assert (answer.is_present, answer.jobs) == (True, {})
    assert answer.problem == "squeue: slurm_load_jobs error: Unable to contact slurm"


def test_a_job_that_slurm_forgot_is_no_problem() -> None:
    answer = read_jobs(["1"], runner=RecordedSlurm.forgetful())
    assert (answer.jobs, answer.problem) == ({}, "")


def test_a_command_goes_on_when_slurm_ends_the_job_that_asks() -> None:
    show = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('asked')"
    assert run_command([sys.executable, "-c", show], 60.0).output == "asked\n"
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_commands_end_in_time_and_settings_of_the_user_do_not_apply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    show = "import os; print('SQUEUE_STATES' in os.environ, 'SLURM_TIME_FORMAT' in os.environ)"
    assert run_command([sys.executable, "-c", show], 60.0).output == "False False\n"
    with pytest.raises(subprocess.TimeoutExpired):
        run_command([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)
    with pytest.raises(FileNotFoundError):
        run_command([str(Path(sys.executable).parent / "no-such-squeue")], 1.0)


def test_a_cancel_takes_one_job_and_can_spare_one_that_started() -> None:
    slurm = RecordedSlurm()
    cancel_job("1234_5", runner=slurm)
    cancel_job("7", only_waiting=True, runner=slurm)
    assert slurm.commands == [("scancel", "1234_5"), ("scancel", "--state=PENDING", "7")]
    with pytest.raises(UsageError, match="not an ID"):
        cancel_job("--user=root", runner=slurm)


def test_a_cancel_that_fails_says_what_slurm_said() -> None:
    said = "scancel: error: Kill job error on job id 7: Access/permission denied\n"
    with pytest.raises(LaunchError, match=r"Job 7 was not cancelled. scancel: .*denied"):
        cancel_job("7", runner=RecordedSlurm(status=1, errors=said))
    absent = RecordedSlurm()
    absent.raises = FileNotFoundError("scancel")
    with pytest.raises(LaunchError, match="`scancel 7`"):
        cancel_job("7", runner=absent)


hostile_text = st.text(max_size=60).filter(lambda text: "<S>" not in text)


@given(
    names=st.lists(hostile_text, max_size=5),
    state=hostile_text,
    reason=hostile_text,
    directory=hostile_text,
    times=st.lists(hostile_text, min_size=3, max_size=3),
)
def test_no_field_can_pass_for_another(
    names: list[str], state: str, reason: str, directory: str, times: list[str]
) -> None:
    fields = {"state": state, "reason": reason, "directory": directory}
    fields |= {"start": times[0], "end": times[1], "submitted": times[2]}
    output = "".join(job_line(id=n + 1, name=name, **fields) for n, name in enumerate(names))
    jobs = parse_jobs(output, "<S>")
    assert [job.name for job in jobs.values()] == names
    assert list(jobs) == [str(number + 1) for number in range(len(names))]
    assert {job.reason for job in jobs.values()} <= {reason, ""}


@given(st.text(max_size=300))
def test_any_output_is_parsed(output: str) -> None:
    for separator in ("<S>", "a", "\n"):
        for name, job in parse_jobs(output, separator).items():
            assert is_job_id(name)
            assert isinstance(job.nodes, tuple)


def test_an_answer_that_was_cut_off_has_only_whole_jobs() -> None:
    whole = job_line(id=1) + job_line(id=2)
    assert list(parse_jobs(whole[: len(whole) - 40], "<S>")) == ["1"]


def test_a_list_of_nodes_in_another_notation_is_one_name() -> None:
    for nodes, names in (("tn[0-1],b", ("tn0", "tn1", "b")), ("a[1-x]", ("a[1-x]",)), ("", ())):
        slurm = RecordedSlurm(job_line(state="RUNNING", nodes=nodes))
        assert read_jobs(["1234"], runner=slurm).jobs["1234"].nodes == names


# -- a launch beside a batch job ---------------------------------------------------------------


def run_with_job(tmp_path: Path) -> tuple[RunDirectory, LaunchOptions]:
    run = RunDirectory(tmp_path / "run")
    run.create()
    job = BatchJob(
        scheduler="slurm", id="1234", user="ada", submitted_at=1795341252.0, script="job.sbatch"
    )
    store(run.job_file, job)
    options = LaunchOptions(
        run_directory=str(run.root),
        command=(sys.executable, "-c", "pass"),
        working_directory=str(tmp_path),
        standby=False,
    )
    return run, options


def hand_over(monkeypatch: pytest.MonkeyPatch, slurm: RecordedSlurm) -> None:
    """Lets a launch ask a recorded Slurm about the job of the run."""
    monkeypatch.setattr(preflight, "SCHEDULER", Slurm(slurm))


@pytest.mark.parametrize(
    ("state", "words"), [("PENDING", "waits in the queue"), ("RUNNING", "runs")]
)
def test_no_run_is_launched_beside_its_batch_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    run, options = run_with_job(tmp_path)
    slurm = RecordedSlurm(job_line(state=state))
    hand_over(monkeypatch, slurm)
    with pytest.raises(LaunchError, match=rf"Batch job 1234 of this run {words}\. .* `tfckpt-tui"):
        launch(options)
    assert run.job_file.exists()


@pytest.mark.parametrize("asks_slurm", [False, True])
def test_no_run_is_launched_if_slurm_cannot_be_asked_about_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_slurm: bool
) -> None:
    run, options = run_with_job(tmp_path)
    if asks_slurm:
        options = msgspec.structs.replace(options, slurm=SlurmOptions())
    slurm = RecordedSlurm()
    slurm.raises = subprocess.TimeoutExpired("squeue", 10)
    hand_over(monkeypatch, slurm)
    before = run.job_file.read_bytes()
    with pytest.raises(LaunchError, match=r"Batch job 1234 .* within 10 s\. .* --force` lau"):
        launch(options)
    assert run.job_file.read_bytes() == before
    if not asks_slurm:
        launch(options, force=True)
        assert not run.job_file.exists()


def test_no_run_is_launched_beside_a_job_that_slurm_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, options = run_with_job(tmp_path)
    slurm = RecordedSlurm.forgetful(private="jobs")
    monkeypatch.setattr(os, "geteuid", lambda: 54322)
    hand_over(monkeypatch, slurm)
    words = r"1234 of this run may wait .* job of ada is not visible to you .* as the user of"
    with pytest.raises(LaunchError, match=words):
        launch(options)
    assert run.job_file.exists()


def test_a_launch_on_this_machine_ends_the_story_of_an_earlier_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, options = run_with_job(tmp_path)
    slurm = RecordedSlurm(job_line(state="CANCELLED"))
    hand_over(monkeypatch, slurm)
    launch(options)
    assert slurm.asked("squeue") == 1
    assert not run.job_file.exists()


def test_a_command_that_takes_too_long_is_quoted() -> None:
    # As sbatch does while the queue is full.
    script = "echo 'sbatch: error: unable to accept job, sleeping and retrying.' >&2; sleep 60"
    with pytest.raises(LaunchError) as caught:
        ask_slurm(["sh", "-c", script], seconds=1.0)
    assert str(caught.value) == (
        "`sh` did not end within 1 s. It said: sbatch: error: unable to accept job, sleeping and "
        "retrying."
    )
    with pytest.raises(LaunchError, match="Check with `sinfo` whether Slurm works"):
        ask_slurm(["sleep", "60"], seconds=0.1)


def test_the_supervisor_beats_while_the_controller_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = tmp_path / "answer"
    slow = tmp_path / "scontrol"
    slow.write_text(
        f"#!/bin/sh\nuntil [ -e {answer} ]; do sleep 0.1; done\necho JobState=RUNNING\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            answer.touch()

    assert read_job("7", beat).state == "RUNNING"
    assert len(beats) >= 3
