"""Batch jobs are seen and acted on through the scheduler: another one than Slurm works as well."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rundir_factory import RunFactory, two_branches, without_heartbeats

from local_queue import LocalQueue
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.control.force_stop import force_stop, plan_force_stop
from tfckpt_tui.services.control.job_control import (
    cancel_waiting_job,
    find_waiting_job,
    submit_again,
)
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.runs.job_list import JobList
from waiting import wait_until


@pytest.fixture
def queue() -> Iterator[LocalQueue]:
    queue = LocalQueue()
    yield queue
    queue.close()


@pytest.fixture
def submitted(tmp_path: Path, queue: LocalQueue) -> list[RunFactory]:
    """Two runs with a job each; the first one runs until a file exists, the second one waits."""
    runs = [without_heartbeats(two_branches(tmp_path / name)) for name in ("first", "second")]
    for made in runs:
        words = ("sh", "-c", "'until [ -e go ]; do sleep 0.01; done'")
        options = LaunchOptions(
            run_directory=str(made.run.root), command=words, working_directory="/"
        )
        queue.submit(made.run, options)
    return runs


def states(queue: LocalQueue, runs: list[RunFactory]) -> list[JobState]:
    views = [JobReader(queue).read(read_job_record(made.run)) for made in runs]
    return [view.state for view in views if view is not None]


def test_one_job_after_the_other_is_seen(queue: LocalQueue, submitted: list[RunFactory]) -> None:
    assert states(queue, submitted) == [JobState.RUNNING, JobState.QUEUED]
    listed = JobList(queue).read([submitted[1].run.root], with_others=True)
    assert {account.root.name for account in listed} == {"first", "second"}
    (submitted[0].run.root / "go").touch()
    wait_until(
        lambda: states(queue, submitted) == [JobState.FINISHED, JobState.RUNNING],
        30,
        "the second one runs",
    )


def test_a_waiting_job_is_cancelled_and_submitted_again(
    queue: LocalQueue, submitted: list[RunFactory]
) -> None:
    first, second = (made.run for made in submitted)
    act = partial(cancel_waiting_job, through=FrontEnd.APP, scheduler=queue)
    assert find_waiting_job(first, queue) is None
    with pytest.raises(RefusedError, match="Job 1 was not cancelled: it has started"):
        act(first)
    assert find_waiting_job(second, queue) is not None
    assert act(second) == "Cancelled batch job 2, which waited in the queue."
    assert states(queue, submitted) == [JobState.RUNNING, JobState.CANCELLED]
    job, told = submit_again(second, through=FrontEnd.APP, scheduler=queue)
    assert (job.id, told) == ("3", "Submitted batch job 3, with the options of the last launch.")
    assert states(queue, submitted) == [JobState.RUNNING, JobState.QUEUED]
    assert read_entries(second)[-1].message == told


def test_a_job_that_runs_is_stopped_by_force(
    queue: LocalQueue, submitted: list[RunFactory]
) -> None:
    run = submitted[0].run
    plan = plan_force_stop(run, queue)
    assert plan.job is not None
    told, _ = force_stop(run, plan, through=FrontEnd.APP, scheduler=queue)
    assert told.startswith("Cancelled batch job 1.")
    assert states(queue, submitted) == [JobState.CANCELLED, JobState.RUNNING]
