"""The process of a batch job that starts a killed supervisor again, and passes signals on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.slurm import earlier_start
from tfckpt_trainer.launch.slurm.batch_watch import MOST_DEATHS
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import MOST_SECONDS, PassingTime, wait_until

WATCH = """
import sys
from pathlib import Path
from tfckpt_trainer.launch.slurm.batch_watch import BatchWatch
from tfckpt_trainer.rundir.paths import RunDirectory

times = iter([float(word) for word in sys.argv[2].split(",")])
command = [sys.executable, "-c", sys.argv[3], sys.argv[1]]
sys.exit(BatchWatch(RunDirectory(Path(sys.argv[1])), command, lambda: next(times)).run())
"""

COUNT = """
import os, signal, sys, time
from pathlib import Path
root = Path(sys.argv[1])
with (root / "starts").open("a") as file:
    file.write(" ".join(["start", *sys.argv[2:]]) + "\\n")
starts = len((root / "starts").read_text().splitlines())
"""
DIE = COUNT + "os.kill(os.getpid(), signal.SIGKILL)"
DIE_ONCE = COUNT + "starts == 1 and os.kill(os.getpid(), signal.SIGKILL); sys.exit(7)"
WAIT = (
    COUNT
    + """
def note(number, frame):
    (root / f"told-{number}").touch()
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, note)
(root / "ready").touch()
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(0.05)
"""
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path)
    made.create()
    return made


def watch(run: RunDirectory, supervisor: str, times: Sequence[float]) -> subprocess.Popen[bytes]:
    words = ",".join(str(one) for one in times)
    environment = {**os.environ, "SLURM_JOB_ID": "7"}
    return subprocess.Popen(
        [sys.executable, "-c", WATCH, str(run.root), words, supervisor], env=environment
    )


def starts(run: RunDirectory) -> list[str]:
    return (run.root / "starts").read_text().splitlines()


def test_a_killed_supervisor_is_started_again_and_its_status_is_passed_on(
    run: RunDirectory,
) -> None:
    assert watch(run, DIE_ONCE, range(9)).wait(MOST_SECONDS) == 7
    assert starts(run) == ["start", "start --again"]
    (entry,) = read_entries(run)
    assert entry.message.startswith("The supervisor was killed by SIGKILL. It starts again in the")


@pytest.mark.parametrize("status", [0, 1])
def test_a_supervisor_that_ends_by_itself_is_not_started_again(
    run: RunDirectory, status: int
) -> None:
    assert watch(run, f"{COUNT}sys.exit({status})", range(9)).wait(MOST_SECONDS) == status
    assert len(starts(run)) == 1
    assert not read_entries(run)


@pytest.mark.e2e
def test_a_loop_of_deaths_ends(run: RunDirectory) -> None:
    assert watch(run, DIE, range(99)).wait(MOST_SECONDS) == 128 + signal.SIGKILL
    assert len(starts(run)) == MOST_DEATHS + 1
    assert [one.kind for one in read_entries(run)][-1] is EventKind.FAILED


@pytest.mark.e2e
def test_deaths_hours_apart_are_no_loop(run: RunDirectory) -> None:
    # Each supervisor but the last ones lives for an hour.
    times = [*(3600.0 * number for number in range(20)), *(10**6 + n for n in range(99))]
    assert watch(run, DIE, times).wait(MOST_SECONDS) == 128 + signal.SIGKILL
    assert len(starts(run)) > MOST_DEATHS + 5


def test_signals_are_passed_on_and_an_ended_job_starts_no_supervisor(run: RunDirectory) -> None:
    process = watch(run, WAIT, range(9))
    try:
        wait_until((run.root / "ready").exists, 60, "the supervisor")
        process.send_signal(signal.SIGUSR1)
        wait_until((run.root / f"told-{signal.SIGUSR1}").exists, 60, "the time limit")
        process.send_signal(signal.SIGTERM)
        wait_until((run.root / f"told-{signal.SIGTERM}").exists, 60, "the end")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert process.wait(MOST_SECONDS) == 128 + signal.SIGKILL
    finally:
        process.kill()
    assert len(starts(run)) == 1
    assert not read_entries(run)


def test_left_job_steps_save_and_are_then_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cancelled, told = PassingTime(), [], []

    def tell(words: str, kind: EventKind) -> None:
        told.append((kind, words))

    def running(job: str) -> list[str]:
        if cancelled:
            return []
        return ["7.0", "7.1"] if clock.now < 10.0 else ["7.1"]

    monkeypatch.setattr(earlier_start, "running_steps", running)
    monkeypatch.setattr(earlier_start, "cancel_steps", cancelled.append)
    monkeypatch.setattr(earlier_start, "time", clock)
    earlier_start.end_left_steps("7", 20.0, tell, may_requeue=True)
    assert 20.0 < clock.now < 30.0
    assert cancelled == [["7.1"]]
    assert told == [
        (EventKind.NOTE, "Job steps of a killed supervisor still run: 7.1. They are cancelled.")
    ]


def test_no_second_workers_start_while_slurm_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(job: str) -> list[str]:
        raise LaunchError("squeue failed.")

    monkeypatch.setattr(earlier_start, "running_steps", silent)
    monkeypatch.setattr(earlier_start, "time", PassingTime())
    with pytest.raises(LaunchError, match="squeue failed"):
        earlier_start.end_left_steps(
            "7", 0.0, lambda *_: None, may_requeue=False, limit_seconds=0.2
        )


@pytest.mark.parametrize("may_requeue", [True, False])
def test_job_steps_that_no_cancel_ends_have_the_job_requeued(
    monkeypatch: pytest.MonkeyPatch, may_requeue: bool
) -> None:
    """Slurm waits for a node that was started again before it was missed."""
    clock, asked, told = PassingTime(), [], []

    def requeue(job: str) -> None:
        asked.append(clock.now)
        if len(asked) == 1:
            raise LaunchError("Slurm does not answer.")
        # Slurm tells this process to end in that moment.
        signal.raise_signal(signal.SIGTERM)

    def delay(job: str, seconds: float, tell: object) -> None:
        told.append((job, seconds))

    monkeypatch.setattr(earlier_start, "running_steps", lambda job: ["7.1"])
    monkeypatch.setattr(earlier_start, "cancel_steps", lambda steps: None)
    monkeypatch.setattr(earlier_start, "requeue_job", requeue)
    monkeypatch.setattr(earlier_start, "delay_job", delay)
    monkeypatch.setattr(earlier_start, "time", clock)
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("told to end"))
    try:
        with pytest.raises(LaunchError, match=r"7\.1\. They did not end within 600 s"):
            earlier_start.end_left_steps(
                "7", 20.0, lambda words, kind: told.append((kind, words)), may_requeue=may_requeue
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    left = "Job steps of a killed supervisor still run: 7.1."
    waits = "Job 7 waits in the queue again, for 2 minutes or more."
    assert (
        told
        == [
            (EventKind.NOTE, f"{left} They are cancelled."),
            (EventKind.REQUEUE, f"{left} A cancel does not end them. {waits}"),
            ("7", 120.0),
            "told to end",
        ][: 4 if may_requeue else 1]
    )
    assert len(asked) == 2 * may_requeue
