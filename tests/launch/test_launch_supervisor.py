"""The supervisor with real worker processes: ends, deaths, restarts, and what stays behind."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import sys
import time

import psutil
import pytest
from supervised import WORKER, Run

from tfckpt_trainer.launch.supervision.restart_policy import REPEATED
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, living, worker_state
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.documents import copy_of, load, store
from waiting import LEAST_SECONDS, MOST_SECONDS, wait_until

pytestmark = pytest.mark.e2e


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_run_whose_workers_end_well_is_finished(run: Run) -> None:
    status = run.to_the_end(run.options("sleep=0.1"))

    assert status.state is SupervisorState.FINISHED
    assert [worker.exit_code for worker in status.workers] == [0, 0]
    assert [e.kind for e in run.event_log()] == [EventKind.START, EventKind.FINISH]


def test_an_end_that_the_workers_told_is_not_told_twice(run: Run) -> None:
    status = run.to_the_end(run.options("step", "end=finished"))

    assert status.state is SupervisorState.FINISHED
    assert run.event_log(EventKind.FINISH) == []


def test_a_run_that_was_stopped_from_within_is_stopped(run: Run) -> None:
    assert run.to_the_end(run.options("step", "end=stopped")).state is SupervisorState.STOPPED


def test_every_worker_knows_its_place(run: Run) -> None:
    given = (("COLOUR", "green"), ("CUDA_VISIBLE_DEVICES", "3,1"))
    run.to_the_end(run.options("environment", environment=given))

    seen = [ast.literal_eval((run.root / f"environment-{index}").read_text()) for index in range(2)]
    clusters = [json.loads(variables["TF_CONFIG"]) for variables in seen]
    assert [c["task"] for c in clusters] == [{"type": "worker", "index": i} for i in range(2)]
    assert clusters[0]["cluster"] == clusters[1]["cluster"]
    assert len(set(clusters[0]["cluster"]["worker"])) == 2
    for index, variables in enumerate(seen):
        assert variables["TFCKPT_RUN_DIR"] == str(run.root)
        assert variables["TFCKPT_WORKER_INDEX"] == str(index)
        assert variables["TFCKPT_WORKER_COUNT"] == "2"
        assert variables["TFCKPT_ATTEMPT"] == "0"
        assert variables["PYTHONUNBUFFERED"] == "1"
        assert variables["COLOUR"] == "green"
        assert variables["CUDA_VISIBLE_DEVICES"] == "31"[index]


def test_idle_gpus_are_in_the_event_log_and_the_status(run: Run) -> None:
    given = (("CUDA_VISIBLE_DEVICES", "0,1,2"),)
    status = run.to_the_end(run.options(environment=given))

    assert status.gpus == "GPU 2 is idle: 2 workers use 1 GPU each."
    (start,) = run.event_log(EventKind.START)
    assert start.message == f"Started 2 workers: worker.py. {status.gpus}"


def test_all_are_restarted_when_one_is_killed(run: Run) -> None:
    options = run.options("step", "ready", "say=words", "w1a0:kill", "w0a0:sleep=60", "step")
    status = run.to_the_end(options)

    assert status.state is SupervisorState.FINISHED
    assert (status.attempt, status.restarts) == (1, 1)
    (lost,) = run.event_log(EventKind.WORKER_LOST)
    assert lost.details["worker"] == 1
    assert lost.details["exit_code"] == -9
    assert lost.details["signal"] == "SIGKILL"
    assert lost.details["log"] == ["words"]
    assert "Worker 1 was killed by SIGKILL" in lost.message
    assert len(run.event_log(EventKind.RESTART)) == 1
    log = run.directory.worker_log(0).read_text()
    assert log.count(" start 0: ") == log.count(" start 1: ") == 1


def test_a_worker_killed_from_outside_is_started_again_beside_its_peer(run: Run) -> None:
    run.supervise(run.options("step", "ready", "a0:sleep=60"))
    run.wait_until_ready()
    first = run.wait_for(SupervisorState.RUNNING).workers
    os.kill(first[0].pid, signal.SIGKILL)

    status = run.wait_for(SupervisorState.FINISHED)
    assert {w.pid for w in status.workers}.isdisjoint(w.pid for w in first)
    assert not any(lives(worker.pid) for worker in first)
    assert "Worker 0 was killed by SIGKILL" in run.event_log(EventKind.WORKER_LOST)[0].message


def test_workers_are_restarted_after_the_run_directory_was_moved_away(run: Run) -> None:
    run.directory.create()
    update_run_info(run.directory)
    run.supervise(run.options("step", "ready", "a0:sleep=60"))
    run.wait_until_ready()
    worker, _ = run.wait_for(SupervisorState.RUNNING).workers
    info = load(run.directory.run_file, RunInfo)
    run.root.rename(run.root.with_name("moved"))
    # As the chief does, whose next save finds no directory.
    run.directory.create()
    store(run.directory.run_file, info)
    os.kill(worker.pid, signal.SIGKILL)
    status = run.wait_for(SupervisorState.FINISHED)
    assert status.restarts == 1
    assert run.event_log(EventKind.RESTART)


def test_nothing_that_lies_in_the_run_directory_prevents_a_restart(run: Run) -> None:
    run.directory.create()
    update_run_info(run.directory)
    ended = run.supervise(run.options("step", "ready", "a0:sleep=600", "step"))
    run.wait_until_ready()
    control = run.directory.control
    for path in (run.directory.run_file, copy_of(run.directory.run_file)):
        path.write_bytes(b"{")
    (control / "other.json").write_text('{"schema": 99}')
    for place in (run.directory.tensorboard, run.directory.stacks_directory):
        shutil.rmtree(place)
    run.directory.tensorboard.write_text("a file")
    run.directory.stacks_directory.symlink_to(run.root.parent)
    psutil.Process(run.status().workers[1].pid).kill()
    ended.wait(LEAST_SECONDS)

    assert run.status().state is SupervisorState.FINISHED
    notes = "\n".join(entry.message for entry in run.event_log(EventKind.NOTE))
    for name in ("run.json", "tensorboard", "stacks"):
        assert f"is {name}.damaged-" in notes
        (kept,) = control.glob(f"{name}.damaged-*")
        assert kept.exists()
    assert (control / "other.json").exists()


def test_who_died_first_is_named_and_not_who_lost_it(run: Run) -> None:
    ends_first = ("w0a0:wait-for=ready-1", "a0:ready", "w0a0:exit=75")
    options = run.options(
        "step", *ends_first, "w1a0:wait-for=ready-0", "w1a0:sleep=0.4", "w1a0:exit=9"
    )
    run.to_the_end(options)

    (lost,) = run.event_log(EventKind.WORKER_LOST)
    assert lost.details["worker"] == 1


def test_workers_that_only_lost_a_peer_are_restarted(run: Run) -> None:
    status = run.to_the_end(run.options("step", "a0:exit=75"))

    assert status.state is SupervisorState.FINISHED
    assert status.attempt == 1


def test_a_script_that_fails_again_without_a_new_checkpoint_is_not_restarted_once_more(
    run: Run,
) -> None:
    status = run.to_the_end(run.options("step", "say=ValueError: 3", "w1:exit=3", max_restarts=9))

    assert (status.state, status.restarts) == (SupervisorState.FAILED, 1)
    assert status.reason.endswith(REPEATED)


def test_restarts_end_after_the_last_and_pauses_grow(run: Run) -> None:
    options = run.options("step", "say=broken", "w1:kill", max_restarts=3, pause_seconds=0.4)
    status = run.to_the_end(options)

    assert status.state is SupervisorState.FAILED
    assert status.restarts == 3
    assert "All 3 restarts are used" in status.reason
    assert "Worker 1 was killed by SIGKILL" in status.reason
    deaths = [e.at for e in run.event_log(EventKind.WORKER_LOST)]
    starts = [e.at for e in run.event_log(EventKind.RESTART)]
    pauses = [start - death for death, start in zip(deaths, starts, strict=False)]
    assert len(deaths) == 4
    assert all(got >= due for got, due in zip(pauses, [0.0, 0.8, 1.6], strict=True)), pauses


def test_the_reason_begins_with_the_line_of_the_script_that_failed(run: Run) -> None:
    script = run.root.parent / "train.py"
    script.write_text("import json\nrates = json.loads('{}')\nrate = rates['rate']\n")
    status = run.to_the_end(run.options(command=(sys.executable, str(script)), workers=1))
    assert status.state is SupervisorState.FAILED
    told = f"Worker 0 ended with status 1: {script}:3: KeyError: 'rate'"
    assert status.reason == f"{told}. It failed at once and is not restarted."
    (lost,) = run.event_log(EventKind.WORKER_LOST)
    (failed,) = run.event_log(EventKind.FAILED)
    assert lost.message == status.reason
    assert failed.message == "The run ended: worker 0 failed."


def test_a_script_that_fails_at_once_is_not_restarted(run: Run) -> None:
    status = run.to_the_end(run.options("w1:exit=2", "sleep=30"))

    assert status.state is SupervisorState.FAILED
    assert status.attempt == 0
    assert "failed at once" in status.reason


def test_a_script_that_fails_twice_without_a_step_is_given_up(run: Run) -> None:
    status = run.to_the_end(run.options("beat", "w0:die=ValueError: shapes", "sleep=30"))

    assert status.state is SupervisorState.FAILED
    assert status.attempt == 1
    assert "ValueError: shapes" in status.reason


def test_a_worker_that_is_killed_twice_before_its_first_step_is_restarted(run: Run) -> None:
    status = run.to_the_end(run.options("beat", "w1a0:kill", "w1a1:kill", "step"))

    assert status.state is SupervisorState.FINISHED
    assert status.attempt == 2


def test_a_port_that_was_taken_in_between_costs_no_restart(run: Run) -> None:
    clash = ("w0a0:say=RuntimeError: Address already in use", "w0a0:exit=1", "w1a0:sleep=60")
    status = run.to_the_end(run.options("w1:beat", *clash, "step", max_restarts=0))

    assert status.state is SupervisorState.FINISHED
    assert (status.attempt, status.restarts) == (1, 0)


def test_a_worker_that_never_comes_up_is_named(run: Run) -> None:
    options = run.options("w0:beat", "sleep=60", start_timeout=3.0, max_restarts=0)
    status = run.to_the_end(options)

    assert status.state is SupervisorState.FAILED
    assert "Worker 1 wrote no heartbeat within 3 s" in status.reason


def test_a_script_without_heartbeats_is_left_alone(run: Run) -> None:
    run.supervise(run.options("sleep=2.5", start_timeout=0.3))
    run.wait_for(SupervisorState.RUNNING)
    wait_until(lambda: "No worker wrote" in run.status().reason, 10, "the hint")

    assert run.wait_for(SupervisorState.FINISHED, timeout=10).attempt == 0


def test_signals_in_quick_succession_end_a_supervisor(run: Run) -> None:
    """Slurm signals all processes of a job, and the first of them passes its signal on."""
    supervisor = run.supervise(run.options("save-on-term", "beat", "ready", "sleep=600"))
    run.wait_until_ready()

    def reacts() -> bool:
        for _ in range(1000):
            supervisor.send_signal(signal.SIGTERM)
        return bool(run.status().reason)

    wait_until(reacts, 60, "a reaction")
    assert supervisor.wait(MOST_SECONDS) == 0
    assert run.status().state is SupervisorState.STOPPED


def test_a_supervisor_that_is_asked_to_stop_has_its_workers_save(run: Run) -> None:
    supervisor = run.supervise(run.options("step", "save-on-term", "ready", "sleep=60"))
    run.wait_until_ready()
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(MOST_SECONDS) == 0

    assert run.status().state is SupervisorState.STOPPED
    assert [w.exit_code for w in run.status().workers] == [0, 0]
    assert (run.root / "saved-0").exists()
    assert (run.root / "saved-1").exists()


def test_workers_that_ignore_the_request_are_killed_and_named(run: Run) -> None:
    options = run.options("save-on-term", "w1:ignore-term", "ready", "sleep=60", grace_seconds=3.0)
    supervisor = run.supervise(options)
    run.wait_until_ready()
    supervisor.send_signal(signal.SIGINT)
    supervisor.wait(MOST_SECONDS)

    status = run.status()
    assert status.state is SupervisorState.STOPPED
    assert "Worker 1 did not end in 3 s, and was killed." in status.reason
    assert [worker.exit_code for worker in status.workers] == [0, -9]


def test_the_training_process_of_a_shell_script_has_the_grace_too(run: Run) -> None:
    script = f"{sys.executable} {WORKER} save-on-term ready sleep=60; true"
    supervisor = run.supervise(run.options(command=("sh", "-c", script), workers=1))
    run.wait_for_file("ready-0")
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(MOST_SECONDS)

    assert (run.root / "saved-0").exists()


def test_how_the_training_process_of_a_shell_script_ended_is_known(run: Run) -> None:
    script = f"{sys.executable} {WORKER} step end=preempted exit=143; exit $?"
    status = run.to_the_end(run.options(command=("sh", "-c", script)))

    assert status.state is SupervisorState.STOPPED, status.reason
    assert status.restarts == 0


def test_a_stop_ends_the_pause_before_a_restart(run: Run) -> None:
    supervisor = run.supervise(run.options("step", "exit=1", pause_seconds=60))
    status = run.wait_for(SupervisorState.RESTARTING)
    assert status.next_start_at is not None
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(MOST_SECONDS)

    assert run.status().state is SupervisorState.STOPPED


def test_nothing_that_a_worker_started_stays_behind(run: Run) -> None:
    run.to_the_end(run.options("child", "w1:wait-for=child-0", "w1:exit=1", "step"))
    for index in range(2):
        child = int(run.wait_for_file(f"child-{index}"))
        wait_until(lambda child=child: not lives(child), 3, f"end of process {child}")


def test_what_cannot_be_written_does_not_end_training(run: Run) -> None:
    supervisor = run.supervise(run.options("ready", "sleep=2.5"))
    run.wait_for_file("ready-0")
    run.wait_for(SupervisorState.RUNNING)
    shutil.rmtree(run.directory.status_directory)

    assert supervisor.wait(MOST_SECONDS) == 0


def test_a_second_supervisor_is_refused(run: Run) -> None:
    options = run.options("ready", "sleep=60")
    run.supervise(options)
    first = run.wait_for(SupervisorState.RUNNING)

    assert run.supervise(options).wait(MOST_SECONDS) == 1
    assert run.status().pid == first.pid
    assert all(lives(worker.pid) for worker in first.workers)


def test_a_command_that_cannot_be_run_is_told(run: Run) -> None:
    status = run.to_the_end(run.options(command=("/nonexistent/python",)))

    assert status.state is SupervisorState.FAILED
    assert "/nonexistent/python" in status.reason


def test_workers_lead_groups_of_their_own(run: Run) -> None:
    run.supervise(run.options("sleep=60"))
    status = run.wait_for(SupervisorState.RUNNING)

    assert [os.getpgid(w.pid) for w in status.workers] == [w.pid for w in status.workers]


def test_a_copy_of_a_run_that_trains_is_one_whose_processes_are_gone(run: Run) -> None:
    run.supervise(run.options("step", "ready", "train=60"))
    run.wait_for(SupervisorState.RUNNING)
    run.wait_for_file("ready-1")
    copy = RunDirectory(shutil.copytree(run.root, run.root.with_name("copy"), symlinks=True))
    now = time.time()
    assert living(read_supervisor(run.directory), now)
    assert living(read_supervisor(copy), now) is None
    original, copied = (
        {worker_state(status, now) for status in read_workers(directory)}
        for directory in (run.directory, copy)
    )
    assert WorkerState.LOST not in original
    assert copied == {WorkerState.LOST}


def test_a_hang_beyond_the_limit_starts_all_again_and_names_who_is_at_fault(run: Run) -> None:
    """Worker 1 is stopped by a signal in mid-training; both had made a step."""
    words = ("answer", "step", "ready", "a0:sleep=60", "a1:end=finished")
    options = run.options(*words, hang_seconds=1.5, start_timeout=60)
    supervisor = run.supervise(options)
    stopped = int(run.wait_for_file("ready-1"))
    os.kill(stopped, signal.SIGSTOP)
    assert supervisor.wait(MOST_SECONDS) == 0
    (lost,) = run.event_log(EventKind.WORKER_LOST)
    assert "No worker made a step in" in lost.message
    assert "worker 1 is stopped by a signal" in lost.message
    assert re.search(r"Worker 0 is at \S*worker\.py:\d+: .*time\.sleep", lost.message)
    assert "Worker 1 is at" not in lost.message
    assert (lost.details["worker"], lost.details["step"]) == (1, 1)
    assert run.status().attempt == 1


@pytest.mark.parametrize(("step", "hangs"), [(2, True), (1, False)])
def test_a_save_that_waits_for_a_worker_behind_it_is_a_hang(
    run: Run, step: int, hangs: bool
) -> None:
    """Worker 1 made step 1, and never comes to the save of worker 0; or that save is its own."""
    options = run.options(
        "answer",
        "step",
        f"w0a0:save-after-step={step}",
        # The supervisor ends a hang.
        f"a0:sleep={300 if hangs else 4}",
        "end=finished",
        hang_seconds=1.5,
        start_timeout=60,
    )
    assert run.supervise(options).wait(MOST_SECONDS) == 0
    assert run.status().attempt == (1 if hangs else 0)


def test_without_a_limit_a_hang_is_left_to_the_person(run: Run) -> None:
    supervisor = run.supervise(run.options("step", "ready", "sleep=4", "end=finished"))
    stopped = int(run.wait_for_file("ready-1"))
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: run.status().workers[0].exit_code == 0, 20, "the end of worker 0")
    assert not run.event_log(EventKind.RESTART)
    os.kill(stopped, signal.SIGCONT)
    assert supervisor.wait(MOST_SECONDS) == 0
