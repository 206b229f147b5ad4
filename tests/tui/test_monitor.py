from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from rundir_factory import RunFactory, two_branches

from requirements import require
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.heartbeats.health import RunState, WorkerState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_tui.monitor import run_monitor, snapshot_reader
from tfckpt_tui.monitor.file_events import DirectoryWatcher
from tfckpt_tui.monitor.run_monitor import DEBOUNCE_SECONDS, Monitor
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from waiting import MOST_SECONDS, wait_until


class Watching:
    """A monitor and the snapshots it handed over."""

    def __init__(self, run: RunDirectory, poll: float | None) -> None:
        self.seen: list[RunSnapshot] = []
        self.monitor = Monitor(run, poll)
        self.monitor.start(self.seen.append)

    @property
    def newest(self) -> RunSnapshot | None:
        return self.seen[-1] if self.seen else None

    def wait_for_names(self, *names: str, timeout: float = 10) -> RunSnapshot:
        def look() -> RunSnapshot | None:
            newest = self.newest
            known = [c.name for c in newest.checkpoints] if newest else []
            return newest if set(names) <= set(known) else None

        return wait_until(look, timeout, f"checkpoints {names}")


@contextmanager
def followed(root: Path, poll: float | None = None) -> Iterator[Watching]:
    watching = Watching(RunDirectory(root), poll)
    try:
        yield watching
    finally:
        watching.monitor.stop()


@contextmanager
def followed_by_events(root: Path) -> Iterator[Watching]:
    """Reads only at file events, while a command is under way, and when it is asked."""
    with patch.object(run_monitor, "POLL_SECONDS", 3600.0), followed(root) as watching:
        yield watching


@pytest.fixture(params=[None, 0.05], ids=["events", "poll"])
def watching(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watching]:
    with followed(tmp_path / "run", request.param) as watching:
        yield watching


def look(factory: RunFactory) -> RunSnapshot:
    return SnapshotReader(factory.run).read(factory.now)


def test_a_snapshot_has_the_whole_state_of_a_run(tmp_path: Path) -> None:
    snapshot = look(two_branches(tmp_path / "run", now=time.time()))
    assert snapshot.state is RunState.TRAINING
    assert snapshot.trainer_answers
    assert [view.status.index for view in snapshot.workers] == [0, 1]
    assert [view.state for view in snapshot.workers] == [WorkerState.TRAINING] * 2
    assert snapshot.step == 438
    assert snapshot.branch == 1
    assert snapshot.total_steps == 5000
    names = [checkpoint.name for checkpoint in snapshot.checkpoints]
    assert names == ["ckpt-b1-400", "ckpt-500", "ckpt-400", "ckpt-300", "ckpt-200", "ckpt-100"]
    assert snapshot.head is not None
    assert snapshot.head.name == "ckpt-b1-400"
    assert [entry.kind for entry in snapshot.event_log][-1] is EventKind.RESTORE
    assert snapshot.samples.branches == [0, 1]
    assert snapshot.disk_used == sum(c.size for c in snapshot.checkpoints) > 0
    assert snapshot.disk_total is not None
    assert snapshot.forecast.seconds_left == pytest.approx((5000 - 438) * 0.118)
    assert snapshot.problems == ()


def test_the_time_left_counts_slow_steps_too(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", now=time.time())
    made.worker(0, step=438, step_seconds=0.01, step_seconds_mean=0.5)
    assert look(made).forecast.seconds_left == pytest.approx((5000 - 438) * 0.5)


@pytest.mark.parametrize(("newest", "interval"), [(30.0, 60.0), (1380.0, None)])
def test_saves_tell_when_the_disk_is_full_unless_they_have_stopped(
    tmp_path: Path, newest: float, interval: float | None
) -> None:
    made = RunFactory(tmp_path / "run", now=time.time()).create()
    made.worker(0)
    for saves_ago in (2, 1, 0):
        made.checkpoint(300 - 100 * saves_ago, seconds_ago=newest + 60 * saves_ago)
    snapshot = look(made)
    forecast = snapshot.forecast
    assert forecast.save_interval == pytest.approx(interval, abs=1e-3)
    if interval is None:
        assert (forecast.disk_full_seconds, forecast.save_share) == (None, None)
    else:
        saves_left = snapshot.disk_free / snapshot.checkpoints[0].size
        assert forecast.disk_full_seconds == pytest.approx(saves_left * interval, rel=1e-3)
        assert forecast.save_share == pytest.approx(0.21 / interval, rel=1e-3)


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    before = look(made).disk_used
    for path in made.run.root.glob("ckpt-500.*"):
        os.link(path, path.with_name(path.name.replace("ckpt-500", "best-500")))
    snapshot = look(made)
    assert "best-500" in {checkpoint.name for checkpoint in snapshot.checkpoints}
    assert snapshot.disk_used == before


def test_a_plain_tensorflow_directory_can_be_read(tmp_path: Path) -> None:
    factory = RunFactory(tmp_path)
    factory.checkpoint(10, recorded=False, seconds_ago=100)
    factory.checkpoint(20, recorded=False, seconds_ago=50)
    snapshot = look(factory)
    assert not snapshot.tracked
    assert snapshot.state is RunState.UNATTENDED
    assert not snapshot.trainer_answers
    assert [c.name for c in snapshot.checkpoints] == ["ckpt-20", "ckpt-10"]
    assert snapshot.step == 20
    assert not (tmp_path / ".tfckpt").exists(), "looking changes nothing"


def test_unreadable_files_are_problems_and_the_rest_is_read(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run", now=time.time())
    factory.run.worker_status(1).write_bytes(b"{ not json")
    factory.run.run_file.write_bytes(b"\xff\xfe")
    factory.run.supervisor_status.symlink_to("/etc/passwd")
    snapshot = look(factory)
    assert len(snapshot.checkpoints) == 6
    assert [view.status.index for view in snapshot.workers] == [0]
    told = "\n".join(snapshot.problems)
    for name in ("worker-1.json", "run.json", "supervisor.json"):
        assert name in told


@pytest.mark.parametrize(("checkpoints_per_second", "is_late"), [(1000, False), (0.2, True)])
def test_what_was_changed_in_place_is_seen_the_later_the_more_checkpoints_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints_per_second: float, is_late: bool
) -> None:
    monkeypatch.setattr(snapshot_reader, "CHECKPOINTS_PER_SECOND", checkpoints_per_second)
    made = two_branches(tmp_path / "run")
    now = time.time() + 3600
    reader = SnapshotReader(made.run)
    reader.read(now)
    os.truncate(made.run.root / "ckpt-300.data-00000-of-00001", 0)

    def looks_good(seconds: float) -> bool:
        checkpoint = reader.read(now + seconds).checkpoint("ckpt-300")
        assert checkpoint is not None
        return checkpoint.restorable

    assert [looks_good(seconds) for seconds in (14, 16, 31)] == [True, is_late, False]


def test_old_heartbeats_do_not_count_as_training(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run", now=time.time())
    factory.worker(1, updated_at=factory.now - 60)
    snapshot = look(factory)
    assert snapshot.workers[1].state is WorkerState.LOST
    assert snapshot.state is RunState.DEGRADED
    assert snapshot.workers[1].age == pytest.approx(60)
    factory.worker(0, activity=Activity.EXITED, ending=Ending.STOPPED)
    factory.worker(1, activity=Activity.EXITED, ending=Ending.STOPPED)
    assert look(factory).state is RunState.STOPPED


def test_a_command_is_in_the_snapshot_in_each_state(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run", now=time.time())
    reader, box = SnapshotReader(factory.run), CommandQueue(factory.run)
    assert reader.read(factory.now).pending == ()
    asked = box.submit(CommandKind.SAVE, requested_by="test")
    assert [c.id for c in reader.read(factory.now).pending] == [asked.id]
    taken = box.claim(time.time())
    assert taken is not None
    snapshot = reader.read(factory.now)
    assert [c.id for c in snapshot.working] == [asked.id]
    box.finish(advance(taken, CommandState.DONE, "Saved ckpt-440."))
    snapshot = reader.read(factory.now)
    assert (snapshot.pending, snapshot.working) == ((), ())
    assert [c.message for c in snapshot.finished] == ["Saved ckpt-440."]


def test_commands_finished_before_the_first_read_are_left_out(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run", now=time.time())
    box = CommandQueue(factory.run)
    box.submit(CommandKind.SAVE, requested_by="test")
    taken = box.claim(time.time())
    assert taken is not None
    box.finish(advance(taken, CommandState.FAILED, "The disk is full."))
    assert look(factory).finished == ()


def test_a_new_checkpoint_appears(watching: Watching, tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run")
    watching.wait_for_names("ckpt-500")
    factory.checkpoint(500, 1, "ckpt-b1-400")
    snapshot = watching.wait_for_names("ckpt-b1-500", timeout=3)
    assert snapshot.checkpoints[0].name == "ckpt-b1-500"


def test_a_deleted_checkpoint_disappears(watching: Watching, tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run")
    watching.wait_for_names("ckpt-100")
    for path in factory.run.root.glob("ckpt-100.*"):
        path.unlink()
    factory.run.record("ckpt-100").unlink()
    wait_until(lambda: "ckpt-100" not in {c.name for c in watching.seen[-1].checkpoints}, 5, "gone")


def test_a_directory_can_appear_disappear_and_be_replaced(
    watching: Watching, tmp_path: Path
) -> None:
    wait_until(lambda: watching.newest, 5, "a first snapshot")
    assert watching.newest is not None
    assert not watching.newest.present
    assert "does not exist" in watching.newest.problems[0]
    two_branches(tmp_path / "run")
    watching.wait_for_names("ckpt-500")
    os.rename(tmp_path / "run", tmp_path / "old")
    wait_until(lambda: not watching.seen[-1].present, 5, "absence is noticed")
    other = RunFactory(tmp_path / "run").create()
    other.checkpoint(7)
    snapshot = watching.wait_for_names("ckpt-7")
    assert [c.name for c in snapshot.checkpoints] == ["ckpt-7"]
    assert not snapshot.samples, "nothing is left of the directory that stood there before"
    shutil.rmtree(tmp_path / "run")
    wait_until(lambda: not watching.seen[-1].present, 5, "absence is noticed again")


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with followed(tmp_path / "link") as watching:
        watching.wait_for_names("ckpt-500")
        factory.checkpoint(600)
        watching.wait_for_names("ckpt-600", timeout=3)


def test_events_trigger_a_read_before_the_next_poll(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run")
    with followed_by_events(factory.run.root) as watching:
        first = watching.wait_for_names("ckpt-500")
        if first.problems:
            require("file events")
        assert first.problems == ()
        time_of_look = len(watching.seen)
        factory.checkpoint(600)
        watching.wait_for_names("ckpt-600", timeout=5)
        assert len(watching.seen) < time_of_look + 10, "a burst of events costs few looks"


def test_heartbeats_alone_cause_no_read(tmp_path: Path) -> None:
    """Those of 64 workers would cause five a second."""
    factory = two_branches(tmp_path / "run")
    factory.live_worker(0, step=501, branch=1)
    arrived = threading.Event()
    control = DirectoryWatcher([factory.run.status_directory], arrived.set)
    with followed_by_events(factory.run.root) as watching, ExitStack() as ended:
        ended.callback(control.stop)
        if watching.wait_for_names("ckpt-500").problems:
            require("file events")
        control.refresh()
        before = len(watching.seen)
        factory.live_worker(0, step=502, branch=1)
        assert arrived.wait(MOST_SECONDS)
        # So long a read would take to begin.
        time.sleep(3 * DEBOUNCE_SECONDS)
        assert len(watching.seen) == before


def test_a_command_under_way_is_followed_more_often(tmp_path: Path) -> None:
    factory = two_branches(tmp_path / "run")
    with followed_by_events(factory.run.root) as watching:
        watching.wait_for_names("ckpt-500")
        submitted = CommandQueue(factory.run).submit(CommandKind.SAVE, requested_by="test")
        watching.monitor.refresh()
        wait_until(
            lambda: sum(submitted.id in {c.id for c in one.pending} for one in watching.seen) > 2,
            MOST_SECONDS,
            "it is looked at again and again",
        )


def test_the_monitor_stops_at_once(watching: Watching, tmp_path: Path) -> None:
    two_branches(tmp_path / "run")
    watching.wait_for_names("ckpt-500")
    watching.monitor.stop()
    thread = watching.monitor._thread
    assert thread is not None
    assert not thread.is_alive()
