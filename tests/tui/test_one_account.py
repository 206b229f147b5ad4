"""All front ends say the same about a run, in each of its states.

`tests/training/test_training_start.py` holds the same with real processes.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from app_driving import StillMonitor, shown, until, until_shown
from batch_runs import SUBMITTED_AT, waits, with_job
from msgspec.structs import replace
from rundir_factory import HOST, RunFactory, two_branches, without_heartbeats

from command_running import Tool
from front_ends import Said, accounts_of, read_snapshot, what_all_say
from recorded_slurm import RecordedSlurm
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm
from tfckpt_trainer.rundir.command_queue import CommandQueue, requester
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import (
    RunInfo,
    SupervisorState,
    SupervisorStatus,
    WorkerProcess,
)
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase, SaveStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.reading.run_reader import open_run
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start
from tfckpt_tui.services.control.trainer_presence import detect_trainer
from tfckpt_tui.services.runs.brief_reading import brief_account
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.settings.config import Config
from waiting import wait_until

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


def damage(path: Path) -> None:
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


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


def finished(made: RunFactory) -> None:
    for index in range(2):
        made.worker(index, activity=Activity.EXITED, ending=Ending.FINISHED, step=5000)


def unattended(made: RunFactory) -> None:
    without_heartbeats(made)


def joining_elsewhere(made: RunFactory) -> None:
    """Workers on another host write one heartbeat for each phase; their supervisor beats."""
    began = made.now - 120
    workers = [
        WorkerProcess(index=index, pid=4711 + index, process_started_at=began, host=HOST)
        for index in range(2)
    ]
    supervised(made, workers=workers, host=HOST, pid=4000, namespace="", interval_seconds=60.0)
    early = {"activity": Activity.STARTING, "phase": Phase.JOIN, "step": 0, "branch": 0}
    beat = {"process_started_at": began, "updated_at": made.now - 110, "interval_seconds": 20.0}
    for index in range(2):
        made.worker(index, phase_since=began, **early, **beat)


def degraded(made: RunFactory) -> None:
    made.live_worker(0)
    made.worker(1, updated_at=made.now - 100)


def chosen(made: RunFactory) -> None:
    stopped(made)
    choose_start(made.run, "ckpt-200", through=FrontEnd.COMMAND_LINE)


def failed(made: RunFactory) -> None:
    for index in range(2):
        made.worker(index, activity=Activity.EXITED, ending=Ending.FAILED, detail="train.py:1: x")


def queued(made: RunFactory) -> None:
    with_job(without_heartbeats(made))


def forgotten(made: RunFactory) -> None:
    """Slurm does not know the job any more, and no process of it was ever heard."""
    with_job(without_heartbeats(made))


def killed(made: RunFactory) -> None:
    process = psutil.Process(started_process())
    facts = {"pid": process.pid, "host": socket.gethostname(), "namespace": process_namespace()}
    unsaved = SaveStatus(saved_step=400, unsaved_steps=38)
    for index in range(2):
        made.worker(index, process_started_at=process.create_time(), saves=unsaved, **facts)
    process.kill()
    _started[-1].wait()


def refused(made: RunFactory) -> None:
    stopped(made)
    made.event_log(EventKind.START, "Started 2 workers.", 100)
    made.event_log(EventKind.FAILED, REFUSAL, details={"submit": "refused"})


def unanswered(made: RunFactory) -> None:
    stopped(made)
    made.event_log(EventKind.START, "Started 2 workers.", 100)
    made.event_log(EventKind.NOTE, "Slurm did not answer.", details={"submit": "unanswered"})


@pytest.mark.parametrize(
    ("arrange", "expected", "code"),
    [
        (starting, ("starting", 400, 1), 0),
        (between_starts, ("restarting", 400, 1), 1),
        (restarting, ("restarting", 400, 1), 1),
        (training, ("training", 438, 1), 0),
        (paused, ("paused", 438, 1), 0),
        (stopped, ("stopped", 438, 1), 0),
        (finished, ("finished", 5000, 1), 0),
        (unattended, ("unattended", 400, 1), 0),
        (joining_elsewhere, ("starting", 400, 1), 0),
        (degraded, ("degraded", 438, 1), 1),
        (chosen, ("stopped", 200, 2), 0),
        (failed, ("failed", 438, 1), 1),
        (killed, ("failed", 400, 1), 1),
        (queued, ("queued", 400, 1), 0),
        (forgotten, ("failed", 400, 1), 1),
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
    said = accounts_of(made.run, slurm)
    assert said == dict.fromkeys(said, said["status"])
    # Slurm's answer is the one that the others have left for all readers.
    read = open_run(made.run.root)
    assert (read.state, read.step, read.branch) == expected
    # The app, and what the command line asks before it changes the run.
    assert detect_trainer(made.run).answers == said["app"]["trainer_answers"]

    monkeypatch.setattr("tfckpt_tui.cli.run.status.JobReader", lambda: JobReader(Slurm(slurm)))
    printed = Tool(capsys)("status", made.run.root)
    assert printed.code == code
    state, step, branch = expected
    assert f"state     {state}" in printed.data
    assert f"step      {step:,} of 5,000 on branch {branch}" in printed.data

    snapshot = read_snapshot(made.run, slurm)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, f" {state}")
        await until_shown(pilot, f"branch {branch}")
        await until_shown(pilot, f"step {step:,} of 5,000")

    browsed = RunsApp(tmp_path, Config(), JobList(Slurm(slurm)))
    async with browsed.run_test(size=(160, 20)) as pilot:
        await until_shown(pilot, f" {said['app']['words']} ")
        await until_shown(pilot, f" {step:,} ")
        assert re.search(rf" {step:,} +{branch} ", shown(browsed))


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
        phase_since=time.time() - 9000,
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
        await until_shown(pilot, "first step 2 h 30 min")


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


async def test_all_front_ends_say_how_many_steps_a_kill_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = two_branches(tmp_path / "run")
    killed(made)
    said = Tool(capsys)("status", made.run.root).data
    assert "step      400 of 5,000 on branch 1; at least 38 steps lost after it" in said
    # Of a process that is gone, only the failure card says what it last measured.
    assert said.count("912 MB") == said.count("912 MB at its last heartbeat") == 1
    assert "failed, at least 38 steps lost" in Tool(capsys)("runs", tmp_path).data
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(200, 50)) as pilot:
        await until_shown(pilot, "step 400 of 5,000")
        await until_shown(pilot, "at least 38 steps lost")
        await pilot.press("r")
        await until_shown(pilot, "Training continues on branch 1.")
        assert "goes back" not in shown(app)
        await pilot.press("escape")
        assert shown(app).count("912 MB") == shown(app).count("912 MB at its last heartbeat")
        assert "98%" not in shown(app)


@pytest.mark.parametrize("has_trained_since", [False, True])
def test_a_stop_of_a_run_that_starts_again_leaves_its_lost_steps_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_trained_since: bool
) -> None:
    made = two_branches(tmp_path / "run")
    made.event_log(
        EventKind.WORKER_LOST, "Worker 1 was killed.", 60, details={"worker": 1, "step": 438}
    )
    if has_trained_since:
        made.event_log(EventKind.START, "Resumed ckpt-b1-400.", 50)
    facts = {"activity": Activity.EXITED, "ending": Ending.STOPPED, "step": 0, "branch": 0}
    for index in range(2):
        made.worker(index, phase=Phase.RESTORE, **facts)
    told = "step      400 of 5,000 on branch 1; 38 steps lost after it"
    assert (told in Tool(capsys)("status", made.run.root).data) is not has_trained_since


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_all_front_ends_say_that_a_stop_is_under_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_accepted: bool
) -> None:
    made = two_branches(tmp_path / "run")
    training(made)
    queue = CommandQueue(made.run)
    queue.submit(CommandKind.STOP, {"save": True}, requested_by=requester("command line"))
    if is_accepted:
        assert queue.claim(time.time()) is not None
    words = "training, stopping" if is_accepted else "training, stop requested"
    reason = "A stop is under way." if is_accepted else "A stop was requested; no process has"
    assert f"state     {words}: {reason}" in Tool(capsys)("status", made.run.root).data
    assert words in Tool(capsys)("runs", tmp_path).data
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, f"● {words}")


async def test_a_stop_of_a_run_that_has_ended_is_not_under_way(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    stopped(made)
    queue = CommandQueue(made.run)
    queue.submit(CommandKind.STOP, {"save": True}, requested_by=requester("command line"))
    assert queue.claim(time.time()) is not None
    assert read_snapshot(made.run, RecordedSlurm("")).words == "stopped"


async def test_all_front_ends_name_idle_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = two_branches(tmp_path / "run")
    of_launch = "GPU 2 is idle: 2 workers use 1 GPU each."
    of_strategy = "GPU 1 is idle: the strategy uses 1 of 2 GPUs."
    remark = f"{of_launch} {of_strategy}"
    supervised(made, gpus=of_launch)
    info = load(made.run.run_file, RunInfo)
    store(made.run.run_file, replace(info, gpus=of_strategy))
    training(made)
    tool = Tool(capsys)
    assert f"gpus      {remark}" in tool("status", made.run.root).data
    assert tool("status", "--json", made.run.root).json["run"]["gpus"] == remark
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "2 of 2 live")
        await pilot.press("w")
        await until_shown(pilot, of_launch)
    stopped(made)
    supervised(made, gpus=of_launch, state=SupervisorState.STOPPED, workers=[])
    assert tool("status", "--json", made.run.root).json["run"]["gpus"] == ""


def test_all_front_ends_have_an_alert_for_a_newest_checkpoint_that_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, made = Tool(capsys), two_branches(tmp_path / "run")
    stopped(made)
    root = made.run.root
    damage(root / "ckpt-100.data-00000-of-00001")
    assert tool("verify", root, "ckpt-100").code == 1
    assert tool("status", root).code == 0, "a start does not use ckpt-100"
    damage(root / "ckpt-b1-400.data-00000-of-00001")
    assert tool("status", root).code == 0, "nothing has read it since"
    assert tool("verify", root, "ckpt-b1-400").code == 1
    said = tool("status", root)
    assert said.code == 1
    assert "alert     The newest checkpoint ckpt-b1-400 is corrupt: " in said.data
    assert "match its checksum. A start with tfckpt_trainer restores ckpt-500." in said.data
    advised = f"restore {root} --name ckpt-500 --next-start"
    assert f"choose ckpt-500 for the next start with `tfckpt-tui {advised}`." in said.data
    assert [one["kind"] for one in tool("status", root, "--json").json["alerts"]] == [
        "checkpoint-damaged"
    ]
    title = "the newest checkpoint is corrupt"
    assert [one.title for one in read_snapshot(made.run, RecordedSlurm("")).alerts] == [title]
    assert [one["alerts"] for one in tool("runs", tmp_path, "--json").json["runs"]] == [[title]]
    assert tool(*advised.split()).code == 0
    assert tool("status", root).code == 0
    assert [one["alerts"] for one in tool("runs", tmp_path, "--json").json["runs"]] == [[]]


def test_a_run_that_trains_replaces_a_damaged_checkpoint_by_a_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, made = Tool(capsys), two_branches(tmp_path / "run")
    training(made)
    (made.run.root / "ckpt-b1-400.index").write_bytes(b"x")
    said = tool("status", made.run.root)
    assert said.code == 1
    assert f"Save another with `tfckpt-tui save {made.run.root}`." in said.data
    made.checkpoint(438, 1, "ckpt-300")
    assert tool("status", made.run.root).code == 0


async def test_a_run_that_saves_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = two_branches(tmp_path / "run")
    for index in range(2):
        made.live_worker(index, activity=Activity.SAVING)
    assert "state     saving" in Tool(capsys)("status", made.run.root).data
    app = TfckptApp(made.run, monitor=StillMonitor(read_snapshot(made.run, RecordedSlurm(""))))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "▼ saving   run")


@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGSTOP, "is stopped by a signal"), (signal.SIGKILL, "is gone (process ")],
)
async def test_a_worker_that_does_not_react_promises_no_save(
    tmp_path: Path, number: signal.Signals, why: str
) -> None:
    """The dialog says the same as the row of the worker, before its heartbeat is old."""
    made = two_branches(tmp_path / "run")
    process = psutil.Process(started_process())
    facts = {"pid": process.pid, "process_started_at": process.create_time()}
    made.live_worker(0)
    made.worker(
        1, host=socket.gethostname(), namespace=process_namespace(), updated_at=time.time(), **facts
    )
    process.send_signal(number)
    wanted = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    wait_until(lambda: process.status() in wanted, 10, "the signal took effect")
    snapshot = read_snapshot(made.run, RecordedSlurm(""))
    assert snapshot.workers[1].straggling.startswith(why)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, why[:16])
        await pilot.press("x")
        await until_shown(pilot, f"Worker 1 {why}")
        await until_shown(pilot, "38 steps since the newest checkpoint are lost")
        assert "Training stops on" not in shown(app)


def test_a_stop_that_is_accepted_while_the_run_is_read_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_branches(tmp_path)
    queue = CommandQueue(made.run)
    queue.submit(CommandKind.STOP, requested_by=requester(FrontEnd.APP))
    read = CommandQueue._commands_in

    def accept_after_the_first_read(self: CommandQueue, place: Path, *form: type) -> list[Command]:
        monkeypatch.setattr(CommandQueue, "_commands_in", read)
        found = read(self, place, *form)
        queue.claim(time.time())
        return found

    monkeypatch.setattr(CommandQueue, "_commands_in", accept_after_the_first_read)
    assert brief_account(made.run.root).stop is not None


@pytest.mark.parametrize("answers", [True, False])
async def test_who_prunes_is_decided_when_it_happens_not_when_the_app_looked(
    tmp_path: Path, answers: bool
) -> None:
    """A trainer that began or ended since the last snapshot changes who carries out a prune."""
    made = two_branches(tmp_path / "run")
    (stopped if answers else training)(made)
    snapshot = read_snapshot(made.run, RecordedSlurm(""))
    (training if answers else stopped)(made)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        await pilot.press("p", "2", "enter")
        await until(
            pilot,
            lambda: CommandQueue(made.run).pending() or list_trash(made.run),
            "a command to the trainer, or a prune here",
        )
    assert [one.kind for one in CommandQueue(made.run).pending()] == [CommandKind.PRUNE] * answers
    assert bool(list_trash(made.run)) is not answers
