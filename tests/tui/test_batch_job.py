"""The batch job of a run: what is asked, how often, and what is shown of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from app_driving import StillMonitor, shown, until, until_shown
from batch_runs import SUBMITTED_AT, ended, runs, waits, with_job
from msgspec.structs import replace
from rundir_factory import HOST, RunFactory, two_branches, without_heartbeats

from command_running import Tool
from file_times import next_tick
from recorded_slurm import RecordedSlurm
from refusing_disk import RefusingDisk
from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.job_reader import (
    ENDED_SECONDS,
    LEAST_SECONDS,
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    SPREAD,
    WAITING_SECONDS,
    JobReader,
)
from tfckpt_tui.services.batch.job_view import JobView, state_with_job
from waiting import MOST_SECONDS, PassingTime

SIZES = [(60, 20), (80, 24), (120, 40), (200, 50)]


def record(**fields: Any) -> BatchJob:
    usual: dict[str, Any] = {"user": "ada", "submitted_at": SUBMITTED_AT, "script": "job.sbatch"}
    return BatchJob(**{"scheduler": "slurm", "id": "1234", **usual, **fields})


def stopped_supervisor(made: RunFactory, state: SupervisorState, at: float) -> None:
    status = SupervisorStatus(
        pid=1,
        host=HOST,
        process_started_at=at - 100,
        updated_at=at,
        interval_seconds=1.0,
        state=state,
    )
    store(made.run.supervisor_status, status)


# -- how often Slurm is asked ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slurm", "pause"),
    [
        (waits(), WAITING_SECONDS),
        (runs(SUBMITTED_AT), RUNNING_SECONDS),
        (ended("COMPLETING"), WAITING_SECONDS),
        (ended("TIMEOUT"), ENDED_SECONDS),
        (RecordedSlurm(), ENDED_SECONDS),
    ],
)
def test_slurm_is_asked_at_a_gentle_rate(slurm: RecordedSlurm, pause: float) -> None:
    clock, job = PassingTime(1000.0), record()
    reader = JobReader(Slurm(slurm), clock)
    first = reader.read(job, RunState.TRAINING)
    clock.now += pause - 0.1
    assert reader.read(job, RunState.TRAINING) == first
    assert slurm.asked("squeue") == 1
    clock.now += 0.2
    reader.read(job, RunState.TRAINING)
    assert slurm.asked("squeue") == 2


def test_a_new_start_and_an_end_are_asked_about_soon() -> None:
    clock, slurm = PassingTime(1000.0), runs(SUBMITTED_AT)
    reader = JobReader(Slurm(slurm), clock)
    reader.read(record(started_at=1.0), RunState.TRAINING)
    clock.now += LEAST_SECONDS
    reader.read(record(started_at=1.0), RunState.DEGRADED)
    assert slurm.asked("squeue") == 1
    reader.read(record(started_at=1.0), RunState.FAILED)
    assert slurm.asked("squeue") == 2
    clock.now += LEAST_SECONDS
    reader.read(record(started_at=2.0, requeues=1), RunState.FAILED)
    assert slurm.asked("squeue") == 3
    reader.read(record(id="1235"), RunState.FAILED)
    assert slurm.asked("squeue") == 3, "never more often than every LEAST_SECONDS"


def test_a_silent_slurm_is_asked_less_and_less_often() -> None:
    clock, slurm = PassingTime(1000.0), RecordedSlurm(status=1, errors="error: Unable to contact\n")
    reader = JobReader(Slurm(slurm), clock)
    pauses = []
    for _ in range(6):
        view = reader.read(record())
        assert view is not None and "Unable to contact" in view.problem
        before = clock.now
        for _ in range(1 + int(LONGEST_SILENT_SECONDS)):
            if reader.is_due(record()):
                break
            clock.now += 1
        pauses.append(clock.now - before)
    assert pauses[:2] == [SILENT_SECONDS, 2 * SILENT_SECONDS]
    assert pauses[-1] == LONGEST_SILENT_SECONDS


class Watched:
    """A run that several readers look at while time passes."""

    def __init__(self, made: RunFactory, slurm: RecordedSlurm, readers: int) -> None:
        self.run, self.clock = made.run, PassingTime(1000.0)
        self.record = with_job(made)
        self.readers = [JobReader(Slurm(slurm), self.clock) for _ in range(readers)]

    def look(self, told_at: float = 0.0) -> list[JobView | None]:
        return [
            reader.read(self.record, RunState.UNATTENDED, told_at, share=self.run)
            for reader in self.readers
        ]

    def watch(self, seconds: int) -> None:
        for _ in range(seconds):
            self.look()
            self.pass_time(1.0)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        path = self.run.job_answer
        if path.is_file():
            written = path.stat().st_mtime - seconds
            os.utime(path, (written, written))
        # An answer is told from the one before by its time.
        next_tick(self.run.root)


def test_ten_readers_of_a_run_ask_as_often_as_one(tmp_path: Path) -> None:
    asked = []
    for count in (1, 10):
        slurm = waits()
        made = without_heartbeats(two_branches(tmp_path / f"of-{count}"))
        watched = Watched(made, slurm, count)
        watched.watch(60)
        # The first that asks does so a moment later than due.
        assert slurm.asked("squeue") >= 60 / (WAITING_SECONDS * (1 + SPREAD) + 1)
        assert slurm.asked("squeue") <= 60 / WAITING_SECONDS
        views = watched.look()
        assert views == [views[0]] * count
        assert views[0] is not None and views[0].is_waiting
        asked.append(slurm.asked("squeue"))
    assert abs(asked[0] - asked[1]) <= 1


def test_an_event_makes_one_reader_ask_and_the_others_use_its_answer(tmp_path: Path) -> None:
    slurm = waits()
    watched = Watched(without_heartbeats(two_branches(tmp_path / "run")), slurm, 5)
    watched.look()
    watched.pass_time(LEAST_SECONDS)
    slurm.output = ended("CANCELLED").output
    views = watched.look(told_at=SUBMITTED_AT)
    assert {view and view.state for view in views} == {JobState.CANCELLED}
    assert slurm.asked("squeue") == 2


def test_a_reader_who_cannot_write_asks_for_itself(tmp_path: Path) -> None:
    slurm = waits()
    watched = Watched(without_heartbeats(two_branches(tmp_path / "run")), slurm, 3)
    with using(RefusingDisk(bool, ["rename"])):
        watched.watch(30)
    assert 3 * 2 <= slurm.asked("squeue") <= 3 * 3


def test_a_machine_without_slurm_uses_the_answer_of_another_and_leaves_none(
    tmp_path: Path,
) -> None:
    absent = RecordedSlurm()
    absent.raises = FileNotFoundError()
    made = without_heartbeats(two_branches(tmp_path / "run"))
    away = Watched(made, absent, 1)
    (view,) = away.look()
    assert view is not None and "no Slurm commands" in view.problem
    assert not made.run.job_answer.exists()
    Watched(made, waits(), 1).look()
    (view,) = Watched(made, absent, 1).look()
    assert view is not None and view.is_waiting
    assert absent.asked("squeue") == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema": 99, "id": "1234"}',
        '{"schema": 1, "id": "1234", "report": {"id": "1234"}}',
        '{"schema": 1, "id": "1234", "report": {"id": "1234", "name": "a", "state": "running", '
        '"user": "ada", "partition": "p", "working_directory": "/", '
        '"ends_at": 1e300}}',
    ],
)
def test_a_shared_answer_that_is_not_one_is_not_used(tmp_path: Path, text: str) -> None:
    slurm = waits()
    watched = Watched(without_heartbeats(two_branches(tmp_path / "run")), slurm, 1)
    watched.run.job_answer.parent.mkdir(parents=True, exist_ok=True)
    watched.run.job_answer.write_text(text)
    (view,) = watched.look()
    assert view is not None and view.is_waiting
    assert slurm.asked("squeue") == 1


def test_an_answer_from_the_future_is_not_used(tmp_path: Path) -> None:
    slurm = waits()
    watched = Watched(without_heartbeats(two_branches(tmp_path / "run")), slurm, 1)
    watched.look()
    watched.pass_time(-3600)
    watched.clock.now += 7200
    watched.look()
    assert slurm.asked("squeue") == 2


def test_a_run_without_a_job_and_one_of_another_scheduler_ask_nobody() -> None:
    slurm = RecordedSlurm()
    reader = JobReader(Slurm(slurm))
    assert reader.read(None) is None
    view = reader.read(record(scheduler="later"))
    assert view is not None and view.state is JobState.UNKNOWN
    assert slurm.commands == []


def test_a_snapshot_never_waits_for_slurm(tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    with_job(made)
    may_answer, answered = threading.Event(), threading.Event()
    slurm = waits()

    def slow(command: Any, seconds: float) -> Any:
        assert may_answer.wait(MOST_SECONDS)
        return slurm(command, seconds)

    reader = SnapshotReader(made.run, jobs=JobWatch(JobReader(Slurm(slow)), answered.set))
    before = reader.read(made.now)
    assert before.state is RunState.UNATTENDED
    assert before.job is not None and before.job.state is JobState.UNKNOWN
    may_answer.set()
    assert answered.wait(MOST_SECONDS)
    assert reader.read(made.now).state is RunState.QUEUED
    assert slurm.asked("squeue") == 1


# -- what it means for the state of the run ----------------------------------------------------


@pytest.mark.parametrize("state", [SupervisorState.STOPPED, SupervisorState.FAILED])
def test_a_dead_run_whose_job_waits_is_queued(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: SupervisorState
) -> None:
    made = two_branches(tmp_path, now=time.time() - 600)
    stopped_supervisor(made, state, made.now)
    assert tool("status", tmp_path, "--json").json["run"]["state"] == state.value
    with_job(made, started_at=made.now - 3600, requeues=1, nodes=["tn0", "tn1"])
    slurm = waits(reason="BeginTime", start=int(time.time() + 725))
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    said = tool("status", tmp_path)
    assert said.code == 0
    assert "state     queued: Batch job 1234 waits in the queue: BeginTime (its" in said.data
    assert "job       1234 requeued, BeginTime, expected to start in 12 min" in said.data
    assert "requeued 1 time\n" in said.data


def test_nothing_but_a_waiting_job_makes_a_run_queued() -> None:
    clock = PassingTime(1000.0)
    view = JobReader(Slurm(waits()), clock).read(record())
    for state in RunState:
        is_alive = state in {RunState.TRAINING, RunState.PAUSED, RunState.DEGRADED}
        assert state_with_job(state, view, 0.0) is (state if is_alive else RunState.QUEUED)
        assert state_with_job(state, None, 0.0) is state
        unknown = replace(view, report=None) if view is not None else None
        assert state_with_job(state, unknown, 0.0) is state


def test_a_job_that_has_just_started_makes_a_run_starting() -> None:
    view = JobReader(Slurm(runs(SUBMITTED_AT + 720))).read(record())
    assert view is not None and view.report is not None
    assert view.report.started_at == SUBMITTED_AT
    assert state_with_job(RunState.FAILED, view, SUBMITTED_AT - 60) is RunState.STARTING
    assert state_with_job(RunState.FINISHED, view, SUBMITTED_AT + 60) is RunState.FINISHED
    assert state_with_job(RunState.TRAINING, view, 0.0) is RunState.TRAINING


@pytest.mark.parametrize(
    "fields", [{"user": "eve"}, {"submitted": int(SUBMITTED_AT - 90_000)}, {"id": "1235"}]
)
def test_a_job_of_the_same_number_is_not_the_same_job(fields: dict[str, object]) -> None:
    view = JobReader(Slurm(waits(**fields))).read(record())
    assert view is not None and view.state is JobState.UNKNOWN
    assert "does not know" in view.problem


@pytest.mark.parametrize(
    ("reason", "is_stuck"),
    [
        ("Resources", False),
        ("JobHeldUser", True),
        ("DependencyNeverSatisfied", True),
        # After `scontrol requeuehold`, and after a prolog that fails.
        ("job requeued in held state", True),
        ("launch failed requeued held", True),
    ],
)
def test_a_job_that_waits_for_a_person_is_told_from_others(reason: str, is_stuck: bool) -> None:
    view = JobReader(Slurm(waits(reason=reason, start=int(SUBMITTED_AT) + 3600))).read(record())
    assert view is not None and view.explanation
    assert view.is_stuck == is_stuck
    # Slurm keeps its forecast for a job that is held.
    assert (view.facts.expected_start is None) == is_stuck
    details = ", ".join(view.details(SUBMITTED_AT, runs=False))
    assert ("starts in" in details) != is_stuck


def test_without_slurm_the_record_is_shown_and_says_so(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_branches(tmp_path, live=True)
    with_job(made, nodes=["tn0", "tn1"], started_at=made.now - 60, ends_at=made.now + 7300)
    absent = RecordedSlurm()
    absent.raises = FileNotFoundError("squeue")
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(absent)))
    data = tool("status", tmp_path).data
    assert "state     training\n" in data
    assert "job       1234 unknown (this machine has no Slurm commands), 2 nodes (tn0, tn1)" in data
    assert "2 h 1 min left of its time limit" in data


def test_a_job_that_slurm_has_forgotten_has_no_time_left() -> None:
    view = JobReader(Slurm(RecordedSlurm.forgetful())).read(record(ends_at=SUBMITTED_AT + 7200))
    assert view is not None
    assert (view.ends_at, view.silence) == (None, "")
    assert view.details(SUBMITTED_AT, runs=False) == ()


HIDDEN = "this job of ada is not visible to you (PrivateData=jobs)"


@pytest.mark.parametrize(
    ("private", "silence"), [("none", ""), ("usage,users", ""), ("accounts,jobs,usage", HIDDEN)]
)
def test_a_job_that_slurm_hides_is_not_called_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: str, silence: str
) -> None:
    made = two_branches(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 54322)
    slurm = RecordedSlurm.forgetful(private=private)
    view = JobReader(Slurm(slurm)).read(record(), share=made.run)
    assert view is not None
    assert (view.silence, view.is_forgotten) == (silence, not silence)
    is_lost = state_with_job(RunState.UNATTENDED, view, 0.0) is RunState.FAILED
    # The answer to one who may not see is none for those who may.
    assert is_lost == made.run.job_answer.exists() == (not silence)


def test_slurm_hides_no_job_from_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = RecordedSlurm.forgetful(private="jobs")
    for user, own in ((os.geteuid(), str(os.geteuid())), (0, "ada")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        view = JobReader(Slurm(slurm)).read(record(user=own))
        assert view is not None and view.is_forgotten
    assert slurm.asked("scontrol") == 0


def test_a_job_that_slurm_cannot_be_asked_about_is_unknown() -> None:
    absent = RecordedSlurm()
    absent.raises = FileNotFoundError("squeue")
    view = JobReader(Slurm(absent)).read(record())
    assert view is not None
    assert view.silence == "this machine has no Slurm commands"
    assert view.details(SUBMITTED_AT, runs=False) == ("unknown",)


def test_a_damaged_record_is_no_job(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.run.job_file.write_text("{")
    assert tool("status", tmp_path, "--json").json["job"] is None
    snapshot = SnapshotReader(made.run).read(made.now)
    assert snapshot.job is None
    assert any("job.json" in problem for problem in snapshot.problems)


def test_status_prints_the_job_as_json(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_branches(tmp_path)
    job = with_job(made, max_requeues=5)
    slurm = runs(made.now)
    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    found = tool("status", tmp_path, "--json").json["job"]
    assert found == {
        "scheduler": "slurm",
        "id": "1234",
        "name": "language-model",
        "user": "ada",
        "state": "running",
        "reason": "",
        "expected_start": None,
        "started_at": float(int(made.now - 720)),
        "ends_at": float(int(made.now + 12_000)),
        "nodes": ["tn0", "tn1"],
        "requeues": 0,
        "max_requeues": 5,
        "preempted": False,
        "submitted_at": job.submitted_at,
        "problem": "",
    }


# -- what the app shows ------------------------------------------------------------------------


def header(app: TfckptApp) -> str:
    return shown(app).splitlines()[0].strip()


async def header_with(
    made: RunFactory, slurm: RecordedSlurm, size: tuple[int, int], later: float = 0.0
) -> str:
    """The first line of the dashboard, some seconds after the heartbeats."""
    answered = threading.Event()
    reader = SnapshotReader(made.run, jobs=JobWatch(JobReader(Slurm(slurm)), answered.set))
    reader.read(made.now + later)
    assert answered.wait(MOST_SECONDS)
    app = TfckptApp(made.run, monitor=StillMonitor(reader.read(made.now + later)))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        return header(app)


@pytest.mark.parametrize("size", SIZES)
async def test_a_queued_run_says_why_and_until_when(tmp_path: Path, size: tuple[int, int]) -> None:
    made = without_heartbeats(two_branches(tmp_path / "language-model"))
    with_job(made)
    line = await header_with(made, waits(start=int(made.now + 725)), size)
    assert line.startswith("◷ queued   job 1234: Resources")
    assert "language-model" in line
    assert ("starts in 12 min" in line) == (size[0] >= 80)


@pytest.mark.parametrize("size", SIZES)
async def test_a_long_reason_leaves_room_for_the_name(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "language-model"))
    with_job(made, started_at=made.now - 60)
    reason = "Nodes required for job are DOWN, \x1b[31mDRAINED\nor reserved"
    line = await header_with(made, waits(reason=reason), size)
    assert line.startswith("◷ queued   job 1234: requeued, Nodes r")
    assert "language-model" in line
    assert ("DOWN, ␛[31mDRAINED␊or reserved" in line) == (size[0] >= 120)


@pytest.mark.parametrize("size", SIZES)
async def test_the_header_of_a_running_job_keeps_what_it_had(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = two_branches(tmp_path / "language-model")
    without = await header_with_no_job(made, size)
    with_job(made, started_at=made.now - 60)
    line = await header_with(made, runs(made.now), size)
    for part in ("● training", "language-model", "branch 1", "loss 2.144"):
        assert (part in line) == (part in without)
    assert ("job 1234" in line) == (size[0] >= 80)
    assert ("job 1234: 3 h 20 min left, tn[0-1]" in line) == (size[0] >= 120)


async def header_with_no_job(made: RunFactory, size: tuple[int, int]) -> str:
    app = TfckptApp(made.run, monitor=StillMonitor(SnapshotReader(made.run).read(made.now)))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        return header(app)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("NODE_FAIL", "job 1234: node failure"),
        ("PREEMPTED", "job 1234: preempted"),
        ("TIMEOUT", "job 1234: time limit reached"),
    ],
)
async def test_the_end_of_a_job_stands_beside_the_state(
    tmp_path: Path, state: str, words: str
) -> None:
    made = two_branches(tmp_path / "language-model", now=time.time() - 600)
    with_job(made, started_at=made.now - 60)
    line = await header_with(made, ended(state), (80, 24), later=600)
    assert line.startswith(f"✗ failed   {words}   language-model")


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([EventKind.PREEMPT, EventKind.REQUEUE], "◷ queued   job 1234: preempted"),
        ([EventKind.REQUEUE], "◷ queued   job 1234: requeued"),
        ([EventKind.REQUEUE, EventKind.START], "■ stopped"),
        ([], "■ stopped"),
    ],
)
async def test_a_job_whose_processes_leave_waits_if_it_is_requeued(
    tmp_path: Path, kinds: list[EventKind], words: str, state: str
) -> None:
    made = two_branches(tmp_path / "language-model", now=time.time() - 600)
    with_job(made, started_at=made.now - 60)
    stopped_supervisor(made, SupervisorState.STOPPED, made.now)
    for kind in kinds:
        made.event_log(kind, "It happened.")
    line = await header_with(made, ended(state), (80, 24), later=600)
    assert line.startswith(words)


async def test_the_app_follows_the_job_from_the_queue_to_its_nodes(tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "language-model"))
    with_job(made)
    made.event_log(EventKind.SUBMIT, "Submitted job 1234.")
    slurm, clock = waits(), PassingTime(1000.0)
    monitor = Monitor(made.run, poll=0.1, jobs=JobReader(Slurm(slurm), clock))
    app = TfckptApp(made.run, monitor=monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "◷ queued   job 1234: Resources")
        await until_shown(pilot, "Submitted job 1234.")
        slurm.output = runs(time.time()).output
        clock.now += WAITING_SECONDS * (1 + SPREAD)
        await until_shown(pilot, "◌ starting")
        await until_shown(pilot, "left, tn[0-1]")
        assert slurm.asked("squeue") == 2
