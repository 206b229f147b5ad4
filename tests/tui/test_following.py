"""A directory is followed whatever happens to it, and to the events that tell of it."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rundir_factory import RunFactory
from test_monitor import Watching

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.poller import Look
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.monitor.watcher import MISSED, Doubt, Watch
from waiting import wait_until


@contextmanager
def followed(root: Path, poll: float | None = None) -> Iterator[Watching]:
    watching = Watching(RunDirectory(root), poll)
    try:
        yield watching
    finally:
        watching.monitor.stop()


def wait_for_only(watching: Watching, *names: str) -> None:
    def found() -> bool:
        newest = watching.newest
        return newest is not None and {c.name for c in newest.checkpoints} == set(names)

    wait_until(found, 10, f"exactly {names}")


def test_a_link_is_followed_when_it_is_turned_to_another_directory(tmp_path: Path) -> None:
    RunFactory(tmp_path / "first").run.root.mkdir()
    first, second = RunFactory(tmp_path / "first"), RunFactory(tmp_path / "second")
    second.run.root.mkdir()
    first.checkpoint(1, recorded=False)
    second.checkpoint(2, recorded=False)
    link = tmp_path / "run"
    link.symlink_to(first.run.root)
    with followed(link) as watching:
        wait_for_only(watching, "ckpt-1")
        (tmp_path / "new").symlink_to(second.run.root)
        os.replace(tmp_path / "new", link)
        wait_for_only(watching, "ckpt-2")
        second.checkpoint(3, recorded=False)
        wait_for_only(watching, "ckpt-2", "ckpt-3")


def test_a_directory_that_was_renamed_away_is_gone_and_its_successor_is_seen(
    tmp_path: Path,
) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    made.checkpoint(1, recorded=False)
    with followed(made.run.root) as watching:
        wait_for_only(watching, "ckpt-1")
        made.run.root.rename(tmp_path / "elsewhere")
        wait_until(lambda: watching.newest and not watching.newest.present, 10, "it is gone")
        # What is written into the one that went must not be taken for news of this one.
        RunFactory(tmp_path / "elsewhere").checkpoint(7, recorded=False)
        successor = RunFactory(tmp_path / "run")
        successor.run.root.mkdir()
        successor.checkpoint(2, recorded=False)
        wait_for_only(watching, "ckpt-2")


def test_a_file_system_that_is_unmounted_and_mounted_again(tmp_path: Path) -> None:
    place = tmp_path / "mount"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        RunFactory(place).checkpoint(1, recorded=False)
        with followed(place) as watching:
            wait_for_only(watching, "ckpt-1")
            subprocess.run(["umount", str(place)], check=True)
            wait_for_only(watching)
            subprocess.run(mount, check=True)
            RunFactory(place).checkpoint(2, recorded=False)
            wait_for_only(watching, "ckpt-2")
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


@pytest.fixture
def no_more_inotify() -> Iterator[None]:
    """Takes all inotify instances that this user may still have."""
    libc = ctypes.CDLL(None, use_errno=True)
    taken = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    while len(taken) < min(limit - 50, 5000):
        descriptor = libc.inotify_init1(os.O_CLOEXEC)
        if descriptor < 0:
            break
        taken.append(descriptor)
    if descriptor >= 0 or ctypes.get_errno() != errno.EMFILE:
        for descriptor in taken:
            os.close(descriptor)
        pytest.skip("the limit of inotify instances cannot be reached here")
    yield
    for descriptor in taken:
        os.close(descriptor)


def test_at_the_limit_of_inotify_it_says_so_and_polls(
    tmp_path: Path, no_more_inotify: None
) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-1")
        problem = wait_until(
            lambda: watching.newest and watching.newest.problems, 10, "it says so"
        )[0]
        assert "fs.inotify.max_user_instances" in problem
        made.checkpoint(2, recorded=False)
        wait_for_only(watching, "ckpt-1", "ckpt-2")


def test_a_burst_of_a_thousand_saves_costs_a_few_looks(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(0, recorded=False, listed=False)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-0")
        before, began = len(watching.seen), time.monotonic()
        index = (tmp_path / "ckpt-0.index").read_bytes()
        data = (tmp_path / "ckpt-0.data-00000-of-00001").read_bytes()
        for step in range(1, 1001):
            (tmp_path / f"ckpt-{step}.data-00000-of-00001").write_bytes(data)
            (tmp_path / f"ckpt-{step}.index").write_bytes(index)
        wait_until(
            lambda: watching.newest and len(watching.newest.checkpoints) == 1001, 20, "all of them"
        )
        # At most ten a second, whatever the number of events.
        assert len(watching.seen) - before <= 10 * (time.monotonic() - began) + 3


def test_events_that_were_lost_are_made_up_for_by_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    # No event ever arrives: as after an overflow, or of another machine on a network file system.
    monkeypatch.setattr(Watch, "refresh", lambda self: None)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-1")
        names = ["ckpt-1"]
        for step in range(2, 3 + MISSED):
            names.append(made.checkpoint(step, recorded=False))
            wait_for_only(watching, *names)
        problems = wait_until(
            lambda: watching.newest and watching.newest.problems, 10, "it finds that out"
        )
        assert problems == ("No file events come here; looking every 0.5 s.",)


def test_where_events_come_there_is_no_doubt(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-1")
        names = ["ckpt-1"]
        for step in range(2, 5 + MISSED):
            names.append(made.checkpoint(step, recorded=False))
            wait_for_only(watching, *names)
        assert all(snapshot.problems == () for snapshot in watching.seen)


def test_an_event_in_between_takes_the_doubt_away() -> None:
    doubt = Doubt()
    for _ in range(MISSED - 1):
        doubt.take(is_new=True, hinted=False)
    doubt.take(is_new=False, hinted=True)
    doubt.take(is_new=True, hinted=False)
    assert not doubt.is_sure
    for _ in range(MISSED):
        doubt.take(is_new=True, hinted=False)
    assert doubt.is_sure


def test_polling_uses_no_events_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Watch) -> None:
        raise AssertionError("events were asked for")

    monkeypatch.setattr(Watch, "refresh", refuse)
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    with followed(tmp_path, poll=0.05) as watching:
        wait_for_only(watching, "ckpt-1")
        made.checkpoint(2, recorded=False)
        wait_for_only(watching, "ckpt-1", "ckpt-2")


def test_an_index_that_is_finished_in_place_is_seen(tmp_path: Path) -> None:
    """TensorFlow creates the index and then writes it: the directory's time changes once only."""
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False, seconds_ago=7200)
    index = tmp_path / "ckpt-1.index"
    content = index.read_bytes()
    index.write_bytes(b"")
    with followed(tmp_path, poll=0.05) as watching:
        wait_until(lambda: watching.newest and watching.newest.checkpoints, 10, "a first look")
        index.write_bytes(content)
        wait_until(
            lambda: watching.newest and watching.newest.checkpoints[0].restorable, 20, "it is whole"
        )


def test_a_clock_that_is_set_back_does_not_freeze_the_list(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False, seconds_ago=7200)
    look, now = Look(made.run), time.time()
    assert len(look.snapshot(now).checkpoints) == 1
    index = tmp_path / "ckpt-1.index"
    facts = os.stat(tmp_path)
    # In place, so that no time of the directory tells of it.
    index.write_bytes(b"garbage")
    os.utime(tmp_path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert not look.snapshot(now - 86400).checkpoints[0].restorable


def test_a_dead_file_system_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """A look that never returns, as on a server that is gone."""
    stuck, release = threading.Event(), threading.Event()

    def clock() -> float:
        stuck.set()
        release.wait()
        return time.time()

    monitor = Monitor(RunDirectory(tmp_path), clock=time.time)
    monitor._clock = clock
    monitor.start(lambda snapshot: None)
    assert stuck.wait(10)
    try:
        # It returns, while the look does not.
        monitor.stop()
    finally:
        release.set()


def test_what_was_deleted_as_a_whole_comes_back_empty(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    made.checkpoint(1, recorded=False)
    with followed(made.run.root) as watching:
        wait_for_only(watching, "ckpt-1")
        shutil.rmtree(made.run.root)
        wait_until(lambda: watching.newest and not watching.newest.present, 10, "it is gone")
        assert "waiting for it" in watching.newest.problems[0]
        made.run.root.mkdir()
        wait_until(lambda: watching.newest and watching.newest.present, 10, "it is back")
        wait_for_only(watching)
