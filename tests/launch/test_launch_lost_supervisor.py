"""What a task of a Slurm job says when it does not hear its supervisor any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from supervised import Run

from tfckpt_trainer.cluster.tasks import tasks
from tfckpt_trainer.launch.slurm.step_starter import (
    PLACEMENT_VARIABLE,
    TASK_MODULE,
    encode_placement,
)
from tfckpt_trainer.launch.slurm.task_process import describe_lost_supervisor
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.launch.supervision.starters import Placement
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import store
from waiting import MOST_SECONDS, wait_until

NOW = 1000.0


def heard(seconds_ago: float) -> SupervisorStatus:
    return SupervisorStatus(
        pid=1,
        host="tn0",
        process_started_at=0.0,
        updated_at=NOW - seconds_ago,
        interval_seconds=1.0,
        state=SupervisorState.RUNNING,
    )


@pytest.mark.parametrize(
    ("supervisor", "silent", "words", "never"),
    [
        (heard(1), 20.0, "but the supervisor runs: the node of worker 1 is cut off", "killed"),
        (heard(25), 20.0, "whose last heartbeat is 25 s old: it was killed, or its", "runs"),
        (heard(1), None, "lost its connection to the supervisor on tn0", "runs"),
        (None, 20.0, "from the supervisor for 20 s: it was killed, or its node", "runs"),
    ],
)
def test_no_more_is_said_than_the_task_knows(
    supervisor: SupervisorStatus | None, silent: float | None, words: str, never: str
) -> None:
    said = describe_lost_supervisor(1, supervisor, silent, NOW)
    assert words in said
    assert never not in said
    assert said.startswith("Worker 1 on ")
    assert said.endswith(" Worker 1 is told to save and end.")


@contextmanager
def started_task(run: Run, environment: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The task of worker 0, whose standard input is that of the block."""
    run.directory.create()
    store(run.directory.launch_file, run.options("sleep=60", slurm=SlurmOptions()))
    task = subprocess.Popen(
        [sys.executable, "-m", TASK_MODULE, str(run.directory.root)],
        env={
            **os.environ,
            "SLURM_PROCID": "0",
            "SLURM_JOB_ID": "1",
            PLACEMENT_VARIABLE: encode_placement(Placement(tasks(2, 0), ("a:1", "b:2"))),
            **(environment or {}),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=run.root.parent,
    )
    try:
        yield task
    finally:
        task.wait(MOST_SECONDS)


@pytest.mark.e2e
def test_a_task_whose_connection_closes_says_so_once(run: Run) -> None:
    with started_task(run) as task:
        wait_until(run.directory.worker_log(0).exists, 60, "the worker")
        task.stdin.close()
        (entry,) = wait_until(lambda: run.event_log(EventKind.NOTE), 60, "the event")
        assert "lost its connection to the supervisor" in entry.message


SCONTROL = """#!/bin/sh
[ "$1" = requeue ] && touch {asked}
echo "JobState=COMPLETING Reason={reason} ExitCode=0:9"
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("reason", "is_requeued"), [("JobLaunchFailure", True), ("None", False)])
def test_tasks_that_slurm_ends_with_their_supervisor_requeue_the_job_unless_it_is_cancelled(
    run: Run, tmp_path: Path, reason: str, is_requeued: bool
) -> None:
    asked, program = tmp_path / "asked", tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(SCONTROL.format(asked=asked, reason=reason))
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    with started_task(run, path) as task:
        wait_until(run.directory.worker_log(0).exists, 60, "the worker")
        # Its connection stays open, and nobody writes to it.
        task.send_signal(signal.SIGTERM)
        task.wait(MOST_SECONDS)
    assert asked.exists() == is_requeued
    words = [entry.message for entry in run.event_log(EventKind.REQUEUE)]
    assert words == ["The supervisor is gone. Job 1 waits in the queue again."] * is_requeued
