"""Heartbeats and commands on network disks: few calls, other clocks, old caches, no locks."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from network_disks import CACHE_SECONDS, short_directory

from beating import beating
from faulty_file_system import faulty_mounts
from tfckpt_trainer.launch.supervision.reporter import Reporter
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats import clock
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, worker_state
from tfckpt_trainer.rundir.heartbeats.heartbeat_file import FIRST_CHECK_BEATS, HeartbeatFile
from tfckpt_trainer.rundir.heartbeats.liveness import find_other_trainer
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.directory_changes import PolledDirectory, watch_directory
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.files import overwrite, read_bounded, write_atomic
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_tui.services.runs.brief_reading import brief_account
from waiting import MOST_SECONDS, attempts, wait_until

# Each client is a process of its own.
pytestmark = pytest.mark.e2e

FOREVER_SECONDS = 36_000.0


@pytest.fixture(params=["cached", "by_ssh"])
def roots(request):
    """The mount points of two clients that remember what they have read."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def faulty(mounts):
    """Two clients without faults; their faults are removed after the test."""
    yield mounts
    for mount in mounts:
        mount.clear()


@pytest.fixture
def name(request) -> str:
    return request.node.name.replace("[", "-").replace("]", "")


def run_in(root: Path, name: str) -> RunDirectory:
    run = RunDirectory(root / name)
    run.create()
    return run


def status_at(at: float, **fields: object) -> WorkerStatus:
    known = {"index": 0, "host": "elsewhere", "pid": 7, "process_started_at": 1.0}
    known |= {"namespace": "another-boot:1", "interval_seconds": 1.0}
    known |= {"activity": Activity.PAUSED, "step": 5}
    return WorkerStatus(updated_at=at, **(known | fields))


def beat(file: HeartbeatFile[WorkerStatus], **fields: object) -> None:
    status = status_at(time.time(), **fields)
    file.write(status, if_full=status)


@pytest.fixture
def file_of():
    """Opens the status file of the worker of a run."""
    with ExitStack() as files:

        def opened(run: RunDirectory) -> HeartbeatFile[WorkerStatus]:
            file = HeartbeatFile(run.worker_status(0), WorkerStatus)
            files.callback(file.close)
            return file

        yield opened


def test_fuse_and_sshfs_are_network_disks(roots):
    assert all(is_network_file_system(root) for root in roots)


def test_a_link_to_a_network_disk_is_found_without_touching_it(faulty, tmp_path):
    (tmp_path / "link").symlink_to(faulty[0].root / "run")
    faulty[0].set_faults(hang=True)
    assert is_network_file_system(tmp_path / "link" / "deeper")


def test_a_heartbeat_is_one_write(faulty, name, file_of):
    file = file_of(run_in(faulty[0].root, name))
    beat(file)
    faulty[0].count_calls()
    for _ in range(FIRST_CHECK_BEATS):
        beat(file)
    calls = faulty[0].count_calls()
    assert calls["write"] == FIRST_CHECK_BEATS
    assert set(calls) <= {"write", "fsync"}


def test_a_file_of_the_supervisor_is_one_write(faulty, name):
    run = run_in(faulty[0].root, name)
    reporter = Reporter(run, max_restarts=3)
    reporter.enter(SupervisorState.RUNNING)
    faulty[0].count_calls()
    for _ in range(FIRST_CHECK_BEATS):
        reporter.beat()
    calls = faulty[0].count_calls()
    assert calls["write"] == FIRST_CHECK_BEATS
    assert set(calls) <= {"write", "fsync"}
    reporter.enter(SupervisorState.STOPPED, "x" * 2000)
    assert read_supervisor(run).reason == "x" * 2000
    # A supervisor writes until its process ends.
    reporter._file.close()


def test_a_heartbeat_that_grows_or_was_deleted_is_written_anew(faulty, name, file_of):
    run = run_in(faulty[0].root, name)
    file = file_of(run)
    beat(file)
    beat(file, detail="x" * 2000)
    assert read_workers(run)[0].detail == "x" * 2000
    run.worker_status(0).unlink()
    for _ in range(FIRST_CHECK_BEATS + 1):
        beat(file)
    assert read_workers(run)[0].step == 5


def test_another_machine_sees_each_heartbeat_though_it_caches(roots, name, file_of):
    here, there = (RunDirectory(root / name) for root in roots)
    here.create()
    file = file_of(here)
    for step in range(5):
        beat(file, step=step)
        assert [worker.step for worker in read_workers(there)] == [step]


def test_a_trainer_that_another_machine_has_cached_is_alive(roots, name):
    """Its caches show a heartbeat that is too old. A second trainer must not start."""
    here, there = (RunDirectory(root / name) for root in roots)
    with beating(here, hidden=True, interval=0.2):
        os.lstat(there.worker_status(0))
        first = read_workers(there)
        wait_until(lambda: read_workers(here)[0].updated_at > first[0].updated_at + 2, 10, "beats")
        assert find_other_trainer(there) is not None


def test_locks_are_not_shared_and_the_trainer_that_came_second_leaves(roots, name, file_of):
    here, there = (RunDirectory(root / name) for root in roots)
    here.create()
    with locked(here.trainer_lock, 60, "test"), locked(there.trainer_lock, 60, "test"):
        files = [file_of(run) for run in (here, there)]
        left: list[tuple[int, int]] = []
        for number, file in enumerate(files):
            file.on_other_trainer = lambda other, number=number: left.append((number, other.pid))

        def second_left() -> bool:
            for number, file in enumerate(files):
                beat(file, pid=100 + number, process_started_at=1.0 + number)
            return bool(left)

        wait_until(second_left, 4 * CACHE_SECONDS, "the second leaves")
        assert set(left) == {(1, 100)}


def test_a_trainer_whose_clock_was_set_is_no_other_one(roots, name, file_of):
    """Then it was started at another time, by that clock."""
    run = RunDirectory(roots[0] / name)
    run.create()
    file = file_of(run)
    left: list[WorkerStatus] = []
    file.on_other_trainer = left.append
    for number in range(FIRST_CHECK_BEATS + 2):
        beat(file, process_started_at=1.0 + 3600 * number)
    assert left == []


@pytest.mark.parametrize("ahead", [300.0, -300.0, 7200.0])
@pytest.mark.parametrize("server", [0.0, 600.0])
def test_clocks_may_differ_by_hours(faulty, name, ahead, server, file_of):
    for mount in faulty:
        mount.set_faults(clock=server)
    clock._measured.clear()
    here, there = (RunDirectory(mount.root / name) for mount in faulty)
    here.create()
    file = file_of(here)
    status = status_at(time.time() + ahead, last_step_at=time.time() + ahead)
    before = time.time()
    file.write(status, if_full=status)
    (seen,) = read_workers(there)
    for at in (seen.updated_at, seen.last_step_at):
        assert before - 3 < at < time.time() + 3
    assert worker_state(seen, seen.updated_at) is WorkerState.PAUSED
    assert worker_state(seen, seen.updated_at + 6) is WorkerState.LOST


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
@pytest.mark.parametrize("server", [0.0, 600.0])
def test_a_command_of_a_machine_with_a_wrong_clock_is_taken_in_its_time(
    faulty, name, behind, server, monkeypatch
):
    for mount in faulty:
        mount.set_faults(clock=server)
    clock._measured.clear()
    here, there = (RunDirectory(mount.root / name) for mount in faulty)
    here.create()
    right = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right() - behind)
        sent = CommandQueue(there).submit(CommandKind.SAVE, requested_by="test", lifetime=30)
    taken = CommandQueue(here).claim(right())
    assert taken is not None and taken.id == sent.id
    assert 20 < taken.expires_at - right() < 31
    late = CommandQueue(there).submit(CommandKind.SAVE, requested_by="test", lifetime=30)
    assert CommandQueue(here).claim(right() + 40) is None
    assert CommandQueue(here).look_up(late.id).state is CommandState.EXPIRED


def test_a_wrong_clock_of_this_machine_is_an_alert(faulty, name, monkeypatch, file_of):
    for mount in faulty:
        mount.set_faults(clock=0.0)
    clock._measured.clear()
    here, there = (RunDirectory(mount.root / name) for mount in faulty)
    here.create()
    file = file_of(here)
    status = status_at(time.time())
    file.write(status, if_full=status)
    assert "clock-differs" not in [one.kind for one in brief_account(there.root).alerts]
    right = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right() - 3600)
        account = brief_account(there.root)
    [alert] = [one for one in account.alerts if one.kind == "clock-differs"]
    assert "is 1 h behind" in alert.message
    assert account.trainer_answers


def test_old_and_copied_heartbeats_are_taken_as_they_are(faulty, name):
    here = run_in(faulty[0].root, name)
    old = status_at(time.time() - 86_400)
    store(here.worker_status(0), old)
    faulty[0].count_calls()
    assert read_workers(here)[0].updated_at == old.updated_at
    assert faulty[0].count_calls()["create"] == 0


def test_a_command_of_another_machine_is_seen_though_listings_are_cached(name):
    with (
        short_directory() as place,
        faulty_mounts(place, "a", "b", cache_seconds=FOREVER_SECONDS) as mounts,
    ):
        command_is_seen(*(RunDirectory(mount.root / name) for mount in mounts))


def command_is_seen(here: RunDirectory, there: RunDirectory) -> None:
    here.create()
    queue = CommandQueue(here)
    assert queue.claim(time.time()) is None
    changes = watch_directory(here.inbox)
    assert isinstance(changes, PolledDirectory)
    settle(changes)
    CommandQueue(there).submit(CommandKind.SAVE, requested_by="test")
    assert changes.wait(MOST_SECONDS)
    wait_until(lambda: queue.claim(time.time()), 60, "the command")


def settle(changes: PolledDirectory) -> None:
    """Waits until what changed a moment ago is no longer reported."""
    for _ in attempts("a directory without changes"):
        if not changes.wait(1.0):
            break


def test_waiting_for_commands_is_one_call_a_look(faulty, name):
    here = run_in(faulty[0].root, name)
    changes = PolledDirectory(here.inbox, 0.05)
    settle(changes)
    faulty[0].count_calls()
    changes.wait(1.0)
    calls = faulty[0].count_calls()
    assert sum(calls.values()) - calls["getattr"] <= 3
    assert calls["getattr"] <= 30


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(faulty, name):
    path, seen = faulty[0].root / name, faulty[1].root / name
    write_atomic(path, b"0" * 100)
    ended = threading.Event()

    def replace() -> None:
        for number in range(200):
            write_atomic(path, str(number % 10).encode() * 100, durable=False)
        ended.set()

    writer = threading.Thread(target=replace)
    writer.start()
    while not ended.is_set():
        assert len(read_bounded(seen)) == 100
    writer.join()


def test_a_file_that_grew_elsewhere_is_read_whole(cached, name):
    path, seen = (root / name for root in cached)
    path.write_bytes(b"1" * 100)
    assert len(read_bounded(seen)) == 100
    with open(path, "ab") as file:
        file.write(b"2" * 100)
    assert len(read_bounded(seen)) == 200
    overwrite(path, b"3" * 200)
    assert read_bounded(seen) == b"3" * 200


def test_on_a_full_disk_heartbeats_go_on_and_say_so(faulty, name, file_of):
    here = run_in(faulty[0].root, name)
    file = file_of(here)
    beat(file)
    file.close()
    faulty[0].set_faults(errors={"create": "ENOSPC"})
    file.write(status_at(time.time()), if_full=status_at(time.time(), detail="full", step=6))
    (seen,) = read_workers(here)
    assert (seen.detail, seen.step) == ("full", 6)
    faulty[0].clear()
    beat(file, step=7)
    assert read_workers(here)[0].step == 7


def test_an_error_of_the_disk_is_raised_and_the_next_heartbeat_is_written(faulty, name, file_of):
    here = run_in(faulty[0].root, name)
    file = file_of(here)
    beat(file)
    faulty[0].set_faults(errors={"write": "EIO", "create": "EIO"})
    with pytest.raises(OSError, match="Input/output error"):
        beat(file, step=6)
    faulty[0].clear()
    beat(file, step=7)
    assert read_workers(here)[0].step == 7
