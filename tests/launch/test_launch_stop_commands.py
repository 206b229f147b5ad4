"""A command to stop ends the run, whatever the trainer does; with real processes."""

from __future__ import annotations

import os
import signal
import time

import pytest
from supervised import Run

from command_running import Tool
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from waiting import wait_until

pytestmark = pytest.mark.e2e


def ask_to_stop(run: Run, *, save: bool = True) -> Command:
    queue = CommandQueue(run.directory)
    return queue.submit(CommandKind.STOP, {"save": save}, requested_by="ada, test")


def wait_until_all_train(run: Run) -> None:
    for index in range(2):
        wait_until(run.directory.worker_status(index).exists, 20, f"heartbeat {index}")


def outcome_of(run: Run, command: Command) -> Command:
    return CommandQueue(run.directory).wait(command, timeout=60)


def is_stopped_for_good(run: Run, command: Command) -> None:
    status = run.wait_for(SupervisorState.STOPPED, SupervisorState.FAILED, timeout=60)
    assert status.state is SupervisorState.STOPPED, status.reason
    assert "stopped by ada, test" in status.reason
    outcome = outcome_of(run, command)
    assert outcome.state is CommandState.DONE
    assert outcome.message == f"The run has ended. {status.reason}"
    (stop,) = run.event_log(EventKind.STOP)
    assert stop.message == status.reason


def test_a_worker_that_dies_after_a_stop_was_accepted_is_not_started_again(run: Run) -> None:
    run.supervise(run.options("w0:claim", "train=60"))
    wait_until_all_train(run)
    command = ask_to_stop(run)
    run.wait_for_file("claimed-0")
    os.kill(run.status().workers[1].pid, signal.SIGKILL)
    is_stopped_for_good(run, command)
    assert not run.event_log(EventKind.RESTART)
    assert "Worker 1 was killed by SIGKILL" in run.status().reason


def test_the_error_of_a_worker_after_a_stop_was_accepted_is_no_reason_to_restart(run: Run) -> None:
    run.supervise(run.options("w0:claim", "w0:end=peer-lost", "w0:exit=75", "train=60"))
    wait_until_all_train(run)
    is_stopped_for_good(run, ask_to_stop(run))
    assert run.status().attempt == 0


def test_a_stop_during_a_start_is_carried_out_at_once(tool: Tool, run: Run) -> None:
    """The workers import TensorFlow: there is no heartbeat, and nothing to save."""
    run.supervise(run.options("ready", "sleep=60"))
    run.wait_until_ready()
    said = tool("stop", run.root)
    assert said.code == 0, said
    assert "The run has ended." in said.data
    assert "--force" not in said.words
    assert run.status().state is SupervisorState.STOPPED


def test_a_stop_in_the_pause_before_a_restart_ends_the_run(run: Run) -> None:
    run.supervise(run.options("step", "exit=1", pause_seconds=60, max_restarts=9))
    run.wait_for(SupervisorState.RESTARTING)
    is_stopped_for_good(run, ask_to_stop(run))


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_worker_stopped_by_a_signal_does_not_prevent_a_stop(run: Run, stopped: int) -> None:
    """Of worker 1, the chief takes the command and cannot act; of the chief, nobody takes it."""
    run.supervise(run.options("w0:claim", "train=60", grace_seconds=1))
    wait_until_all_train(run)
    pids = [worker.pid for worker in run.wait_for(SupervisorState.RUNNING).workers]
    os.kill(pids[stopped], signal.SIGSTOP)
    command = ask_to_stop(run)
    is_stopped_for_good(run, command)
    assert not run.event_log(EventKind.RESTART)
    assert run.status().reason == (
        f"The run was stopped by ada, test. Worker {stopped} did not react. "
        f"Worker {stopped} did not end in 1 s, and was killed. "
        "Steps since the newest checkpoint may be lost."
    )


def test_a_stop_is_left_to_workers_that_take_long_to_act(run: Run) -> None:
    run.supervise(run.options("w0:serve-a-stop=8", "w1:train=9", "end=stopped", grace_seconds=1))
    wait_until_all_train(run)
    outcome = outcome_of(run, ask_to_stop(run))
    assert outcome.message == "Stopped after step 1."
    assert run.wait_for(SupervisorState.STOPPED).reason == "The run was stopped."


def test_a_worker_that_dies_after_the_trainer_has_stopped_is_not_started_again(run: Run) -> None:
    actions = ("w0:serve-a-stop", "w1:train=0.1", "w1:wait-for=stopped-0", "w1:kill")
    run.supervise(run.options(*actions, "w0:exit=75"))
    wait_until_all_train(run)
    assert outcome_of(run, ask_to_stop(run)).message == "Stopped after step 1."
    status = run.wait_for(SupervisorState.STOPPED, SupervisorState.FAILED)
    assert status.state is SupervisorState.STOPPED, status.reason
    assert status.attempt == 0
    assert not run.event_log(EventKind.RESTART)


def test_a_stop_that_an_earlier_launch_left_does_not_end_the_next(run: Run) -> None:
    run.directory.create()
    left = ask_to_stop(run)
    assert CommandQueue(run.directory).claim(time.time()) is not None
    status = run.to_the_end(run.options("step", "a0:exit=1", "end=finished"), timeout=60)
    assert status.state is SupervisorState.FINISHED, status.reason
    assert status.attempt == 1
    assert outcome_of(run, left).state is CommandState.FAILED
