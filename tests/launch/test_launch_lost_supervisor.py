"""What a task of a Slurm job says when it does not hear its supervisor any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import Run

from tfckpt_trainer.cluster.tasks import tasks
from tfckpt_trainer.launch.slurm.step_starter import PLACEMENT_VARIABLE, encode_placement
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


@pytest.mark.e2e
def test_a_task_whose_connection_closes_says_so_once(run: Run, tmp_path: Path) -> None:
    run.directory.create()
    options = run.options("sleep=60", slurm=SlurmOptions())
    store(run.directory.launch_file, options)
    placement = Placement(tasks(2, 0), ("a:1", "b:2"))
    task = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tfckpt_trainer.launch.slurm.task_process",
            str(run.directory.root),
        ],
        env={
            **os.environ,
            "SLURM_PROCID": "0",
            "SLURM_JOB_ID": "1",
            PLACEMENT_VARIABLE: encode_placement(placement),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert task.stdin is not None
    try:
        wait_until(run.directory.worker_log(0).exists, 60, "the worker")
        task.stdin.close()
        (entry,) = wait_until(lambda: run.event_log(EventKind.NOTE), 60, "the event")
        assert "lost its connection to the supervisor" in entry.message
    finally:
        task.wait(MOST_SECONDS)
