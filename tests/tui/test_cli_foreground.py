"""`launch --foreground`, as schedulers run it: preempted, started again, finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tensorflow_processes import python_with_tensorflow
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import note_event, write_entry
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.storage.documents import load, store
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "steered.py"


def start(root, *arguments, **environment):
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "launch", root, "--foreground"]
    # A process that stands by would import TensorFlow, and nothing here is restarted.
    command += ["--no-standby", "--workers", "2"]
    command += ["--", *python_with_tensorflow(), SCRIPT, *arguments]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def workers_beyond(run, step, earlier=()):
    def found():
        try:
            alive = [worker for worker in read_workers(run) if worker.pid not in earlier]
        except DamagedFileError:
            return None
        return alive if len(alive) == 2 and all(w.step > step for w in alive) else None

    return wait_until(found, 90, f"step {step}")


@pytest.mark.parametrize(
    ("whom", "chosen", "status"),
    [
        *weekly(("launch", {}, 143)),
        ("one worker", {"TFCKPT_PREEMPTED_STATUS": "138"}, 138),
        *weekly(("all workers", {}, 143)),
    ],
)
def test_a_preempted_job_saves_once_tells_its_scheduler_and_goes_on_where_it_was(
    tmp_path, whom, chosen, status
):
    run = RunDirectory(tmp_path / "run")
    job = start(run.root, **chosen)
    workers = workers_beyond(run, 5)
    victims = {
        "launch": [job.pid],
        "one worker": [workers[1].pid],
        "all workers": [worker.pid for worker in workers],
    }[whom]
    for victim in victims:
        os.kill(victim, signal.SIGTERM)
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == status, output
    (name,) = {path.stem for path in run.root.glob("*.index")}
    assert verify(run.root / name).ok
    saved = load(run.record(name), CheckpointRecord)
    assert saved.trigger == "preemption"
    assert f"Saved {name} (preemption)" in output
    if whom != "one worker":
        return  # One start from such a save is enough; the next test has another.

    job = start(run.root, "--steps", str(saved.step + 10))
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 0, output
    assert f"Restored {name} on 2 workers" in output
    assert f"Saved {name}" not in output
    assert (run.root / f"ckpt-{saved.step + 10}.index").exists()


@pytest.mark.weekly
def test_two_preemptions_in_a_row_the_second_during_the_save_of_the_first(tmp_path):
    run = RunDirectory(tmp_path / "run")
    job = start(run.root, "--width", "50000")
    first = workers_beyond(run, 5)
    os.kill(job.pid, signal.SIGTERM)
    for worker in first:
        os.kill(worker.pid, signal.SIGTERM)
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 143, output
    (one,) = {path.stem for path in run.root.glob("*.index")}
    job = start(run.root, "--width", "50000")
    workers_beyond(run, load(run.record(one), CheckpointRecord).step, {w.pid for w in first})
    os.kill(job.pid, signal.SIGTERM)
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 143, output
    names = {path.stem for path in run.root.glob("*.index")}
    assert len(names) == 2
    assert all(verify(run.root / name).ok for name in names)


def test_a_script_that_fails_makes_the_job_fail(tmp_path):
    launch = [sys.executable, "-m", "tfckpt_tui.cli.main", "launch", tmp_path / "run"]
    words = ["--foreground", "--no-standby", "--", "sh", "-c", "exit 2"]
    done = subprocess.run([*launch, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout


def sleeping(run, **options):
    """Launches a run in the foreground that goes on until it is stopped."""
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "launch", run.root, "--foreground"]
    return subprocess.Popen(
        list(map(str, [*command, "--no-standby", "--", "sleep", "600"])),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def test_ctrl_c_is_an_interrupt(tmp_path):
    run = RunDirectory(tmp_path / "run")
    job = sleeping(run, start_new_session=True)
    # The first entry of the event log: from here on, the command handles signals.
    assert any("Started 1 worker" in line for line in job.stdout)
    # As a terminal does: to all processes in the foreground.
    os.killpg(job.pid, signal.SIGINT)
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 130, output
    ended = read_supervisor(run)
    assert ended.reason == "The run was interrupted with ctrl+c."


@pytest.fixture
def followed(tmp_path):
    """A run in the foreground that goes on until it is stopped, after its first event."""
    run = RunDirectory(tmp_path / "run")
    job = sleeping(run)
    try:
        assert any("Started 1 worker" in line for line in job.stdout)
        yield run, job
    finally:
        stop_supervisor(run, 0.5)
        job.kill()
        job.communicate()


def lose_status(run):
    run.status_directory.rename(run.control / "elsewhere")


def put_link(run):
    lose_status(run)
    run.status_directory.symlink_to("elsewhere")


def put_other_end(run):
    ended = msgspec.structs.replace(
        read_supervisor(run), pid=1, process_started_at=0.0, state=SupervisorState.FINISHED
    )
    lose_status(run)
    run.status_directory.mkdir()
    store(run.supervisor_status, ended)


def is_told(run, job, message):
    """Writes an event, and returns whether the command prints it."""
    note_event(run, EventKind.NOTE, message)
    return any(message in line for line in job.stdout)


@pytest.mark.parametrize(
    ("put", "last_words"),
    [
        (lose_status, "does not say how"),
        (put_link, "does not say how"),
        # The supervisor writes its own there.
        (put_other_end, "was asked to stop (SIGTERM)"),
    ],
)
def test_it_goes_on_as_long_as_the_supervisor_does_whatever_lies_in_the_directory(
    followed, put, last_words
):
    run, job = followed
    put(run)
    # For the second one, the command looked at the supervisor once more after it was changed.
    assert is_told(run, job, "one") and is_told(run, job, "two")
    job.terminate()
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 143, output
    assert last_words in output


def test_times_that_no_calendar_has_are_printed(followed):
    run, job = followed
    for at in (1e300, -1e300, 1e308):
        write_entry(run, EventEntry(at=at, kind=EventKind.NOTE, message="never"))
    lines = (line for line in job.stdout if "never" in line)
    assert [next(lines) for _ in range(3)] == ["unknown never\n"] * 3
    assert is_told(run, job, "later")


def test_a_supervisor_that_is_killed_is_a_failure(followed):
    run, job = followed
    os.kill(read_supervisor(run).pid, signal.SIGKILL)
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert job.returncode == 1, output
    assert "The supervisor has ended, and" in output
    assert f"`tfckpt-tui logs {run.root} --supervisor`" in output


def test_an_end_that_the_event_log_lacks_is_told(followed):
    run, job = followed
    run.event_log.unlink()
    run.event_log.symlink_to("elsewhere")
    job.terminate()
    output, _ = job.communicate(timeout=MOST_SECONDS)
    assert "asked to stop (SIGTERM)" in output


def test_foreground_and_detach_exclude_each_other(tmp_path):
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "launch", tmp_path / "run"]
    done = subprocess.run(
        [*command, "--foreground", "--detach", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "either --detach or --foreground" in done.stderr
