"""Alerts say what is wrong with a run whose processes are all well."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.scan.alerts import find_alerts
from tfckpt_trainer.rundir.heartbeats.health import WorkerState
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.records.worker import (
    BEFORE_RUN,
    Activity,
    NotFiniteMetric,
    Phase,
    SaveStatus,
    WorkerStatus,
)

ROOT = Path("/runs/my run")
QUOTED = "'/runs/my run'"
LATE = {"unsaved_seconds": 60.0}


def alerts(state=WorkerState.TRAINING, others=(), step_seconds=0.1, **saves):
    chief = a_worker(saves=SaveStatus(**saves), step_seconds=step_seconds)
    return find_alerts(ROOT, [(chief, state), *others], [])


def a_worker(**changes):
    fields = {
        "index": 0,
        "host": "trainhost",
        "pid": 1,
        "process_started_at": 0.0,
        "updated_at": 0.0,
        "interval_seconds": 1.0,
        "activity": Activity.TRAINING,
        "step": 63,
        "step_seconds": 0.1,
    }
    return WorkerStatus(**{**fields, **changes})


def test_failing_saves_are_counted_with_the_problem_and_what_to_do():
    (alert,) = alerts(failed=7, problem="worker 0: no room", saved_step=40, unsaved_steps=23)
    assert alert.kind == "save-failed"
    assert alert.title == "7 saves failed"
    assert alert.message == (
        "The last 7 saves failed: worker 0: no room. "
        "The newest checkpoint is of step 40: 23 steps would be lost."
    )
    assert str(alert.advice) == f"Remove the cause, then save with `tfckpt-tui save {QUOTED}`."


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("/x/.tfckpt/journal.jsonl", ""),
        ("/x/checkpoint", " TensorFlow takes an older checkpoint for the newest."),
    ],
)
def test_a_file_that_cannot_be_written_is_an_alert_with_the_problem(file, more):
    chief = a_worker(write_problem=f"{file}: Permission denied")
    for state, rest in (
        (WorkerState.TRAINING, "Training goes on."),
        (WorkerState.EXITED, "What it should hold since then is lost."),
    ):
        (alert,) = find_alerts(ROOT, [(chief, state)], [])
        assert alert.kind == "file-unwritten"
        assert alert.message == (
            f"A file of the run cannot be written: {file}: Permission denied. {rest}{more}"
        )


def test_a_run_that_saves_again_by_itself_says_so():
    (alert,) = alerts(failed=1, problem="no room", every_steps=10)
    assert str(alert.advice) == (
        "Remove the cause: the next save that is due tries again. To save at once, use "
        f"`tfckpt-tui save {QUOTED}`."
    )
    waiting = a_worker(saves=SaveStatus(failed=1, waits_for_room=True))
    (alert,) = find_alerts(ROOT, [(waiting, WorkerState.PAUSED)], [])
    assert str(alert.advice) == (
        f"Free space with `tfckpt-tui trash {QUOTED} empty`, or delete checkpoints for good with "
        f"`tfckpt-tui prune {QUOTED} CKPT --delete`. The run saves by itself once there is room."
    )


def test_one_failed_save_is_an_alert_also_without_any_checkpoint():
    (alert,) = alerts(failed=1, problem="It does not fit.", unsaved_steps=1)
    assert alert.message == (
        "The last save failed: It does not fit. There is no checkpoint: 1 step would be lost."
    )


@pytest.mark.parametrize("state", [WorkerState.EXITED, WorkerState.LOST])
def test_a_run_that_ended_with_a_failed_save_keeps_its_alert(state):
    (alert,) = alerts(state, failed=1, problem="no room", saved_step=40, unsaved_steps=3)
    assert "start the run again: training continues from the newest checkpoint" in str(alert.advice)
    (alert,) = alerts(state, failed=1, problem="no room", unsaved_steps=3)
    assert "start the run again: training starts over" in str(alert.advice)


@pytest.mark.parametrize(
    ("saves", "late"),
    [
        ({"every_steps": 10, "unsaved_steps": 29, "unsaved_seconds": 60.0}, False),
        ({"every_steps": 10, "unsaved_steps": 30, "unsaved_seconds": 60.0}, True),
        ({"every_steps": 10, "unsaved_steps": 30, "unsaved_seconds": 9.9}, False),
        ({"every_steps": None, "unsaved_steps": 10**9, "unsaved_seconds": 1e9}, False),
        ({"every_seconds": 5.0, "unsaved_seconds": 14.9}, False),
        ({"every_seconds": 5.0, "unsaved_seconds": 15.0}, True),
        # Steps of 6 s: a save every second is due at each step and takes two.
        ({"every_seconds": 1.0, "unsaved_seconds": 35.9, "step_seconds": 6.0}, False),
        ({"every_seconds": 1.0, "unsaved_seconds": 36.0, "step_seconds": 6.0}, True),
        # The last save took 20 s in the background.
        ({"every_seconds": 1.0, "unsaved_seconds": 59.9, "save_seconds": 20.0}, False),
        ({"every_seconds": 1.0, "unsaved_seconds": 60.0, "save_seconds": 20.0}, True),
        ({"every_steps": 9, "every_seconds": 60.0, "unsaved_steps": 27, **LATE}, True),
    ],
)
def test_saves_are_overdue_after_three_intervals(saves, late):
    found = alerts(**saves)
    assert [alert.kind for alert in found] == (["save-overdue"] if late else [])
    if late:
        assert found[0].message.startswith("No checkpoint for 3 intervals, although a save is due")
        assert f"tfckpt-tui save {QUOTED}" in str(found[0].advice)


@pytest.mark.parametrize(
    "state",
    [
        WorkerState.PAUSED,
        WorkerState.STARTING,
        WorkerState.RESTORING,
        WorkerState.EXITED,
        WorkerState.LOST,
    ],
)
def test_a_run_that_does_not_train_is_not_late(state):
    assert alerts(state, every_steps=10, unsaved_steps=1000, **LATE) == ()


def test_failing_saves_explain_a_late_checkpoint():
    found = alerts(failed=3, problem="no room", every_steps=10, unsaved_steps=30, **LATE)
    assert [alert.kind for alert in found] == ["save-failed"]


def test_earlier_versions_and_other_workers_give_no_alert():
    assert find_alerts(ROOT, [], []) == ()
    assert find_alerts(ROOT, [(a_worker(), WorkerState.TRAINING)], []) == ()
    failing = a_worker(index=1, saves=SaveStatus(failed=3))
    assert alerts(others=[(failing, WorkerState.TRAINING)]) == ()


def checkpoint(step, **metrics):
    return Checkpoint(
        name=f"ckpt-{step}",
        step=step,
        branch=0,
        state=CheckpointState.COMPLETE,
        size=1,
        shards=1,
        saved_at=0.0,
        metrics=metrics,
    )


def not_finite(name, value="nan", step=41):
    return NotFiniteMetric(name=name, value=value, step=step)


HISTORY = [checkpoint(60, loss=None), checkpoint(40, loss=0.5), checkpoint(20, loss=0.7)]


def test_a_metric_that_is_not_finite_names_the_checkpoint_to_go_back_to():
    chief = a_worker(not_finite=[not_finite("loss"), not_finite("norm", "inf", 40)])
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], HISTORY)
    assert (alert.kind, alert.title) == ("not-finite", "loss is NaN")
    assert alert.message == (
        "loss is NaN since step 41, norm is infinite since step 40. "
        "The newest checkpoint with no known NaN or infinite value is ckpt-40."
    )
    assert f"Go back to it with `tfckpt-tui restore {QUOTED} --name ckpt-40`." in str(alert.advice)
    assert f"`tfckpt-tui verify {QUOTED} ckpt-40 --finite`" in str(alert.advice)


def test_a_run_that_ended_with_nan_goes_back_at_its_next_start():
    chief = a_worker(not_finite=[not_finite("loss")])
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.EXITED)], HISTORY)
    command = f"`tfckpt-tui restore {QUOTED} --name ckpt-40 --next-start`"
    assert str(alert.advice).startswith(f"Go back to it with {command}, then start the run again.")


def test_without_a_finite_checkpoint_there_is_none_to_go_back_to():
    chief = a_worker(not_finite=[not_finite("loss")])
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], HISTORY[:1])
    assert "No checkpoint without NaN or infinite values can be restored." in alert.message
    assert "tfckpt-tui restore" not in str(alert.advice)


def test_a_metric_that_is_rarely_reported_does_not_make_all_checkpoints_bad():
    chief = a_worker(not_finite=[not_finite("score")])
    history = [checkpoint(60, loss=0.4, score=None), checkpoint(40, loss=0.5, score=None)]
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], history)
    assert "Each checkpoint has a metric that is not finite; its values may be" in alert.message
    assert f"`tfckpt-tui verify {QUOTED} --finite`" in str(alert.advice)
    history[1] = msgspec.structs.replace(history[1], not_finite_tensors=0)
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], history)
    assert "no known NaN or infinite value is ckpt-40." in alert.message
    history = [msgspec.structs.replace(found, not_finite_tensors=1) for found in history]
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], history)
    assert "No checkpoint without NaN or infinite values can be restored." in alert.message


def test_a_metric_of_one_worker_names_it():
    loss, score = not_finite("loss"), not_finite("score", "-inf", 7)
    chief, other = a_worker(not_finite=[loss]), a_worker(index=1, not_finite=[loss, score])
    workers = [(chief, WorkerState.TRAINING), (other, WorkerState.TRAINING)]
    (alert,) = find_alerts(ROOT, workers, HISTORY)
    assert alert.message.startswith(
        "loss is NaN since step 41, score of worker 1 is negative infinite since step 7. "
    )


def test_many_metrics_are_counted():
    chief = a_worker(not_finite=[not_finite(f"m{n}") for n in range(9)])
    (alert,) = find_alerts(ROOT, [(chief, WorkerState.TRAINING)], HISTORY)
    assert alert.message.startswith(
        "m0, m1 and m2 are NaN since step 41, 6 more metrics are not finite. "
    )
    assert "m3" not in alert.message


def launched_at(
    started_at: float, updated_at: float, longest_start_seconds: float | None = None
) -> SupervisorStatus:
    """A supervisor that has launched worker 0 as process 12."""
    return SupervisorStatus(
        pid=11,
        host="trainhost",
        process_started_at=started_at - 1,
        updated_at=updated_at,
        interval_seconds=1.0,
        state=SupervisorState.RUNNING,
        workers=[WorkerProcess(index=0, pid=12, process_started_at=started_at)],
        longest_start_seconds=longest_start_seconds,
    )


@pytest.mark.parametrize(
    ("before", "limit"),
    [(None, 180.0), (2.0, 30.0), (20.0, 80.0)],
)
@pytest.mark.parametrize("beats_at", [None, 50.0, 101.0])
def test_a_start_is_an_alert_once_it_takes_much_longer_than_earlier_ones(before, limit, beats_at):
    known = [] if beats_at is None else [(a_worker(updated_at=beats_at), WorkerState.LOST)]
    for seconds in (limit - 1, limit + 1):
        supervisor = launched_at(100.0, 100.0 + seconds, longest_start_seconds=before)
        found = find_alerts(ROOT, known, [], supervisor)
        if seconds < limit or beats_at == 101.0:
            assert found == ()
            continue
        (alert,) = found
        assert (alert.kind, alert.title) == (
            "no-heartbeat",
            f"no heartbeat {limit:.0f} s after the start",
        )
        assert alert.message.startswith("Worker 0 (process 12) runs, but there is no heartbeat")
        assert ("Earlier starts took" in alert.message) == (before is not None)
        assert f"tfckpt-tui logs {QUOTED}" in str(alert.advice)
        assert f"tfckpt-tui stop --force {QUOTED}" in str(alert.advice)


@pytest.mark.parametrize("phase", list(Phase))
def test_workers_that_never_begin_their_run_are_an_alert(phase):
    early = a_worker(updated_at=105.0, activity=Activity.STARTING, phase=phase)
    (alert, *more) = find_alerts(
        ROOT, [(early, WorkerState.STARTING)], [], launched_at(100.0, 281.0)
    ) or [None]
    assert more == []
    if phase not in BEFORE_RUN:
        assert alert is None
    elif phase is Phase.IMPORT:
        assert alert.title == "no heartbeat 180 s after the start"
    else:
        assert alert.title == "no training run 180 s after the start"


@pytest.mark.parametrize("state", [WorkerState.TRAINING, WorkerState.PAUSED])
def test_workers_whose_supervisor_is_gone_are_an_alert(state):
    supervisor = launched_at(100.0, 160.0)
    workers = [
        (a_worker(process_started_at=100.0), state),
        (a_worker(index=1, process_started_at=100.0), WorkerState.LOST),
    ]
    (alert,) = find_alerts(ROOT, workers, [], supervisor, supervisor_lives=False)
    assert alert.kind == "no-supervisor"
    assert alert.message == (
        "The supervisor is gone: the workers run on, but nobody restarts a lost worker."
    )
    assert str(alert.advice) == (
        f"Stop the run with `tfckpt-tui stop {QUOTED}`, then launch it again with "
        f"`tfckpt-tui launch {QUOTED} --workers 2 -- COMMAND`."
    )


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_set_clock_makes_and_hides_no_alert(off):
    """The supervisor tells times by the clock before, and the worker by the present one."""
    supervisor = msgspec.structs.replace(
        launched_at(100.0, 400.0),
        namespace="boot:1",
        process_after_boot=9.0,
        workers=[WorkerProcess(index=0, pid=12, process_started_at=100.0, process_after_boot=10.0)],
    )
    began = {"process_started_at": 100.0 + off, "process_after_boot": 10.0, "namespace": "boot:1"}
    trains = [(a_worker(updated_at=399.0 + off, **began), WorkerState.TRAINING)]
    assert find_alerts(ROOT, trains, [], supervisor) == ()
    (alert,) = find_alerts(ROOT, trains, [], supervisor, supervisor_lives=False)
    assert alert.kind == "no-supervisor"
    began |= {"process_started_at": 500.0 + off, "process_after_boot": 410.0}
    later = [(a_worker(updated_at=600.0 + off, **began), WorkerState.TRAINING)]
    assert find_alerts(ROOT, later, [], supervisor, supervisor_lives=False) == ()


def test_the_advice_names_all_kinds_of_processes():
    jobs = ("chief", "worker", "worker", "ps")
    workers = [
        (a_worker(index=index, job=job, process_started_at=100.0), WorkerState.TRAINING)
        for index, job in enumerate(jobs)
    ]
    (alert,) = find_alerts(ROOT, workers, [], launched_at(100.0, 160.0), supervisor_lives=False)
    assert "--workers 2 --parameter-servers 1 -- COMMAND" in str(alert.advice)


def test_a_supervisor_that_no_worker_misses_is_no_alert():
    running = launched_at(100.0, 160.0)
    stopped = msgspec.structs.replace(running, state=SupervisorState.STOPPED)
    started = [(a_worker(process_started_at=100.0), WorkerState.TRAINING)]
    later = [(a_worker(process_started_at=200.0), WorkerState.TRAINING)]
    for state in (WorkerState.LOST, WorkerState.EXITED):
        gone = [(a_worker(process_started_at=100.0), state)]
        assert find_alerts(ROOT, gone, [], running, supervisor_lives=False) == ()
    assert find_alerts(ROOT, started, [], stopped, supervisor_lives=False) == ()
    assert find_alerts(ROOT, later, [], running, supervisor_lives=False) == ()
    heard = [(a_worker(process_started_at=100.0, updated_at=160.0), WorkerState.TRAINING)]
    assert find_alerts(ROOT, heard, [], running) == ()
