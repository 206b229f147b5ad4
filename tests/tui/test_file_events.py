"""The monitor follows a directory through replacements, lost events and system limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from rundir_factory import RunFactory
from test_monitor import Watching, followed

from real_file_systems import small_tmpfs
from requirements import WITHOUT_FILE_EVENTS, needs
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor import file_events
from tfckpt_tui.monitor.file_events import MISSED, DirectoryWatcher, EventLossDetector
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from waiting import wait_until


def wait_for_only(watching: Watching, *names: str) -> None:
    def found() -> bool:
        newest = watching.newest
        return newest is not None and {c.name for c in newest.checkpoints} == set(names)

    wait_until(found, 10, f"exactly {names}")


def test_a_link_that_changes_its_target_is_followed(tmp_path: Path) -> None:
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


def test_a_renamed_directory_is_gone_and_its_replacement_is_watched(
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
    with ExitStack() as stack:
        with small_tmpfs(place):
            RunFactory(place).checkpoint(1, recorded=False)
            watching = stack.enter_context(followed(place))
            wait_for_only(watching, "ckpt-1")
        wait_for_only(watching)
        with small_tmpfs(place):
            RunFactory(place).checkpoint(2, recorded=False)
            wait_for_only(watching, "ckpt-2")


FOLLOW = """
import sys
from pathlib import Path
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.run_monitor import Monitor

def tell(snapshot):
    print(*[c.name for c in snapshot.checkpoints], *snapshot.problems, flush=True)

monitor = Monitor(RunDirectory(Path(sys.argv[1])), None)
monitor.start(tell)
sys.stdin.read()
monitor.stop()
"""
"""Prints what is found in a directory, until its input ends."""

OWN_USERS = ["unshare", "--user", "--map-root-user"]


@pytest.mark.e2e
@needs("user namespaces")
def test_the_inotify_limit_is_reported_and_polling_continues(tmp_path: Path) -> None:
    """The limit is that of a namespace of users: no other test loses its events."""
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    made.checkpoint(1, recorded=False)
    told = tmp_path / "told"
    follow = [sys.executable, "-c", FOLLOW, str(made.run.root)]
    with (
        told.open("w") as output,
        subprocess.Popen(
            [*OWN_USERS, "sh", "-c", WITHOUT_FILE_EVENTS, *follow],
            stdin=subprocess.PIPE,
            stdout=output,
        ) as following,
    ):
        wait_until(lambda: "fs.inotify.max_user_instances" in told.read_text(), 60, "it says so")
        assert "ckpt-1" in told.read_text()
        made.checkpoint(2, recorded=False)
        wait_until(lambda: "ckpt-2" in told.read_text(), 10, "the next checkpoint")
        assert following.stdin is not None
        following.stdin.close()
    assert following.returncode == 0


def test_a_burst_of_a_thousand_saves_causes_few_reads(tmp_path: Path) -> None:
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


def test_lost_events_are_detected_and_reads_find_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    # No event ever arrives: as after an overflow, or of another machine on a network file system.
    monkeypatch.setattr(DirectoryWatcher, "refresh", lambda self: None)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-1")
        names = ["ckpt-1"]
        for step in range(2, 3 + MISSED):
            names.append(made.checkpoint(step, recorded=False))
            wait_for_only(watching, *names)
        problems = wait_until(
            lambda: watching.newest and watching.newest.problems, 10, "it finds that out"
        )
        assert problems == ("No file events arrive here; reading every 1 s.",)


def test_no_loss_is_reported_while_events_arrive(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    with followed(tmp_path) as watching:
        wait_for_only(watching, "ckpt-1")
        names = ["ckpt-1"]
        for step in range(2, 5 + MISSED):
            names.append(made.checkpoint(step, recorded=False))
            wait_for_only(watching, *names)
        assert [snapshot.problems for snapshot in watching.seen if snapshot.problems] == []


def test_one_event_resets_the_detector() -> None:
    detector = EventLossDetector()
    for _ in range(MISSED - 1):
        detector.update(has_new=True, had_event=False)
    detector.update(has_new=False, had_event=True)
    detector.update(has_new=True, had_event=False)
    assert not detector.detected
    for _ in range(MISSED):
        detector.update(has_new=True, had_event=False)
    assert detector.detected


def test_a_directory_that_goes_before_it_is_watched_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [(str(tmp_path / "gone"), 1)]
    monkeypatch.setattr(file_events, "_identified", lambda directories: gone)
    before = set(threading.enumerate())
    watcher = DirectoryWatcher([tmp_path / "gone"], print)
    watcher.refresh()
    assert "No such file or directory" in watcher.problem
    assert set(threading.enumerate()) == before


def test_polling_uses_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DirectoryWatcher) -> None:
        raise AssertionError("events were asked for")

    monkeypatch.setattr(DirectoryWatcher, "refresh", refuse)
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    with followed(tmp_path, poll=0.05) as watching:
        wait_for_only(watching, "ckpt-1")
        made.checkpoint(2, recorded=False)
        wait_for_only(watching, "ckpt-1", "ckpt-2")


def test_an_index_written_in_place_is_detected(tmp_path: Path) -> None:
    """TensorFlow creates the index and then writes it: the directory's time changes once only."""
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False, seconds_ago=7200)
    index = tmp_path / "ckpt-1.index"
    content = index.read_bytes()
    index.write_bytes(b"")
    with followed(tmp_path, poll=0.05) as watching:
        wait_until(lambda: watching.newest and watching.newest.checkpoints, 10, "a first snapshot")
        index.write_bytes(content)
        wait_until(
            lambda: watching.newest and watching.newest.checkpoints[0].restorable, 20, "it is whole"
        )


def test_a_clock_set_back_does_not_freeze_the_list(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False, seconds_ago=7200)
    reader, now = SnapshotReader(made.run), time.time()
    assert len(reader.read(now).checkpoints) == 1
    index = tmp_path / "ckpt-1.index"
    facts = os.stat(tmp_path)
    # In place, so that no time of the directory tells of it.
    index.write_bytes(b"garbage")
    os.utime(tmp_path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert not reader.read(now - 86400).checkpoints[0].restorable


def test_a_blocked_file_system_does_not_delay_stopping(tmp_path: Path) -> None:
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


def test_a_deleted_directory_that_is_made_again_is_empty(tmp_path: Path) -> None:
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


WARN_WHILE_WATCHING = """
import logging, sys
from pathlib import Path
from tfckpt_tui.monitor.file_events import DirectoryWatcher

watcher = DirectoryWatcher([Path(sys.argv[1])], lambda: None)
watcher.refresh()
logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed")
watcher.stop()
"""


def test_a_warning_of_watchdog_is_not_printed_over_the_screen(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WARN_WHILE_WATCHING, tmp_path]
    said = subprocess.run(program, capture_output=True, text=True, check=True)
    assert said.stdout + said.stderr == ""
