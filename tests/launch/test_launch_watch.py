"""What the supervisor concludes from the heartbeats of all workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accounts import BOB
from requirements import needs
from tfckpt_trainer.launch.supervision.watch import Episodes, Watch
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import WorkerProcess
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import store

TRAINS, SAVES = Activity.TRAINING, Activity.SAVING


@dataclass
class LivingWorker:
    index: int
    exit_code: None = None


def stands_for_90_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *workers: tuple[Activity, Phase, int]
) -> tuple[RunDirectory, Watch]:
    """Workers, each with what it does at a step, of which none made one for so long."""
    run = RunDirectory(tmp_path / "run")
    run.create()
    now = [time.time() - 100]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr("tfckpt_trainer.launch.supervision.watch.time", clock)
    living: Any = [LivingWorker(index) for index in range(len(workers))]
    watch = Watch(run, living, now[0])
    for index, (activity, phase, step) in enumerate(workers):
        status = WorkerStatus(
            index=index,
            host="elsewhere",
            pid=1,
            process_started_at=0.0,
            updated_at=time.time(),
            interval_seconds=1.0,
            activity=activity,
            phase=phase,
            step=step,
            step_seconds=0.1,
            last_step_at=time.time() - 90,
        )
        store(run.worker_status(index), status)
    now[0] = time.time() - 90
    watch._gather()
    now[0] = time.time()
    return run, watch


@pytest.mark.parametrize(
    ("first", "second", "stalled"),
    [
        ((TRAINS, Phase.STEP, 60), (TRAINS, Phase.SCRIPT, 60), True),
        # All evaluate, for example.
        ((TRAINS, Phase.SCRIPT, 60), (TRAINS, Phase.SCRIPT, 60), False),
        # The save waits for a worker that hangs before it gets there.
        ((SAVES, Phase.SCRIPT, 60), (TRAINS, Phase.SCRIPT, 59), True),
        # A long save: the second worker goes on before the first, and waits in the next step.
        ((SAVES, Phase.SCRIPT, 60), (TRAINS, Phase.STEP, 60), False),
        ((SAVES, Phase.SCRIPT, 60), (SAVES, Phase.SCRIPT, 60), False),
    ],
)
def test_a_run_stalls_if_workers_wait_for_one_that_does_not_come(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[Activity, Phase, int],
    second: tuple[Activity, Phase, int],
    stalled: bool,
) -> None:
    _, watch = stands_for_90_seconds(tmp_path, monkeypatch, first, second)
    found = Episodes().begun(watch._gather())
    assert (found is not None and found[0] is EventKind.STALLED) == stalled, found


@pytest.mark.parametrize(
    ("happens", "stalls"),
    [("nothing", True), ("saved", False), pytest.param("replaced", False, marks=needs("root"))],
)
def test_what_another_user_copied_is_no_sign_of_a_stall_and_a_save_is_one_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: str, stalls: bool
) -> None:
    run, watch = stands_for_90_seconds(tmp_path, monkeypatch, (TRAINS, Phase.STEP, 60))
    if happens == "saved":
        run.state_file.touch()
    elif happens == "replaced":
        os.chown(run.worker_status(0), BOB, -1)
    assert (watch._gather().stands_for > 60) == stalls


@dataclass
class EndedWorker:
    """It ends, and writes its last heartbeat before, while it is looked at."""

    process: WorkerProcess
    write: Callable[[], object]
    index: int = 0
    is_silent: bool = False

    @property
    def exit_code(self) -> int:
        self.write()
        return 143

    def kill(self) -> None:
        """It has ended."""

    def facts(self) -> WorkerProcess:
        return self.process


@pytest.mark.parametrize(
    ("pid", "started", "host", "is_known"),
    [
        (5, 100.0, "", True),
        # A shell script, which started the training process at once.
        (4, 100.0, "", True),
        # The heartbeat is of an earlier start.
        (6, 200.0, "", False),
        (4, 100.0, "elsewhere", False),
        # The task of a job has told of no process yet.
        (0, 0.0, "", False),
    ],
)
def test_the_last_heartbeat_of_this_start_says_how_a_worker_ended(
    tmp_path: Path, pid: int, started: float, host: str, is_known: bool
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    status = WorkerStatus(
        index=0,
        host=host_name(),
        pid=5,
        process_started_at=100.0,
        updated_at=time.time(),
        interval_seconds=1.0,
        activity=Activity.EXITED,
        step=5,
        ending=Ending.PREEMPTED,
    )
    process = WorkerProcess(index=0, pid=pid, process_started_at=started, host=host)
    worker = EndedWorker(process, lambda: store(run.worker_status(0), status))
    (ended,) = Watch(run, [worker], time.time()).look().exits  # type: ignore[list-item]
    assert ended.ending is (Ending.PREEMPTED if is_known else None)


def test_a_step_counts_that_was_made_before_anybody_looked(tmp_path: Path) -> None:
    """Between the start and the first look, the supervisor writes to a disk that may be slow."""
    run = RunDirectory(tmp_path / "run")
    run.create()
    began = time.time()
    status = WorkerStatus(
        index=0,
        host="elsewhere",
        pid=1,
        process_started_at=began,
        updated_at=time.time(),
        interval_seconds=1.0,
        activity=Activity.TRAINING,
        step=1,
        last_step_at=time.time(),
    )
    store(run.worker_status(0), status)
    assert Watch(run, [LivingWorker(0)], began).look().stepped  # type: ignore[list-item]
