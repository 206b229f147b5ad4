"""Processes that no trainer answers for are named, and ended on request."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from app_driving import opened, top, until, until_jobs_are_shown, until_shown
from msgspec.structs import replace
from rundir_factory import RunFactory

from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.dialogs.dialog import Dialog
from tfckpt_tui.app.dialogs.stop import ForceStopDialog, StopDialog
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.control.force_stop import ForceStopPlan
from tfckpt_tui.services.control.many import make_plan, plan_stop


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[tuple[RunFactory, list[subprocess.Popen[bytes]]]]:
    """A run that starts longer than usual, without the library; and its two processes."""
    made = RunFactory(tmp_path / "run").create()
    started = [
        subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in ("supervisor", "0")
    ]
    supervisor, worker = (psutil.Process(process.pid) for process in started)
    status = SupervisorStatus(
        pid=supervisor.pid,
        host=socket.gethostname(),
        process_started_at=supervisor.create_time(),
        updated_at=worker.create_time() + 40,
        interval_seconds=3600.0,
        state=SupervisorState.RUNNING,
        workers=[WorkerProcess(index=0, pid=worker.pid, process_started_at=worker.create_time())],
        longest_start_seconds=7.0,
    )
    store(made.run.supervisor_status, status)
    yield made, started
    for process in started:
        process.kill()
        process.wait()


async def test_a_script_without_the_library_is_told_and_can_be_ended(foreign) -> None:
    made, processes = foreign
    async with opened(made.run) as pilot:
        await until_shown(pilot, "no heartbeat 30 s after the start")
        await pilot.press("x")
        await until_shown(pilot, "No worker trains yet. The supervisor ends the processes")
        await pilot.press("n", "X")
        await until_shown(pilot, f"worker 0 (process {processes[1].pid})")
        assert "killed" in top(pilot.app)
        await pilot.press("n")
        assert all(process.poll() is None for process in processes)
        await pilot.press("X")
        await until_shown(pilot, f"worker 0 (process {processes[1].pid})")
        await pilot.press("y")
        await until(
            pilot, lambda: all(process.poll() is not None for process in processes), "their end"
        )
        await until_shown(pilot, "Ended all processes of the run")


async def test_a_stop_beside_a_worker_that_is_stopped_says_what_happens(live: RunFactory) -> None:
    live.worker(1, host="elsewhere", updated_at=time.time() - 30)
    async with opened(live.run) as pilot:
        await pilot.press("x")
        await until_shown(pilot, "Worker 1 has sent no heartbeat for")
        assert "No worker can save before it goes on." in top(pilot.app)
        assert "or a few steps later" not in top(pilot.app)


@pytest.mark.parametrize("workers", [(0, 1), (1,)])
async def test_a_stop_of_a_script_that_hangs_while_its_heart_beats_promises_none(
    live: RunFactory, workers: tuple[int, ...]
) -> None:
    def beat() -> bool:
        for index in (0, 1):
            now = time.time()
            last = now - 150 if index in workers else now
            # An interval at which they do not grow old while the app starts.
            live.worker(index, updated_at=now, last_step_at=last, interval_seconds=60.0)
        return True

    beat()
    who = (
        "No worker made a step in 2 min" if len(workers) == 2 else "Worker 1 made no step in 2 min"
    )
    async with opened(live.run) as pilot:
        await pilot.press("x")
        # Its heart beats, however long the app takes.
        await until(pilot, lambda: beat() and who in " ".join(top(pilot.app).split()), "who hangs")
        text = " ".join(top(pilot.app).split())
        assert "Training stops after the next step, if one comes." in text
        assert "If it does not, end the processes with X." in text
        assert "or a few steps later" not in text
    beat()
    plan = make_plan("Stop", [live.run.root], plan_stop).runs[0]
    assert f"after the next step, if one comes. {who}" in plan.words


async def test_a_stop_without_a_checkpoint_does_not_name_one(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=1)
    made.worker(0, step=1, branch=0)
    snapshot = SnapshotReader(made.run).read(time.time())
    async with opened(made.run):
        text = text_of(StopDialog(snapshot))
        assert "Without a save, 1 step is lost." in text
        assert "There is no checkpoint: without a save, the next launch starts at step 0." in text
        assert "newest checkpoint" not in text
        force = text_of(ForceStopDialog(snapshot, ForceStopPlan(None, ("worker 0",))))
        assert "If they cannot save, 1 step is lost." in force


async def test_what_has_ended_meanwhile_is_told(live: RunFactory) -> None:
    for index in range(2):
        live.worker(index, host="elsewhere", updated_at=time.time() - 30)
    async with opened(live.run) as pilot:
        await pilot.press("X")
        await until_jobs_are_shown(pilot)
        assert "The run has ended." in top(pilot.app)


async def test_nothing_is_ended_read_only(foreign) -> None:
    made, processes = foreign
    async with opened(made.run, read_only=True) as pilot:
        await pilot.press("X")
        await until_shown(pilot, "read only")
        assert all(process.poll() is None for process in processes)


async def test_a_run_that_has_ended_has_no_process_to_end(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        for key in ("x", "X"):
            await pilot.press(key)
            await until_jobs_are_shown(pilot)
            assert "There is nothing to stop." in top(pilot.app)
            assert "Press X" not in top(pilot.app)


async def test_a_trainer_that_left_a_stop_to_expire_is_not_said_to_answer(
    live: RunFactory,
) -> None:
    snapshot = SnapshotReader(live.run).read(time.time())
    assert snapshot.trainer_answers
    plan = ForceStopPlan(None, ("worker 0",))
    words = "The trainer still answers: "
    expired = Command(
        id="1",
        kind=CommandKind.STOP,
        requested_at=live.now,
        expires_at=live.now,
        requested_by="ada",
        state=CommandState.EXPIRED,
    )
    left = replace(snapshot, finished=(expired,))
    silent = tuple(replace(view, age=180.0) for view in snapshot.workers)
    async with opened(live.run):
        assert words in text_of(ForceStopDialog(snapshot, plan))
        assert words not in text_of(ForceStopDialog(left, plan))
        assert words not in text_of(ForceStopDialog(replace(snapshot, workers=silent), plan))
        hangs = replace(snapshot, state=RunState.DEGRADED)
        assert words not in text_of(ForceStopDialog(hangs, plan))


def text_of(dialog: Dialog[bool]) -> str:
    return "".join(text for line in dialog.text() for text, _ in line)
