"""Jobs of a real Slurm cluster, and a run whose processes are all on other hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from command_running import Tool
from requirements import require
from tfckpt_trainer.errors import ExitCode, RefusedError
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.launch.slurm.job_queries import cancel_job, read_jobs
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.batch.job_view import JobView, state_with_job
from tfckpt_tui.services.control.job_control import cancel_waiting_job, submit_again
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.runs.job_list import JobList
from waiting import wait_until

pytestmark = pytest.mark.cluster

STEERED = Path(__file__).parents[1] / "training" / "scripts" / "steered.py"
HOSTILE = "a|b <1f>\nx JobState=FAILED %i"

cancel = partial(cancel_waiting_job, through=FrontEnd.COMMAND_LINE)
submit = partial(submit_again, through=FrontEnd.COMMAND_LINE)


@pytest.fixture
def slurm(request: pytest.FixtureRequest) -> None:
    """A cluster that runs already, or else a new one."""
    require("slurm")
    if "SLURM_CONF" not in os.environ:
        request.getfixturevalue("cluster")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    made = RunDirectory(tmp_path / "digits run")
    made.create()
    store(made.run_file, RunInfo(id="digits", created_at=time.time()))
    yield made
    job = read_job_record(made)
    if job is not None:
        cancel_job(job.id)


def write_script(run: RunDirectory, command: str, *options: str) -> None:
    lines = ["#!/bin/bash", "#SBATCH --output=/dev/null", *(f"#SBATCH {one}" for one in options)]
    run.job_script.write_text("\n".join([*lines, f"exec {command}", ""]))


def sbatch(run: RunDirectory, *options: str) -> str:
    """Submits the script; returns the ID of the job."""
    command = ["sbatch", "--parsable", *options, str(run.job_script)]
    job_id = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    record = BatchJob(
        scheduler="slurm",
        id=job_id,
        user="root",
        submitted_at=time.time(),
        script=str(run.job_script.relative_to(run.root)),
    )
    store(run.job_file, record)
    return job_id


def scontrol(*words: str) -> str:
    return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout


def view_of(run: RunDirectory) -> JobView:
    view = JobReader().read(read_job_record(run))
    assert view is not None
    return view


def wait_for(run: RunDirectory, *states: JobState) -> JobView:
    def seen() -> JobView | None:
        view = view_of(run)
        return view if view.state in states else None

    return wait_until(seen, 60, f"a job that is {states}")


def test_a_job_from_the_queue_to_its_end(slurm: None, run: RunDirectory) -> None:
    write_script(run, "sleep 300", "--nodes=2", "--time=30")
    first = sbatch(run, "--hold", f"--job-name={HOSTILE}")

    held = wait_for(run, JobState.QUEUED)
    assert (held.reason, held.record.id) == ("JobHeldUser", first)
    assert held.explanation == f"it is held; release it with `scontrol release {first}`"
    assert held.report is not None and held.report.name == HOSTILE
    assert state_with_job(RunState.FAILED, held, 0.0) is RunState.QUEUED
    listed = JobList().read([], with_others=True)
    found = next(one for one in listed if one.root == run.root)
    assert (found.state, found.job_in_short) == (RunState.QUEUED, f"{first} JobHeldUser")

    assert cancel(run) == f"Cancelled batch job {first}, which waited in the queue."
    assert view_of(run).state is JobState.CANCELLED

    job, message = submit(run)
    assert message == f"Submitted batch job {job.id}, with the options of the last launch."
    running = wait_for(run, JobState.RUNNING)
    assert running.record == load(run.job_file, BatchJob) == job
    assert list(running.nodes) == scontrol("show", "hostnames", running.node_list).split()
    assert len(running.nodes) == 2
    assert running.ends_at is not None and 0 < running.ends_at - time.time() < 1860
    with pytest.raises(RefusedError, match="it has started on"):
        cancel(run)
    with pytest.raises(RefusedError, match=r"is running. Stop it first"):
        submit(run)

    store(run.job_file, BatchJob(**{**_fields(job), "started_at": time.time()}))
    scontrol("requeue", job.id)
    requeued = wait_for(run, JobState.REQUEUED)
    assert requeued.reason == "BeginTime"
    assert state_with_job(RunState.STOPPED, requeued, time.time()) is RunState.QUEUED
    cancel(run)
    assert view_of(run).state is JobState.CANCELLED


def _fields(job: BatchJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in BatchJob.__struct_fields__}


def test_a_job_that_slurm_never_had_is_no_problem(slurm: None) -> None:
    answer = read_jobs(["4000000"])
    assert (answer.jobs, answer.is_present, answer.problem) == ({}, True, "")


@pytest.mark.tensorflow
def test_a_run_on_another_host_is_steered_from_here(
    slurm: None, run: RunDirectory, tool: Tool
) -> None:
    told = f"TFCKPT_RUN_DIR='{run.root}' TFCKPT_WORKER_INDEX=0"
    train = f"env {told} {sys.executable} {STEERED} --strategy one-device --save-every 50"
    # Its process IDs are not valid here, as on another machine.
    write_script(run, f"unshare --pid --fork --kill-child --mount-proc {train}", "--time=30")
    run.run_file.unlink()
    sbatch(run)

    def is_training() -> bool:
        said = tool("status", run.root, "--json").json
        return said["run"]["state"] == "training" and (said["run"]["step"] or 0) > 1

    wait_until(is_training, 180, "a run that trains")
    [worker] = read_workers(run)
    assert worker.host != socket.gethostname()
    assert not is_pid_valid_here(worker)
    assert worker.pid < 100, "its number in its own namespace"
    nodes = tool("status", run.root, "--json").json["job"]["nodes"]
    assert nodes == [worker.host]

    for name in ("first", "second", "third"):
        assert tool("save", run.root).code == 0, name
    names = [one["name"] for one in tool("ls", run.root, "--json").json["checkpoints"]]
    assert len(names) >= 3
    assert tool("restore", run.root, "--name", names[-1]).code == 0
    assert tool("prune", run.root, "--keep-last", "1", "--yes").code == 0
    assert tool("undo", run.root).code == 0
    stopped = tool("stop", run.root)
    assert stopped.code == 0, stopped.words
    wait_for(run, JobState.FINISHED)
    after = tool("status", run.root, "--json").json
    assert (after["run"]["state"], after["job"]["state"]) == ("stopped", "finished")
    assert tool("save", run.root).code == ExitCode.NO_TRAINER
    # Without a trainer, this host does the work itself.
    assert tool("prune", run.root, "--keep-last", "1", "--yes").code == 0
