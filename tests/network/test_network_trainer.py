"""A real trainer on a network disk that is slow to answer, fails, is full or hangs."""

from __future__ import annotations

import time

import pytest
from network_disks import short_directory
from steered import SteeredRun
from training_cluster import Cluster

from faulty_file_system import faulty_mounts
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

MOST_CALLS_A_SECOND = 5.0
COUNTED_BEATS = 12
HANGS_SECONDS = 6.0
STEPS_WHILE_HANGING = 20


@pytest.fixture(scope="module")
def trained():
    """A trainer on one client of a network disk, steered through another client."""
    with (
        short_directory() as place,
        faulty_mounts(place, "a", "b", cache_seconds=1.0) as (here, there),
    ):
        times = place / "times"
        arguments = ["--note-every", "5", "--step-times", str(times)]
        with Cluster(here.root / "run", "steered.py", arguments, 1, "one-device") as cluster:
            run = SteeredRun(cluster)
            run.wait_for_step(5)
            run.run = RunDirectory(there.root / "run")
            run.box = CommandQueue(run.run)
            yield here, run, times


@pytest.fixture(autouse=True)
def without_faults(trained):
    yield
    trained[0].clear()


def beats(run: SteeredRun, number: int) -> float:
    """Waits for so many heartbeats; returns the seconds between the first and the last."""
    first = run.workers()[0].updated_at

    def seen() -> float:
        return run.workers()[0].updated_at - first

    return wait_until(lambda: seen() if seen() > number else 0, 60, "heartbeats")


def test_commands_of_another_machine_are_carried_out(trained):
    _, run, _ = trained
    before = run.names()
    assert run.ask(CommandKind.SAVE).state is CommandState.DONE
    assert len(run.names() - before) == 1


def test_an_idle_worker_makes_few_calls(trained):
    here, run, _ = trained
    assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
    # For two seconds after a change, the queue is read at each look.
    beats(run, 3)
    here.count_calls()
    seconds = beats(run, COUNTED_BEATS)
    calls = here.count_calls()
    assert sum(calls.values()) <= MOST_CALLS_A_SECOND * seconds, (calls, seconds)
    assert run.ask(CommandKind.RESUME).state is CommandState.DONE


def test_training_goes_on_while_the_disk_hangs(trained):
    here, run, times = trained
    run.progress()
    began = time.monotonic()
    here.set_faults(hang=True)
    wait_until(lambda: time.monotonic() - began > HANGS_SECONDS, 60, "the end of what can be kept")

    def steps() -> int:
        return len(times.read_text().splitlines())

    before = steps()
    wait_until(lambda: steps() >= before + STEPS_WHILE_HANGING, 60, "steps while the disk hangs")
    here.clear()
    run.progress()
    # What could not be written then is written now.
    noted = {entry.step for entry in read_entries(run.run) if entry.kind is EventKind.NOTE}
    newest = max(noted)
    assert noted >= set(range(max(0, newest - 50), newest, 5)), sorted(noted)


def test_an_error_of_the_event_log_is_told_and_training_goes_on(trained):
    here, run, _ = trained
    here.set_faults(errors={"open": "EIO", "write": "EIO"}, only="journal")

    def told() -> bool:
        return "Input/output error" in run.workers()[0].detail

    wait_until(told, 20, "a heartbeat that tells of it")
    assert run.ask(CommandKind.SAVE).state is CommandState.DONE
    here.clear()
    wait_until(lambda: not run.workers()[0].detail, 20, "a heartbeat without trouble")


def test_a_save_on_a_full_disk_is_refused_and_training_goes_on(trained):
    here, run, _ = trained
    here.set_faults(errors={"create": "ENOSPC", "write": "ENOSPC"}, only="/saving/")
    outcome = run.ask(CommandKind.SAVE)
    assert outcome.state in {CommandState.REFUSED, CommandState.FAILED}
    assert "No space left on device" in outcome.message
    here.clear()
    run.progress()
    assert run.ask(CommandKind.SAVE).state is CommandState.DONE


def test_a_save_on_a_failing_disk_fails_and_training_goes_on(trained):
    here, run, _ = trained
    before = run.names()
    here.set_faults(errors={"write": "EIO"}, only="/saving/")
    outcome = run.ask(CommandKind.SAVE)
    assert outcome.state is CommandState.FAILED
    assert "nput/output error" in outcome.message
    here.clear()
    assert run.names() == before
    run.progress()
    assert run.ask(CommandKind.SAVE).state is CommandState.DONE
