"""What a worker measures and reports."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import deque
from functools import partial
from types import SimpleNamespace

import pytest

from event_files import steps_with
from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveOverhead, WorkerFacts
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.stacks import StackRequest, WorkerStacks
from tfckpt_trainer.rundir.records.worker import (
    Activity,
    NotFiniteMetric,
    Phase,
    SaveStatus,
    WorkerStatus,
)
from tfckpt_trainer.rundir.stack_requests import ask_for_stacks
from tfckpt_trainer.rundir.storage.documents import load, store, try_read
from tfckpt_trainer.rundir.storage.tail import Tail
from waiting import wait_until

pytestmark = pytest.mark.tensorflow


def test_a_file_that_cannot_be_written_delays_no_other(tmp_path):
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    run = RunDirectory(tmp_path)
    run.create()
    writer, written = EventLogWriter(run, CommandQueue(run), is_chief=True), []

    def refuse():
        if not written:
            raise PermissionError(13, "Permission denied", str(run.overheads))
        written.append("first")

    writer.later(run.overheads, refuse)
    writer.later(run.overheads, lambda: written.append("second"))
    with pytest.raises(PermissionError):
        writer.retry()
    writer.later(run.state_file, lambda: written.append("other"))
    writer.close(60)
    assert written == ["other", "first", "second"]


def test_a_file_of_others_in_the_place_of_the_state_file_is_kept_and_told(tmp_path):
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    run = RunDirectory(tmp_path)
    run.create()
    run.state_file.symlink_to("notes.txt")
    writer = EventLogWriter(run, CommandQueue(run), is_chief=True)
    writer.later_told(run.state_file, lambda: point_state_file_at(run, "ckpt-1"))
    writer.later_told(run.state_file, lambda: point_state_file_at(run, "ckpt-2"))
    writer.close(60)
    (told,) = [entry.message for entry in read_entries(run)]
    (aside,) = tmp_path.glob("checkpoint.damaged-*")
    assert told == f"{run.state_file} was a symbolic link. It is {aside.name} now."
    assert os.readlink(aside) == "notes.txt"
    assert read_state_file(run.state_file).latest_name == "ckpt-2"


def test_an_event_log_that_cannot_be_written_is_told_until_it_can(tmp_path):
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
    from tfckpt_trainer.training.telemetry.telemetry import Telemetry

    run, metrics = RunDirectory(tmp_path), StepMetrics()
    run.create()
    run.event_log.symlink_to(tmp_path / "elsewhere")
    writer = EventLogWriter(run, CommandQueue(run), is_chief=True)
    telemetry = SimpleNamespace(
        metrics=metrics,
        event_log=writer,
        command_trouble="",
        summaries=SimpleNamespace(add_new_steps=list, flush=list, trouble=""),
        _note_not_finite=list,
        _disk=SimpleNamespace(full_in=lambda saved_at: None),
    )
    writer.note(EventKind.SAVE, "Saved ckpt-1.")
    told = Telemetry._write_pending(telemetry, True)
    assert told == f"a file of the run cannot be written: {metrics.write_problem}"
    assert f"{run.event_log}: it is a symbolic link" in metrics.write_problem
    run.event_log.unlink()
    assert Telemetry._write_pending(telemetry, True) == metrics.write_problem == ""
    assert "Saved ckpt-1." in run.event_log.read_text()
    writer.close(60)


def test_the_time_without_a_save_leaves_out_pauses(monkeypatch):
    from tfckpt_trainer.training.telemetry import step_metrics

    now = [1000.0]
    monkeypatch.setattr(step_metrics, "time", SimpleNamespace(time=lambda: now[0]))
    tally = step_metrics.SaveTally()
    now[0] = 1060.0
    tally.paused(1010.0)
    assert tally.unsaved_since == 1050.0
    tally.saved(4)
    assert tally.saved_at == tally.unsaved_since == 1060.0
    now[0] = 1100.0
    # It was paused before the save.
    tally.paused(1020.0)
    assert (tally.saved_at, tally.unsaved_since) == (1060.0, 1100.0)


def test_the_tally_counts_from_the_newest_checkpoint():
    from tfckpt_trainer.training.telemetry.step_metrics import SaveTally

    tally = SaveTally()
    tally.set_intervals(10, None)
    for _ in range(4):
        tally.step_done(0.5)
    assert tally.status(4) == SaveStatus(unsaved_steps=4, unsaved_seconds=2.0, every_steps=10)
    tally.begin()
    tally.step_done(0.5)  # while it is written in the background
    tally.saved(4)
    said = tally.status(5)
    assert (said.saved_step, said.unsaved_steps, said.unsaved_seconds) == (4, 1, 0.5)
    assert said.save_seconds == 0.5
    assert said.saved_at is not None
    for problem in ("one", "two"):
        tally.begin()
        tally.failed(problem)
    said = tally.status(5)
    assert (said.failed, said.problem, said.saved_step) == (2, "two", 4)
    tally.restored(2)
    said = tally.status(2)
    assert (said.failed, said.saved_step, said.unsaved_steps, said.unsaved_seconds) == (2, 2, 0, 0)
    tally.begin()
    tally.saved(3)
    assert (tally.status(3).failed, tally.status(3).problem) == (0, "")


def test_a_long_problem_is_cut_so_that_the_heartbeat_fits_on_a_full_disk():
    from tfckpt_trainer.training.telemetry.step_metrics import LONGEST_PROBLEM, SaveTally

    tally = SaveTally()
    tally.failed("x" * 5000)
    problem = tally.status(0).problem
    assert len(problem) == LONGEST_PROBLEM
    assert problem.endswith("…")


NAN, INF = float("nan"), float("inf")


def of_loss(step, value="nan"):
    return NotFiniteMetric(name="loss", value=value, step=step)


def test_a_metric_that_is_not_finite_is_one_event_however_long_it_lasts():
    from tfckpt_trainer.training.telemetry.finite_watch import FiniteWatch

    watch = FiniteWatch()
    watch.step_done(1, {"loss": 0.5, "norm": INF})
    assert watch.take_begun() == [NotFiniteMetric(name="norm", value="inf", step=1)]
    for step in range(2, 50):
        watch.step_done(step, {"loss": NAN, "norm": 1.0})
    assert watch.take_begun() == [of_loss(2)]
    assert watch.current == (of_loss(2),)


def test_a_metric_that_changes_at_each_step_is_one_event_and_one_alert_at_a_time():
    from tfckpt_trainer.training.telemetry.finite_watch import FiniteWatch

    watch = FiniteWatch()
    for step in range(1, 100, 2):
        watch.step_done(step, {"loss": NAN})
        assert watch.current == (of_loss(step),)
        watch.step_done(step + 1, {"loss": 0.5})
        assert watch.current == ()
    assert watch.take_begun() == [of_loss(1)]


def test_a_metric_that_was_finite_for_long_is_a_new_event():
    from tfckpt_trainer.training.telemetry.finite_watch import RECOVERED_AFTER, FiniteWatch

    watch = FiniteWatch()
    watch.step_done(1, {"loss": NAN})
    for step in range(2, 2 + RECOVERED_AFTER):
        watch.step_done(step, {"loss": 0.5})
    watch.step_done(50, {"loss": -INF})
    assert watch.take_begun() == [of_loss(1), of_loss(50, "-inf")]


def test_a_metric_that_is_reported_rarely_stays_not_finite_until_it_is_reported():
    from tfckpt_trainer.training.telemetry.finite_watch import FiniteWatch

    watch = FiniteWatch()
    watch.step_done(1, {"loss": NAN})
    watch.step_done(2, {"score": 1.0})
    assert watch.current == (of_loss(1),)


def facts_at_save(*not_finite, **metrics):
    """What the record of a checkpoint says of a worker."""
    return WorkerFacts(index=0, host="here", metrics=metrics, not_finite=list(not_finite))


def call_done(metrics, step):
    """Ends a call of one step."""
    from tfckpt_trainer.training.telemetry.step_metrics import Call

    metrics.call_done(step, Call(steps=1, seconds=0.1, input_seconds=0.0))


def test_the_throughput_counts_slow_steps_too():
    from tfckpt_trainer.training.telemetry.step_metrics import Call, StepMetrics, mean, median

    metrics = StepMetrics()
    metrics.examples_per_step = 10
    # The first call is traced.
    metrics.call_done(1, Call(steps=1, seconds=60.0, input_seconds=0.0))
    for step in range(2, 22):
        seconds = 1.0 if step % 10 == 0 else 0.0
        metrics.call_done(step, Call(steps=1, seconds=seconds, input_seconds=0.0))
    # 20 steps in 2 s.
    assert metrics.examples_per_second == pytest.approx(100)
    assert mean(metrics.step_seconds) == pytest.approx(0.1)
    assert median(metrics.step_seconds) == 0


def test_what_tracing_took_is_no_pace_and_a_shorter_call_traces_nothing():
    from tfckpt_trainer.training.telemetry.step_metrics import Call, StepMetrics

    metrics = StepMetrics()
    for steps, seconds in [(1, 60.0), (4, 60.0), (4, 4.0), (3, 3.0), (2, 2.0), (4, 4.0)]:
        metrics.call_done(metrics.step + steps, Call(steps, seconds, input_seconds=0.0))
    assert list(metrics.step_seconds) == [1.0] * 13


def test_a_restore_forgets_what_was_not_finite():
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    metrics = StepMetrics()
    metrics.fresh.update(loss=NAN, score=1.0)
    call_done(metrics, 5)
    assert metrics.not_finite.current == (of_loss(5),)
    metrics.set_position(3, 1, facts_at_save(score=2.0))
    assert metrics.not_finite.current == ()
    # Those of the checkpoint: the others are of a step that was left.
    assert metrics.reported == {"score": 2.0}


def test_a_metric_that_was_not_finite_at_the_restored_checkpoint_keeps_its_first_step():
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    metrics = StepMetrics()
    rare = NotFiniteMetric(name="val_loss", value="inf", step=10)
    metrics.set_position(900, 0, facts_at_save(of_loss(812), rare, loss=None, val_loss=None))
    assert metrics.not_finite.current == (of_loss(812), rare)
    metrics.fresh.update(loss=NAN)
    call_done(metrics, 901)
    assert metrics.not_finite.current == (of_loss(812), rare)
    assert metrics.not_finite.take_begun() == []
    assert str(metrics.reported["val_loss"]) == "inf"
    metrics.fresh.update(loss=0.5, val_loss=0.5)
    call_done(metrics, 902)
    assert metrics.not_finite.current == ()


def test_the_stall_of_every_thread_is_read_and_never_falls():
    from tfckpt_trainer.training.telemetry.heartbeat import CpuStall, stalled_seconds

    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        first, second = stalled_seconds(), stalled_seconds()
    finally:
        end.set()
        other.join()
    assert first is not None and second is not None
    assert {str(threading.get_native_id()), str(other.native_id)} <= first.keys()
    assert all(second[name] >= first[name] >= 0.0 for name in first.keys() & second.keys())
    ratio = CpuStall().ratio()
    assert ratio is not None and 0.0 <= ratio <= 1.0


def test_a_request_for_stacks_is_answered_at_whatever_moment_of_a_start_it_comes(
    tmp_path, monkeypatch
):
    from tfckpt_trainer.rundir.heartbeats import stack_writer
    from tfckpt_trainer.rundir.heartbeats.attention import Attention
    from tfckpt_trainer.training.start import start_heartbeat
    from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    monkeypatch.setenv("TFCKPT_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("TFCKPT_WORKER_INDEX", "0")
    # Other tests of this process may have started before.
    monkeypatch.setattr(stack_writer, "_begun", threading.Event())
    monkeypatch.setattr(stack_writer, "_heartbeat_answers", threading.Event())
    run = RunDirectory(tmp_path)

    def ask():
        """Asks, and waits for no answer."""
        assert ask_for_stacks(run, [0], 0) == {}

    def answered():
        asked = load(run.stacks_request, StackRequest)
        given = try_read(partial(load, run.worker_stacks(0), WorkerStacks))
        return given is not None and given.request == asked.id

    def store_and_ask(*arguments, **options):
        store(*arguments, **options)
        ask()

    # Whoever sees the first heartbeat can ask.
    monkeypatch.setattr(start_heartbeat, "store", store_and_ask)
    start_heartbeat.report_start(Phase.PREPARE)
    wait_until(answered, 60, "an answer right after the first heartbeat")
    # The run begins to answer before the thread of its start has looked.
    ask()
    heartbeat = Heartbeat(
        run,
        0,
        StepMetrics(),
        total_steps=None,
        attention=Attention(run, asks=True),
        every_second=lambda _: "",
    )
    heartbeat.start()
    wait_until(answered, 60, "an answer by the heartbeat of the run")
    heartbeat.stop()


def test_on_a_network_disk_a_heartbeat_is_rare_while_nobody_looks_and_steps_go_on(
    tmp_path, monkeypatch
):
    from tfckpt_trainer.rundir.heartbeats import attention
    from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    monkeypatch.setattr(attention, "is_network_file_system", lambda _: True)
    monkeypatch.setattr(attention, "LOOKED_AT_SECONDS", 0.0)
    run, metrics, written = RunDirectory(tmp_path), StepMetrics(), []
    run.create()

    def every_second(writes_steps):
        written.append(writes_steps)
        return ""

    heartbeat = Heartbeat(
        run,
        0,
        metrics,
        total_steps=None,
        attention=attention.Attention(run, asks=False),
        every_second=every_second,
    )
    metrics.activity, metrics.last_step_at = Activity.TRAINING, time.time() + 3600
    heartbeat.start()
    (status,) = read_workers(run)
    assert status.lost_after_seconds == attention.IDLE_LOST_SECONDS
    wait_until(lambda: written[1:], 60, "a second without a heartbeat")
    assert written[0]
    assert not any(written[1:])
    assert read_workers(run) == [status]
    heartbeat.nudge()
    wait_until(lambda: any(written[1:]), 60, "a heartbeat, with what steps reported")
    metrics.last_step_at = time.time() - 6
    wait_until(lambda: read_workers(run)[0].lost_after_seconds is None, 60, "a frequent one")
    heartbeat.stop()


def test_a_member_of_many_workers_writes_more_rarely_while_its_steps_are_short(
    tmp_path, monkeypatch
):
    from tfckpt_trainer.rundir.heartbeats import attention
    from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    monkeypatch.setattr(attention, "is_network_file_system", lambda _: True)
    monkeypatch.setattr(attention, "LOOKED_AT_SECONDS", 0.0)
    run, metrics = RunDirectory(tmp_path), StepMetrics()
    run.create()

    def told():
        status = load(run.worker_status(1), WorkerStatus)
        return attention.Pace(status.interval_seconds, status.lost_after_seconds)

    heartbeat = Heartbeat(
        run,
        1,
        metrics,
        total_steps=None,
        attention=attention.Attention(run, asks=True),
        every_second=lambda _: "",
        is_member=True,
    )
    metrics.activity, metrics.last_step_at = Activity.TRAINING, time.time() + 3600
    metrics.step_seconds.append(0.1)
    heartbeat.start()
    assert told() == attention.MEMBER
    for change, pace in (
        ({"activity": Activity.PAUSED}, attention.IDLE),
        ({"activity": Activity.TRAINING}, attention.MEMBER),
        ({"steps_per_call": 20}, attention.IDLE),
        ({"last_step_at": time.time() - 600}, attention.FREQUENT),
    ):
        for name, value in change.items():
            setattr(metrics, name, value)
        if pace is attention.MEMBER:
            heartbeat.nudge()
        wait_until(lambda pace=pace: told() == pace, 60, f"{change}")
    heartbeat.stop()


def test_a_metric_that_is_rarely_reported_is_recorded_at_its_step(make_run):
    from tfckpt_tui.services.metrics.metric_tail import read_metrics

    run = make_run(total_steps=9)
    for _ in run:
        run.report(loss=run.step)
        if run.step == 3:
            run.report(val_loss=0.5)
    points = [point for some in read_metrics(RunDirectory(run.directory)) for point in some]
    assert [point.step for point in points if "val_loss" in point.metrics] == [4]
    assert points[-1].metrics["loss"] == 8.0
    assert sorted(points, key=lambda point: point.step) == points


def test_a_heartbeat_that_cannot_be_written_is_in_the_event_log_once(make_run):
    run = make_run(total_steps=4)
    status = RunDirectory(run.directory).status_directory
    for _ in run:
        if run.step == 1:
            status.rename(status.with_name("aside"))
            status.write_text("no directory")
            for _ in range(3):
                run._telemetry.heartbeat.beat()
            status.unlink()
            status.with_name("aside").rename(status)
    notes = [entry.message for entry in read_entries(RunDirectory(run.directory))]
    (told,) = [words for words in notes if words.startswith("The heartbeat cannot be written: ")]
    assert f"{status}" in told


def test_a_command_that_is_claimed_while_others_are_taken_is_seen(tmp_path):
    from tfckpt_trainer.training.loop.command_poller import CommandPoller

    run = RunDirectory(tmp_path)
    run.create()
    queue = CommandQueue(run)
    poller = CommandPoller(run, SimpleNamespace(queue=queue))

    class ClaimedMeanwhile(deque):
        """The thread of the poller claims a command just after the loop looked a second time."""

        looks = 0

        def __len__(self):
            length = super().__len__()
            self.looks += 1
            if self.looks == 2:
                queue.submit(CommandKind.SAVE, requested_by="test")
                poller._claim_all()
            return length

    poller._claimed = ClaimedMeanwhile()
    assert poller.take() == []
    assert any(poller.has_commands for _ in range(3))
    assert [command.kind for command in poller.take()] == [CommandKind.SAVE]
    assert not poller.has_commands


LINKS = ["tensorboard", "tensorboard/branch-0", "tensorboard/branch-0/worker-1"]


@pytest.mark.parametrize("link", LINKS)
def test_no_event_file_is_written_through_a_link(tmp_path, link):
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
    from tfckpt_trainer.training.telemetry.summaries import SummaryWriter

    run, elsewhere = RunDirectory(tmp_path / "run"), tmp_path / "elsewhere"
    writer = SummaryWriter(run, run.tensorboard, 1, StepMetrics())
    run.create()
    elsewhere.mkdir()
    replace_by_link(run.control / link, elsewhere)
    writer.start_branch(0, 0)
    writer.write_event(1, "Saved.")
    writer.close()
    assert "is a symbolic link; expected a directory" in writer.trouble
    assert not list(elsewhere.iterdir())
    writer.start_branch(1, 0)
    assert run.tensorboard.is_symlink() or list(run.tensorboard.glob("branch-1/worker-1/*"))
    assert not list(elsewhere.iterdir())
    writer.close()


def test_event_files_go_on_once_the_disk_takes_them(tmp_path):
    """A disk that was full for a moment ended them until the next restart."""
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
    from tfckpt_trainer.training.telemetry.summaries import AGAIN_SECONDS, SummaryWriter

    run, now = RunDirectory(tmp_path), [0.0]
    run.create()
    writer = SummaryWriter(run, run.tensorboard, 0, StepMetrics(), clock=lambda: now[0])
    (run.tensorboard / "branch-0").touch()
    writer.start_branch(0, 0)
    writer.write_event(1, "Saved.", [("cost", 1.0)])
    (run.tensorboard / "branch-0").unlink()
    writer.flush()
    assert "TensorBoard summaries cannot be written" in writer.trouble
    now[0] += AGAIN_SECONDS
    writer.flush()
    assert writer.trouble == ""
    writer.write_event(2, "Saved.", [("cost", 2.0)])
    writer.close()
    now[0] += AGAIN_SECONDS
    writer.flush()
    assert steps_with("cost", run.tensorboard) == [2]
    assert len(list((run.tensorboard / "branch-0").iterdir())) == 1


@pytest.mark.parametrize("is_made_later", [False, True])
@pytest.mark.parametrize("link", ["branch-0", "branch-0/plugins", "branch-0/plugins/profile"])
def test_no_trace_is_written_through_a_link(tmp_path, monkeypatch, link, is_made_later):
    import tensorflow as tf

    from tfckpt_trainer.training.commands.profile import Tracer
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics

    run, elsewhere = RunDirectory(tmp_path / "run"), tmp_path / "elsewhere"
    run.create()
    elsewhere.mkdir()
    saved = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda directory, options: None)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda save=True: saved.append(save))
    tracer = Tracer(0, StepMetrics())
    if not is_made_later:
        replace_by_link(run.tensorboard / link, elsewhere)
        with pytest.raises((OSError, DamagedFileError), match="is a symbolic link"):
            tracer.start(run.tensorboard / "branch-0")
        assert not saved
    else:
        tracer.start(run.tensorboard / "branch-0")
        replace_by_link(run.tensorboard / link, elsewhere)
        assert "is a symbolic link" in tracer.stop(1).problem
        assert saved == [False]
    assert not list(elsewhere.iterdir())


def replace_by_link(place, target):
    """Makes a link, as a colleague who may write to a run directory can."""
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def test_measurements_of_saves_are_bounded(tmp_path):
    from tfckpt_trainer.training.telemetry.telemetry import append_overhead

    path, limit = tmp_path / "overheads.jsonl", 5000
    for number in range(500):
        one = SaveOverhead(
            checkpoint=f"ckpt-{number}", sequence=number, slowing_seconds=1.0, slowing_steps=1
        )
        append_overhead(path, one, limit)
        assert path.stat().st_size <= limit
    kept = [one.sequence for one in Tail(path, SaveOverhead).read_new()]
    assert kept == list(range(500 - len(kept), 500))
    assert len(kept) > 15
    assert list(tmp_path.iterdir()) == [path]
