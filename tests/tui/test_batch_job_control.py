"""Cancelling the batch job of a run, and submitting it again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from app_driving import top, until, until_jobs_are_shown, until_shown
from batch_runs import runs, waits, with_job
from json_reference import check
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from recorded_slurm import RecordedSlurm
from tfckpt_trainer.errors import ExitCode, LaunchError, NoTrainerError, RefusedError, UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.preflight import check_nothing_trains
from tfckpt_trainer.launch.slurm import submission
from tfckpt_trainer.launch.slurm.commands import CommandOutput, UnansweredError
from tfckpt_trainer.launch.slurm.earlier_start import JobStart, require_job_of_run
from tfckpt_trainer.launch.slurm.job_queries import read_jobs
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.reports.control import ForcedStopReport
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.control import force_stop as force_stop_module
from tfckpt_tui.services.control import job_control
from tfckpt_tui.services.control.force_stop import force_stop, plan_force_stop
from tfckpt_tui.services.control.job_control import (
    cancel_waiting_job,
    find_waiting_job,
    script_of,
    submit_again,
)
from tfckpt_tui.services.control.request import FrontEnd

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=8:00:00
#SBATCH --job-name=a\x1b[31mb
srun true
"""


class Queue(RecordedSlurm):
    """A queue that takes one job, and lets it be cancelled."""

    submitted = "1235;tn\n"

    def __call__(self, command: Sequence[str], seconds: float) -> CommandOutput:
        found = super().__call__(command, seconds)
        if command[0] == "scancel" and self.status == 0:
            self.output = self.output.replace("<S>PENDING<S>", "<S>CANCELLED<S>")
        if command[0] == "sbatch" and self.status == 0:
            self.output = waits(id=self.submitted.split(";")[0], submitted=int(time.time())).output
            return CommandOutput(0, self.submitted)
        return found


def refusing_sbatch(command: Sequence[str], seconds: float) -> CommandOutput:
    """Slurm that has forgotten all jobs and takes none."""
    if command[0] == "sbatch":
        return CommandOutput(1, "", "sbatch: error: invalid partition: gpu\n")
    return RecordedSlurm.forgetful()(command, seconds)


class SlowQueue(Queue):
    """Slurm that answers no submission, and shows what it has accepted after some questions.

    Attributes:
        accepted: What it shows at last.
        silent: How many questions it answers without that job.
    """

    def __init__(self, accepted: str, silent: int = 0) -> None:
        super().__init__("")
        self.accepted, self.silent = accepted, silent
        self.is_submitted = False

    def __call__(self, command: Sequence[str], seconds: float) -> CommandOutput:
        if command[0] == "sbatch":
            self.commands.append(command)
            self.is_submitted = True
            raise subprocess.TimeoutExpired(command, seconds)
        if command[0] == "squeue" and self.is_submitted:
            self.silent -= 1
            if self.silent < 0:
                self.output = self.accepted
        return super().__call__(command, seconds)


def accepted(made: RunFactory, **fields: object) -> str:
    """What Slurm shows of a job of the run."""
    script = {"script": str(made.run.job_script), "submitted": int(time.time())}
    return waits(**{"id": "1235", **script, **fields}).output


def without_slurm() -> RecordedSlurm:
    """A machine without Slurm's commands."""
    absent = RecordedSlurm()
    absent.raises = FileNotFoundError("squeue")
    return absent


def launched_on_slurm(made: RunFactory, max_requeues: int) -> None:
    store(
        made.run.launch_file,
        LaunchOptions(
            run_directory=str(made.run.root),
            command=("python", "train.py"),
            working_directory="/",
            slurm=SlurmOptions(max_requeues=max_requeues),
        ),
    )


def never(_seconds: float) -> None:
    raise AssertionError("it waited")


@pytest.fixture
def queued(tmp_path: Path) -> RunFactory:
    """A run whose job waits in the queue."""
    made = without_heartbeats(two_branches(tmp_path / "language-model"))
    with_job(made, max_requeues=5, started_at=1.0, requeues=2, nodes=["tn0"])
    made.run.job_script.write_text(SCRIPT)
    return made


cancel = partial(cancel_waiting_job, through=FrontEnd.APP, sleep=never)
submit = partial(submit_again, through=FrontEnd.APP)


def test_a_waiting_job_is_cancelled_and_the_event_log_says_so(queued: RunFactory) -> None:
    slurm = Queue(waits().output)
    message = cancel(queued.run, scheduler=Slurm(slurm))
    assert message == "Cancelled batch job 1234, which waited in the queue."
    assert ("scancel", "--state=PENDING", "1234") in slurm.commands
    entry = read_entries(queued.run)[-1]
    assert (entry.kind, entry.message) == (EventKind.STOP, message)
    assert entry.by.endswith("terminal app")


def test_a_job_that_has_started_meanwhile_is_left_alone(queued: RunFactory) -> None:
    before = read_entries(queued.run)
    with pytest.raises(RefusedError, match=r"it has started on tn\[0-1\]. Stop the run with `tf"):
        cancel(queued.run, scheduler=Slurm(runs(time.time())))
    assert read_entries(queued.run) == before


def test_a_job_that_slurm_does_not_cancel_is_told(
    queued: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(job_control, "CANCEL_SECONDS", -1.0)
    with pytest.raises(LaunchError, match=r"1234 still waits .* `scancel -v 1234`"):
        cancel_waiting_job(
            queued.run, through=FrontEnd.APP, scheduler=Slurm(waits()), sleep=slept.append
        )
    with pytest.raises(LaunchError, match="denied"):
        cancel(queued.run, scheduler=Slurm(Queue(waits().output, status=1, errors="error: denied")))
    queued.run.job_file.unlink()
    with pytest.raises(UsageError, match="no batch job"):
        cancel(queued.run, scheduler=Slurm(waits()))


def test_a_script_whose_job_record_is_damaged_is_submitted_again(queued: RunFactory) -> None:
    launched_on_slurm(queued, max_requeues=7)
    queued.run.job_file.write_text("{}")
    job, _ = submit(queued.run, scheduler=Slurm(Queue()))
    assert job == load(queued.run.job_file, BatchJob)


def test_the_kept_script_is_submitted_again(queued: RunFactory) -> None:
    slurm = Queue()
    job, message = submit(queued.run, scheduler=Slurm(slurm))
    assert ("sbatch", "--parsable", str(queued.run.job_script)) in slurm.commands
    assert message == "Submitted batch job 1235, with the options of the last launch."
    assert job == load(queued.run.job_file, BatchJob)
    assert (job.id, job.cluster, job.requeues, job.max_requeues) == ("1235", "tn", 0, 5)
    assert (job.nodes, job.started_at, job.user) == ([], None, "ada")
    assert read_entries(queued.run)[-1].kind is EventKind.SUBMIT


def test_a_job_that_started_at_once_keeps_its_own_record(queued: RunFactory) -> None:
    slurm = Queue()

    def starts_at_once(command: Sequence[str], seconds: float) -> CommandOutput:
        found = slurm(command, seconds)
        if command[0] == "sbatch":
            with_job(queued, id="1235", started_at=5.0, nodes=["tn2"])
        return found

    submit(queued.run, scheduler=Slurm(starts_at_once))
    assert load(queued.run.job_file, BatchJob).nodes == ["tn2"]


@pytest.mark.parametrize("slurm", [waits(), runs(time.time())])
def test_an_active_job_is_not_submitted_again(queued: RunFactory, slurm: RecordedSlurm) -> None:
    with pytest.raises(RefusedError, match=r"Job 1234 of this run is .* Stop it first"):
        submit(queued.run, scheduler=Slurm(slurm))
    assert slurm.asked("sbatch") == 0


def test_a_job_that_cannot_be_submitted_changes_nothing(queued: RunFactory) -> None:
    before = queued.run.job_file.read_bytes()
    with pytest.raises(LaunchError, match="invalid partition: gpu"):
        submit(queued.run, scheduler=Slurm(refusing_sbatch))
    entry = read_entries(queued.run)[-1]
    assert entry.kind is EventKind.FAILED
    assert entry.message.startswith("The submission failed. `sbatch` failed: sbatch: error: inv")
    odd = Queue()
    odd.submitted = "hello"
    assert queued.run.job_file.read_bytes() == before
    queued.run.job_script.unlink()
    with pytest.raises(UsageError, match=r"no batch script. Launch it with `tfckpt-tui launch --s"):
        submit(queued.run, scheduler=Slurm(odd))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for a job for a moment only."""
    monkeypatch.setattr(submission, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(submission, "LOOK_PAUSE_SECONDS", 0.01)


def test_a_job_of_an_unanswered_submission_is_found_and_recorded(
    queued: RunFactory, impatient: None
) -> None:
    job, message = submit(queued.run, scheduler=Slurm(SlowQueue(accepted(queued), silent=2)))
    assert message == "Submitted batch job 1235, with the options of the last launch."
    assert load(queued.run.job_file, BatchJob) == job
    assert job.id == "1235"


def test_an_unanswered_submission_is_not_told_as_failed_and_adopted_by_the_next_launch(
    queued: RunFactory, impatient: None
) -> None:
    slurm = SlowQueue(accepted(queued), silent=9999)
    with pytest.raises(UnansweredError, match=r"did not answer .* may have accepted the job"):
        submit(queued.run, scheduler=Slurm(slurm))
    entry = read_entries(queued.run)[-1]
    assert (entry.kind, entry.details) == (EventKind.NOTE, {"submit": "unanswered"})
    # A job that starts now must not find an earlier one in its place.
    require_job_of_run(queued.run, JobStart("1235", 0), limit_seconds=0.0)

    slurm.silent = 0
    job, message = submit(queued.run, scheduler=Slurm(slurm))
    assert message == "Slurm had accepted job 1235 already. No other was submitted."
    assert (job, slurm.asked("sbatch")) == (load(queued.run.job_file, BatchJob), 1)
    assert read_entries(queued.run)[-1].kind is EventKind.SUBMIT
    with pytest.raises(RefusedError, match="Job 1235 of this run is queued"):
        submit(queued.run, scheduler=Slurm(slurm))


@pytest.mark.parametrize(
    "fields", [{"script": "/elsewhere/.tfckpt/job.sbatch"}, {"state": "CANCELLED"}]
)
def test_a_run_without_an_accepted_job_is_submitted_again(
    queued: RunFactory, impatient: None, fields: dict[str, object]
) -> None:
    launched_on_slurm(queued, max_requeues=7)
    with pytest.raises(UnansweredError):
        submit(queued.run, scheduler=Slurm(SlowQueue(accepted(queued, **fields))))
    job, _ = submit(queued.run, scheduler=Slurm(Queue(accepted(queued, **fields))))
    assert job.id == "1235"


def test_nothing_is_submitted_while_slurm_cannot_say_what_it_has_accepted(
    queued: RunFactory, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnansweredError):
        submit(queued.run, scheduler=Slurm(SlowQueue("")))
    silent = without_slurm()
    with pytest.raises(LaunchError, match="may have accepted a job of this run, and cannot be"):
        submit(queued.run, scheduler=Slurm(silent))
    assert silent.asked("sbatch") == 0
    monkeypatch.setattr(submission, "read_jobs", partial(read_jobs, runner=silent))
    with pytest.raises(LaunchError, match="may have accepted"):
        check_nothing_trains(queued.run)
    check_nothing_trains(queued.run, force=True)


def test_a_stop_cancels_a_job_whose_submission_was_unanswered(
    queued: RunFactory, impatient: None
) -> None:
    slurm = SlowQueue(accepted(queued), silent=9999)
    with pytest.raises(UnansweredError):
        submit(queued.run, scheduler=Slurm(slurm))
    slurm.silent = 0
    waiting = find_waiting_job(queued.run, scheduler=Slurm(slurm))
    assert waiting is not None and waiting.id == "1235"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (CommandOutput(1, "", "sbatch: error: Batch job submission failed: Socket timed out on "
                       "send/recv operation"), UnansweredError),
        (CommandOutput(1, "", "sbatch: error: Batch job submission failed: Unable to contact slurm "
                       "controller (receive failure)"), UnansweredError),
        (CommandOutput(1, "", "Unexpected message received for job 7"), UnansweredError),
        (CommandOutput(-9, ""), UnansweredError),
        (CommandOutput(0, "hello"), UnansweredError),
        (CommandOutput(1, "", "sbatch: error: Batch job submission failed: Unable to contact slurm "
                       "controller (connect failure)"), LaunchError),
    ],
)  # fmt: skip
def test_only_a_controller_that_was_not_reached_refuses_for_certain(
    queued: RunFactory, impatient: None, answer: CommandOutput, kind: type[Exception]
) -> None:
    with pytest.raises(LaunchError) as raised:
        submission.submit_script(
            queued.run,
            queued.run.job_script,
            "",
            lambda command, _: answer if command[0] == "sbatch" else CommandOutput(0, ""),
        )
    assert type(raised.value) is kind


def test_a_script_that_slurm_refused_is_submitted_again(queued: RunFactory) -> None:
    queued.run.job_file.unlink()
    launched_on_slurm(queued, max_requeues=7)
    job, _ = submit(queued.run, scheduler=Slurm(Queue()))
    assert (job.id, job.max_requeues, job.script) == ("1235", 7, ".tfckpt/job.sbatch")
    assert job == load(queued.run.job_file, BatchJob)


def test_no_job_is_submitted_beside_one_that_slurm_cannot_be_asked_about(
    queued: RunFactory,
) -> None:
    with pytest.raises(RefusedError, match=r"Batch job 1234 .* may wait .* `scancel 1234`"):
        submit(queued.run, scheduler=Slurm(without_slurm()))
    stopped = SupervisorStatus(
        pid=1,
        host="tn0",
        process_started_at=1.0,
        updated_at=time.time() - 60,
        interval_seconds=1.0,
        state=SupervisorState.STOPPED,
    )
    store(queued.run.supervisor_status, stopped)
    with pytest.raises(LaunchError, match="has no `sbatch`"):
        submit(queued.run, scheduler=Slurm(without_slurm()))
    # The supervisor has left, but Slurm starts the job again.
    queued.event_log(EventKind.REQUEUE, "The time limit of the job is near.")
    with pytest.raises(RefusedError, match="may wait in the queue or run"):
        submit(queued.run, scheduler=Slurm(without_slurm()))


@pytest.mark.parametrize("script", ["", "/etc/passwd", "../../evil", ".tfckpt/../../../evil"])
def test_a_record_cannot_name_a_script_elsewhere(queued: RunFactory, script: str) -> None:
    assert script_of(queued.run, with_job(queued, script=script)) == queued.run.job_script


# -- the commands ------------------------------------------------------------------------------


def commands_with(monkeypatch: pytest.MonkeyPatch, slurm: RecordedSlurm) -> None:
    for function in (find_waiting_job, cancel_waiting_job, plan_force_stop, force_stop):
        changed: Callable[..., object] = partial(function, scheduler=Slurm(slurm))
        monkeypatch.setattr(f"tfckpt_tui.cli.run.stop.{function.__name__}", changed)


def test_stop_cancels_a_job_that_waits(
    queued: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Queue(waits().output)
    commands_with(monkeypatch, slurm)
    said = tool("stop", queued.run.root, "--json")
    check(ForcedStopReport, said.json)
    assert said.json["message"].startswith("Cancelled batch job 1234")
    assert tool("stop", queued.run.root).code == ExitCode.NO_TRAINER


def test_a_command_for_a_trainer_says_that_the_job_waits(
    queued: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = waits(reason="JobHeldUser")
    monkeypatch.setattr(
        "tfckpt_tui.services.control.no_trainer.JobReader", lambda: JobReader(Slurm(slurm))
    )
    said = tool("save", queued.run.root)
    assert said.code == ExitCode.NO_TRAINER
    assert "its batch job 1234 waits in the queue: it is held; release it" in said.words


def test_a_job_that_slurm_cannot_be_asked_about_is_not_nothing(
    queued: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = without_slurm()
    commands_with(monkeypatch, slurm)
    monkeypatch.setattr(
        "tfckpt_tui.services.control.no_trainer.JobReader", lambda: JobReader(Slurm(slurm))
    )
    said = tool("stop", queued.run.root)
    assert said.code == ExitCode.NO_TRAINER
    assert "Batch job 1234 of this run may wait in the queue or run. Slurm cannot be" in said.words
    said = tool("stop", queued.run.root, "--force")
    assert said.code == ExitCode.PROBLEM
    assert "Job 1234 was not cancelled: this machine has no Slurm commands." in said.words
    slurm.raises = None
    slurm.status, slurm.errors = 1, "error: Unable to contact slurm controller\n"
    said = tool("stop", queued.run.root, "--force")
    assert "Unable to contact slurm controller Cancel it on a host with" in said.words
    slurm.status = 0
    with pytest.raises(NoTrainerError, match="Nothing is running"):
        plan_force_stop(queued.run, scheduler=Slurm(slurm))


def test_stop_by_force_cancels_a_job_whose_trainer_does_not_answer(
    queued: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = runs(time.time())
    commands_with(monkeypatch, slurm)
    assert tool("stop", queued.run.root).code == ExitCode.NO_TRAINER
    assert slurm.asked("scancel") == 0
    said = tool("stop", queued.run.root, "--force")
    assert said.data.startswith("Cancelled batch job 1234.")
    assert slurm.commands[-1] == ("scancel", "1234")
    entry = read_entries(queued.run)[-1]
    assert (entry.kind, entry.message) == (EventKind.STOP, said.data.strip())


# -- the app -----------------------------------------------------------------------------------


def app_on(made: RunFactory, slurm: RecordedSlurm, *, read_only: bool = False) -> TfckptApp:
    """The app, for which time passes faster between two questions to Slurm."""
    jobs = JobReader(Slurm(slurm), clock=lambda: 10 * time.monotonic())
    monitor = Monitor(made.run, poll=0.1, jobs=jobs)
    return TfckptApp(made.run, monitor=monitor, read_only=read_only)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_x_cancels_and_L_submits_again(
    queued: RunFactory, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    slurm = Queue(waits(reason="JobHeldUser").output)
    for function in (cancel_waiting_job, submit_again):
        changed: Callable[..., object] = partial(function, scheduler=Slurm(slurm))
        monkeypatch.setattr(job_control, function.__name__, changed)
    app = app_on(queued, slurm)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until_shown(pilot, "◷ queued   ✗ the job is held")
        if size[0] >= 80:
            await until_shown(pilot, "x cancel")
        await pilot.press("L")
        await until_shown(pilot, "Not now: launch")
        await pilot.press("x")
        await until_shown(pilot, "Only its place")
        await until_shown(pilot, "scontrol release")
        assert slurm.asked("scancel") == 0
        await pilot.press("y")
        await until_jobs_are_shown(pilot)
        await until_shown(pilot, "○ unattended   job 1234: cancelled")
        await pilot.press("L")
        await until_shown(pilot, "--nodes=2")
        assert "--job-name=a␛[31mb" in top(app)
        assert "ckpt-b1-400" in top(app)
        await pilot.press("y")
        await until_jobs_are_shown(pilot)
        await until_shown(pilot, "◷ queued   job 1235")
    assert (slurm.asked("scancel"), slurm.asked("sbatch")) == (1, 1)


async def test_a_dialog_notices_that_the_job_has_started(queued: RunFactory) -> None:
    slurm = waits()
    app = app_on(queued, slurm)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "◷ queued")
        await pilot.press("x")
        await until_shown(pilot, "Only its place")
        slurm.output = runs(time.time()).output
        with_job(queued, started_at=time.time(), nodes=["tn0", "tn1"])
        await until_shown(pilot, "✗ The job does not wait")
        await pilot.press("y", "n")
        await until(pilot, lambda: "Only its place" not in top(app), "a closed dialog")
        await pilot.press("x")
        await until_shown(pilot, "Not now: stop")
        slurm.output = waits().output
        with_job(queued, id="1234", started_at=time.time(), requeues=3)

        def is_requeued() -> bool:
            """Whether Slurm was asked again after the record of the job has changed."""
            job = app.snapshot.job if app.snapshot is not None else None
            return job is not None and job.record.requeues == 3 and job.is_waiting

        await until(pilot, is_requeued, "the job in the queue again")
        await until_shown(pilot, "◷ queued")
        await pilot.press("x")
        await until_shown(pilot, "Only its place")
        queued.run.job_file.unlink()
        await until_shown(pilot, "✗ The job does not wait")
    assert slurm.asked("scancel") == 0


async def test_a_missing_script_is_told_before_anything_happens(queued: RunFactory) -> None:
    queued.run.job_script.unlink()
    app = app_on(queued, Queue(waits(state="CANCELLED").output))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "cancelled")
        await pilot.press("L")
        await until_shown(pilot, "✗ The batch script is")


async def test_X_tries_to_cancel_a_job_that_slurm_cannot_be_asked_about(
    queued: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = without_slurm()
    planned = partial(plan_force_stop, scheduler=Slurm(slurm))
    monkeypatch.setattr(force_stop_module, "plan_force_stop", planned)
    app = app_on(queued, slurm)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(
            pilot, lambda: app.snapshot and app.snapshot.job and app.snapshot.job.problem, "silence"
        )
        await pilot.press("x")
        await until_shown(pilot, "Not now: stop")
        await pilot.press("X")
        await until_shown(pilot, "may wait or run")


async def test_L_submits_a_script_that_slurm_refused(queued: RunFactory) -> None:
    queued.run.job_file.unlink()
    launched_on_slurm(queued, max_requeues=7)
    app = app_on(queued, Queue())
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "unattended")
        await pilot.press("L")
        await until_shown(
            pilot, "No job of the last launch is known. Submits its batch script to Slurm."
        )
        assert "--nodes=2" in top(app)


async def test_nothing_is_cancelled_read_only(queued: RunFactory) -> None:
    app = app_on(queued, waits(), read_only=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "◷ queued")
        await pilot.press("x")
        await until_shown(pilot, "opened to read only")


async def test_X_cancels_a_job_that_runs(
    queued: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = runs(time.time())
    for function in (plan_force_stop, force_stop):
        changed: Callable[..., object] = partial(function, scheduler=Slurm(slurm))
        monkeypatch.setattr(force_stop_module, function.__name__, changed)
    app = app_on(queued, slurm)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        # Before Slurm has answered, the run has ended for all that is known.
        await until_shown(pilot, "min left")
        await pilot.press("X")
        await until_shown(pilot, "Batch job 1234 is active on tn[0-1].")
        assert slurm.asked("scancel") == 0
        await pilot.press("y")
        await until_shown(pilot, "Cancelled batch job 1234.")
        await until_jobs_are_shown(pilot)
    assert slurm.commands.count(("scancel", "1234")) == 1
