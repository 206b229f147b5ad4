"""Runs on a real Slurm cluster: requeue, preemption, limit, cancel, and lost workers and nodes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from command_running import BINARY
from faulty_file_system import faulty_mounts
from recorded_slurm import ASKED_BY_VARIABLES, listed_variables
from requirements import needs
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.cluster.host_list import expand_hosts
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.records.worker import Ending
from waiting import MOST_SECONDS, wait_until

pytestmark = pytest.mark.cluster

TRAIN = Path(__file__).parent / "scripts" / "train.py"

TRAINS = ("save-on-term", "beat", "step", "ready", "sleep=600")
"""Workers that train until they are told to save and exit."""

TWO_NODES = ("--nodes", "2")


def has_ended(run, job: str, state: str = "COMPLETED") -> None:
    """Waits for the end of a job; it must not start again."""
    facts = run.cluster.wait_for_state(job, state)
    assert facts.restarts == 0


def test_workers_on_two_nodes_finish_and_the_job_ends(run):
    job = run.launch_worker("environment", "step", "end=finished", options=TWO_NODES)
    has_ended(run, job)
    status = read_supervisor(run.directory)
    assert status.state is SupervisorState.FINISHED
    assert len({worker.host for worker in status.workers}) == 2
    assert [worker.exit_code for worker in status.workers] == [0, 0]
    environment = (run.root / "environment-1").read_text()
    assert "'TFCKPT_WORKER_COUNT': '2'" in environment
    assert run.messages(EventKind.SUBMIT) == [f"Submitted as job {job} on 2 nodes."]
    (checked,) = run.messages(EventKind.NOTE)
    assert checked.startswith("Checked tc")
    assert run.job.requeues == 0
    assert len(run.job.nodes) == 2
    assert run.job.ends_at is not None


def test_variables_of_the_users_shell_are_no_options_of_a_job(run, monkeypatch):
    asked = {"SBATCH_PARTITION": "urgent", "SBATCH_TIMELIMIT": "20"}
    of_shell = listed_variables("sbatch", "srun", "squeue", "scontrol", "job")
    for name in of_shell - {"SLURM_CONF", "SLURM_CLUSTERS"} - ASKED_BY_VARIABLES.keys():
        monkeypatch.setenv(name, "1")
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    job = run.launch_worker("environment", "step", "end=finished", options=TWO_NODES)
    has_ended(run, job)
    shown = run.cluster.call("scontrol", "show", "job", job)
    for fact in ("Partition=urgent", "TimeLimit=00:10:00", "Requeue=1", "JobName=run"):
        assert fact in shown
    assert run.job.ends_at is not None
    assert not run.messages(EventKind.FAILED)


def test_a_dead_worker_is_restarted_within_the_allocation(run):
    actions = ("save-on-term", "beat", "step", "w1a0:kill", "a0:sleep=600", "end=finished")
    job = run.launch_worker(*actions, options=TWO_NODES)
    has_ended(run, job)
    assert read_supervisor(run.directory).attempt == 1
    (lost,) = run.messages(EventKind.WORKER_LOST)
    assert lost == "Worker 1 was killed by SIGKILL."


def test_a_script_that_fails_before_it_trains_is_not_started_again(run):
    job = run.launch_worker("exit=3", options=TWO_NODES)
    has_ended(run, job, "FAILED")
    assert read_supervisor(run.directory).state is SupervisorState.FAILED
    assert not run.messages(EventKind.REQUEUE)


def test_a_cancelled_job_saves_and_ends_for_good(run):
    job = run.launch_worker(*TRAINS, options=TWO_NODES)
    run.wait_for_files("ready-0", "ready-1")
    run.cluster.call("scancel", job)
    has_ended(run, job, "CANCELLED")
    run.wait_for_files("saved-0", "saved-1")
    assert not run.messages(EventKind.REQUEUE)
    assert read_supervisor(run.directory).state is SupervisorState.STOPPED
    assert run.messages(EventKind.STOP)[-1] == f"Batch job {job} was cancelled."


REQUEUED_BEFORE = """#!/bin/sh
if [ "$1" = requeue ]; then {scontrol} "$@" || exit; fi
exec {scontrol} "$@"
"""
"""`scontrol` for a job that Slurm requeues a moment earlier, as it does if a node dies."""


def test_a_job_near_its_limit_saves_and_goes_on_with_the_nodes_that_it_gets(
    run, tmp_path, monkeypatch
):
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(REQUEUED_BEFORE.format(scontrol=shutil.which("scontrol")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    command = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null"]
    other = run.cluster.call(*command, "--wrap=sleep 600").strip()
    run.cluster.wait_for_state(other, "RUNNING")
    job = run.launch_worker(*TRAINS, options=("--nodes", "1-2"))
    run.wait_for_files("ready-0")
    assert len(run.job.nodes) == 1
    run.cluster.call("scancel", other)
    run.cluster.wait_for_state(other, "CANCELLED")
    # As Slurm does at the time that the batch script names.
    run.cluster.call("scancel", "--batch", "--signal=USR1", job)
    run.wait_for_files("saved-0")
    run.cluster.release(job)
    run.wait_for_files("ready-1")
    assert run.job.requeues == 1
    assert len(run.job.nodes) == 2
    assert run.messages(EventKind.REQUEUE) == [
        "The time limit of the job is near. "
        f"Job {job} waits in the queue again, for 2 minutes or more."
    ]
    assert not run.messages(EventKind.FAILED)


UNANSWERED_ONCE = """#!/bin/sh
if [ "$1" = requeue ] && mkdir {asked} 2>/dev/null; then
    echo "Unexpected message received for job $2" >&2
    exit 1
fi
exec {scontrol} "$@"
"""
"""`scontrol` that gets no answer to the first requeue, as from a controller that hangs."""


def test_a_requeue_that_slurm_does_not_answer_is_asked_for_again(run, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    asked, scontrol = tmp_path / "asked", shutil.which("scontrol")
    program.write_text(UNANSWERED_ONCE.format(asked=asked, scontrol=scontrol))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    job = run.launch_worker(*TRAINS)
    run.wait_for_files("ready-0")
    (run.root / "ready-0").unlink()
    run.cluster.call("scancel", "--batch", "--signal=USR1", job)
    run.cluster.release(job)
    run.wait_for_files("ready-0")
    assert asked.exists()
    assert run.messages(EventKind.REQUEUE)[0].endswith(
        "waits in the queue again, for 2 minutes or more."
    )
    assert not run.messages(EventKind.FAILED)


@needs("REAL_TIME_LIMIT")
@pytest.mark.parametrize("signals", [(), ("--sbatch-arg=--signal=B:CONT@1",)])
def test_a_job_goes_on_after_its_real_limit_whether_slurm_announces_it_or_not(run, signals):
    job = run.launch_worker(*TRAINS, options=("--time", "3", *signals))
    run.cluster.call("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_until((run.root / "saved-0").exists, 180, "the limit of the job")
    (run.root / "ready-0").unlink()
    run.cluster.release(job)
    run.wait_for_files("ready-0")
    assert run.job.requeues == 1
    assert not run.messages(EventKind.FAILED)


def test_a_start_without_a_step_delays_the_next_one(run):
    job = run.launch_worker("save-on-term", "beat", "ready", "sleep=600")
    run.wait_for_files("ready-0")
    run.cluster.call("scancel", "--batch", "--signal=USR1", job)
    run.cluster.wait_for_state(job, "PENDING")
    run.wait_for_message(f"Job {job} waits in the queue again, for 4 minutes or more.")

    def is_delayed() -> bool:
        shown = run.cluster.call("scontrol", "show", "job", job)
        start = re.search(r" StartTime=(\S+)", shown)[1]
        if start == "Unknown":
            return False
        return time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) > time.time() + 180

    wait_until(is_delayed, 30, "a later start")
    assert run.job.fruitless == 1


def test_a_job_whose_workers_are_killed_again_and_again_may_get_other_nodes(run):
    job = run.launch_worker("step", "kill", options=("--max-restarts", "0"))
    run.wait_for_message(f"Job {job} waits in the queue again")
    (killed,) = run.messages(EventKind.WORKER_LOST)
    assert "was killed by SIGKILL" in killed
    (requeued,) = run.messages(EventKind.REQUEUE)
    assert requeued.startswith(killed)
    assert not run.messages(EventKind.FAILED)


def test_requeues_are_counted(run):
    job = run.launch_worker(*TRAINS, options=("--max-requeues", "0"))
    run.wait_for_files("ready-0")
    run.cluster.call("scancel", "--batch", "--signal=USR1", job)
    has_ended(run, job, "FAILED")
    run.wait_for_files("saved-0")
    assert read_supervisor(run.directory).reason == (
        "The time limit of the job is near. No requeue is allowed."
    )


def test_training_goes_on_without_a_dead_node(run):
    job = run.launch_worker(*TRAINS, options=("--nodes", "1-2", "--peer-seconds", "2"))
    run.wait_for_files("ready-0", "ready-1")
    run.wait_for_processes(2)
    (run.root / "ready-0").unlink()
    node = run.job.nodes[1]
    with run.cluster.crash(node):
        run.wait_for_message(f"{node} is gone; training goes on without it.")
        run.wait_for_files("ready-0")
        assert run.cluster.facts(job).restarts == 0
        assert run.job.nodes == [read_supervisor(run.directory).host]


@pytest.mark.parametrize(
    ("place", "nodes"),
    [(1, "2"), (0, "1-2")],
    ids=["of a worker", "of the supervisor"],
)
def test_a_dead_node_is_replaced_if_it_is_needed(run, place, nodes):
    job = run.launch_worker(*TRAINS, options=("--nodes", nodes, "--peer-seconds", "2"))
    run.wait_for_files("ready-0", "ready-1")
    run.wait_for_processes(2)
    for index in range(2):
        (run.root / f"ready-{index}").unlink()
    node = run.job.nodes[place]
    with run.cluster.crash(node):
        # In the two minutes that a requeued job usually waits, Slurm notices.
        run.cluster.wait_for_dead_node(node)
        run.cluster.release(job)
        run.wait_for_files("ready-0", "ready-1")
        assert run.job.requeues == 1
        assert node not in run.job.nodes
        assert re.search(rf"\b{node} is ", run.messages(EventKind.REQUEUE)[-1])
        assert not run.messages(EventKind.FAILED)


def test_training_goes_on_in_the_same_job_after_a_kill_of_its_supervisor(run):
    job = run.launch_worker(*TRAINS, options=TWO_NODES)
    run.wait_for_files("ready-0", "ready-1")
    run.wait_for_processes(2)
    for index in range(2):
        (run.root / f"ready-{index}").unlink()
    killed = read_supervisor(run.directory)
    # All hosts of this cluster share their process IDs.
    os.kill(killed.pid, signal.SIGKILL)
    # They save before the next ones start.
    run.wait_for_files("saved-0", "saved-1")
    run.wait_for_files("ready-0", "ready-1")
    assert run.cluster.facts(job).restarts == 0
    assert run.cluster.facts(job).state == "RUNNING"
    assert run.job.requeues == 0
    run.wait_for_message("The supervisor was killed by SIGKILL.")
    run.wait_for_processes(2)
    later = {worker.pid for worker in read_supervisor(run.directory).workers}
    assert not later & {worker.pid for worker in killed.workers}
    assert not any(process_lives(one.process) for one in killed.workers)
    run.cluster.call("scancel", job)
    has_ended(run, job, "CANCELLED")


@pytest.mark.parametrize(
    "actions", [TRAINS, pytest.param(("ready", "sleep=600"), marks=pytest.mark.weekly)]
)
def test_a_job_is_requeued_after_a_kill_of_the_process_that_slurm_started(run, actions):
    job = run.launch_worker(*actions, options=TWO_NODES)
    run.wait_for_files("ready-0", "ready-1")
    run.wait_for_processes(2)
    for index in range(2):
        (run.root / f"ready-{index}").unlink()
    os.kill(psutil.Process(read_supervisor(run.directory).pid).ppid(), signal.SIGKILL)
    run.cluster.release(job)
    run.wait_for_files("ready-0", "ready-1")
    assert run.job.requeues == 1
    gone, lost = run.messages(EventKind.REQUEUE)
    assert gone == f"The supervisor is gone. Job {job} waits in the queue again."
    assert lost.endswith(f"Slurm has started job {job} again.")
    assert not run.messages(EventKind.FAILED)


def accept_a_stop(run):
    """Asks for a stop, which the chief accepts and does not carry out; returns its ID."""
    run.wait_for_processes(1)
    run.cluster.app("stop", run.root, "--no-wait")
    run.wait_for_files("claimed-0")
    (run.root / "ready-0").unlink()
    return (run.root / "claimed-0").read_text()


def has_stopped_without_training(run, job, command, state="COMPLETED"):
    run.cluster.wait_for_state(job, state)
    status = read_supervisor(run.directory)
    assert status.state is SupervisorState.STOPPED
    assert status.reason.startswith("The run was stopped by ")
    assert CommandQueue(run.directory).look_up(command).state is CommandState.DONE
    assert not (run.root / "ready-0").exists()
    assert len(run.messages(EventKind.START)) == 1


ACCEPTS = ("save-on-term", "beat", "step", "ready", "claim", "train=600")
"""A worker that accepts a command, and does not carry it out."""


def test_a_stop_that_was_accepted_outlives_a_kill_of_the_supervisor(run):
    job = run.launch_worker(*ACCEPTS)
    command = accept_a_stop(run)
    os.kill(read_supervisor(run.directory).pid, signal.SIGKILL)
    has_stopped_without_training(run, job, command)
    run.wait_for_files("saved-0")
    assert run.cluster.facts(job).restarts == 0


def test_a_stop_that_was_accepted_outlives_the_node_of_the_supervisor(run):
    job = run.launch_worker(*ACCEPTS)
    command = accept_a_stop(run)
    (node,) = run.job.nodes
    with run.cluster.crash(node):
        run.cluster.wait_for_dead_node(node)
        run.cluster.release(job)
        has_stopped_without_training(run, job, command)
        assert run.cluster.facts(job).restarts == 1


def test_a_stop_that_was_accepted_outlives_a_requeue_by_slurm(run):
    job = run.launch_worker(*ACCEPTS)
    command = accept_a_stop(run)
    run.cluster.call("scontrol", "requeue", job)
    has_stopped_without_training(run, job, command, "CANCELLED")
    assert "state     stopped: The run was stopped by " in run.cluster.app("status", run.root)
    assert run.messages(EventKind.STOP)[-1].endswith(
        f"Slurm requeues job {job}, which is cancelled therefore."
    )


def test_a_job_whose_submission_was_unanswered_trains_and_is_not_submitted_twice(run):
    with run.cluster.silent_controller():
        said = run.try_to_launch(*TRAINS)
    assert said.returncode != 0
    assert "may have accepted the job" in said.stderr
    assert not run.messages(EventKind.FAILED)
    # No launch has recorded it.
    run.wait_for_files("ready-0")
    assert "is already running" in run.try_to_launch(*TRAINS).stderr
    jobs = run.cluster.call("squeue", "--noheader", "--format=%i %o").splitlines()
    scripts = [job for job in jobs if str(run.root) in job]
    assert scripts == [f"{run.job.id} {run.directory.job_script}"]


def test_a_job_whose_submission_was_unanswered_is_found_in_the_queue(run):
    with run.cluster.silent_controller():
        assert run.try_to_launch(*TRAINS, options=("--sbatch-arg=--hold",)).returncode != 0
    shown = subprocess.run(
        [BINARY, "status", run.root], capture_output=True, text=True, timeout=MOST_SECONDS
    )
    assert (shown.returncode, "unanswered" in shown.stdout) == (1, True)
    again = run.try_to_launch(*TRAINS)
    assert f"Batch job {run.job.id} of this run waits in the queue" in again.stderr
    run.cluster.app("stop", run.root)
    run.cluster.wait_for_state(run.job.id, "CANCELLED")


def test_a_start_on_another_node_waits_until_the_cut_off_one_has_saved_and_ended(run):
    job = run.launch_worker(*TRAINS)
    run.wait_for_files("ready-0")
    run.wait_for_processes(1)
    (run.root / "ready-0").unlink()
    (node,) = run.job.nodes
    cut_off = read_supervisor(run.directory)
    host = run.cluster.number(node)
    run.cluster.control("cut", host)
    try:
        # As Slurm does after its timeout: the job is requeued.
        down = ("State=DOWN", "Reason=cut")
        run.cluster.call("scontrol", "update", f"NodeName={node}", *down)
        run.cluster.release(job)
        run.wait_for_message(f"still runs on {node} (process {cut_off.pid}).")
        # It trained on, and leaves no process beside the new ones.
        run.wait_for_files("saved-0", "ready-0")
        assert not process_lives(cut_off.process)
        assert node not in run.job.nodes
        assert not run.messages(EventKind.FAILED)
    finally:
        run.cluster.control("heal", host)
        run.cluster.call("scontrol", "update", f"NodeName={node}", "State=RESUME")


@pytest.fixture
def disk(tmp_path):
    """A disk with faults; the run directory of `run` is on it."""
    with faulty_mounts(tmp_path / "faulty", "disk") as (mount,):
        (tmp_path / "run").symlink_to(mount.root)
        yield mount


def preempt(run):
    """Preempts the job of a run for two seconds, once its workers have saved."""
    urgent = run.cluster.call(
        "sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive",
        "--output=/dev/null", "--wrap=sleep 2",
    ).strip()  # fmt: skip
    run.wait_for_files("saved-0", "saved-1")
    run.cluster.wait_for_state(urgent, "RUNNING", "COMPLETED")


def test_a_preempted_job_whose_record_the_disk_refuses_waits_in_the_queue(disk, run):
    job = run.launch_worker(*TRAINS, options=TWO_NODES)
    run.wait_for_files("ready-0", "ready-1")
    disk.set_faults(errors={"create": "EDQUOT"}, only="job.json")
    preempt(run)
    run.wait_for_message("waits in the queue again")
    assert run.cluster.facts(job).restarts == 1
    (run.root / "ready-0").unlink()
    run.cluster.release(job)
    run.wait_for_files("ready-0")
    disk.clear()


def test_a_disk_that_is_full_when_the_nodes_are_checked_delays_the_job(disk, run):
    disk.set_faults(errors={"create": "ENOSPC"}, only="check-")
    job = run.launch_worker(*TRAINS, options=TWO_NODES)
    run.wait_for_message(f"No space left on device. Job {job} waits in the queue again")
    disk.clear()
    run.cluster.release(job)
    run.wait_for_files("ready-0", "ready-1")


def test_a_preempted_job_saves_within_the_grace_time_and_goes_on_later(run):
    job = run.launch_worker(*TRAINS, options=TWO_NODES)
    run.wait_for_files("ready-0", "ready-1")
    (run.root / "ready-0").unlink()
    preempt(run)
    run.cluster.release(job)
    run.wait_for_files("ready-0")
    assert run.messages(EventKind.PREEMPT) == ["Slurm preempts the job."]
    assert run.messages(EventKind.REQUEUE) == [
        f"The job is preempted. Job {job} waits in the queue again, for 2 minutes or more."
    ]
    assert run.job.requeues == 1


@pytest.mark.tensorflow
@pytest.mark.weekly  # `test_training_exact.py` compares the bits after a restart.
def test_a_steered_and_requeued_run_ends_with_the_weights_of_a_plain_srun(cluster, run, tmp_path):
    plain = tmp_path / "plain"
    command = [sys.executable, str(TRAIN), "--run-dir", str(plain)]
    # Both train at the same time; the job is slower, and does not end before it was steered.
    with subprocess.Popen(
        ["srun", "--nodes=2", "--ntasks=2", *command], stdin=subprocess.DEVNULL
    ) as other:
        try:
            words = ("--step-seconds", "0.3", "--waits-for", str(run.root / "steered"))
            job = run.launch(sys.executable, str(TRAIN), *words, options=TWO_NODES)
            steer(run, job)
            assert other.wait(MOST_SECONDS) == 0
        finally:
            other.terminate()
    assert (run.root / "digest").read_text() == (plain / "digest").read_text()
    cluster.app("prune", run.root, "--keep-last", "1", "--yes", timeout=120)
    assert len(list(run.root.glob("ckpt-*.index"))) < 3


def steer(run, job):
    """Saves and restores from the login host, and lets the job be requeued near its limit."""
    run.wait_for_step(3)
    assert len({worker.host for worker in read_workers(run.directory)}) == 2
    run.cluster.app("save", run.root, timeout=120)
    # The schedule may have saved, too.
    [*_, saved] = (entry.step for entry in read_entries(run.directory) if entry.kind == "save")
    run.wait_for_step(saved + 3)
    run.cluster.app("restore", run.root, "--step", str(saved), timeout=120)
    run.cluster.call("scancel", "--batch", "--signal=USR1", job)
    run.cluster.release(job)
    (run.root / "steered").touch()
    run.wait_for_message("Finished after step 60", timeout=180)
    assert run.cluster.wait_for_state(job, "COMPLETED").restarts == 1


@pytest.mark.tensorflow
def test_srun_without_a_launcher_refuses_tasks_that_train_alone(cluster, tmp_path):
    shown = cluster.call("srun", "--ntasks=2", "sh", "-c", "[ $SLURM_PROCID = 1 ] || env -0")
    variables = dict(line.partition("=")[::2] for line in shown.split("\0"))
    step = {name: value for name, value in variables.items() if name.startswith("SLURM_")}
    words = (TRAIN, "--run-dir", tmp_path / "run", "--strategy", "one-device")
    done = run_with_tensorflow(*words, **step)
    assert done.returncode == 1
    assert "Slurm started 2 tasks" in done.stderr


@pytest.mark.tensorflow
@pytest.mark.weekly
def test_all_tasks_of_a_plain_srun_with_a_parameter_server_end_with_the_chief(cluster, tmp_path):
    run = RunDirectory(tmp_path / "run")
    command = [sys.executable, str(TRAIN), "--run-dir", str(run.root)]
    command += ["--strategy", "parameter-server"]
    cluster.call("srun", "--nodes=2", "--ntasks=3", *command, timeout=180)
    (chief,) = read_workers(run)
    assert (chief.step, chief.ending) == (60, Ending.FINISHED)
    assert (run.root / "digest").exists()


def test_hosts_are_expanded_as_scontrol_does(cluster):
    for text in ("tc[0-2]", "a[1-3,07-09]x[1-2],b,c[10,9]", "login", "n[008-011]"):
        shown = cluster.call("scontrol", "show", "hostnames", text).split()
        assert expand_hosts(text) == tuple(shown)
