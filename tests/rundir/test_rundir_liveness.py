"""Whether a trainer lives, told by its heartbeat and the clock of the file system alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from beating import beating, end
from clock_steps import environment_of_clock, set_clock
from real_file_systems import fill, is_full, small_ext4, small_tmpfs
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.heartbeats import clock, liveness
from tfckpt_trainer.rundir.heartbeats.attention import FREQUENT, MEMBER, Pace
from tfckpt_trainer.rundir.heartbeats.health import is_live
from tfckpt_trainer.rundir.heartbeats.liveness import (
    find_other_trainer,
    heartbeat_age_on_disk,
    refuse_another_run,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import own_process, process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load, store
from waiting import wait_until


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def status_of(run: RunDirectory, index: int = 0) -> WorkerStatus:
    return load(run.worker_status(index), WorkerStatus)


def change(run: RunDirectory, **fields: object) -> None:
    store(run.worker_status(0), msgspec.structs.replace(status_of(run), **fields))


def never(_seconds: float) -> None:
    raise AssertionError("it waited")


def quick_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time for which a heartbeat is watched."""
    monkeypatch.setattr(liveness, "WATCH_SECONDS", 0.5)


def an_hour_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 3600)


def test_a_hidden_worker_that_beats_lives(run, monkeypatch):
    with beating(run, hidden=True, interval=0.2) as pid:
        an_hour_ahead(monkeypatch)
        found = find_other_trainer(run)
        assert found is not None
        assert found.index == 0
        assert found.namespace != process_namespace()
        assert heartbeat_age_on_disk(run, 0) < 60
        end(pid)
        quick_to_judge(monkeypatch)
        assert find_other_trainer(run) is None


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_worker_lives_after_the_clock_of_its_machine_was_set(run, tmp_path, monkeypatch, off):
    place = tmp_path / "clock"
    set_clock(place, 0.0)
    with beating(run, interval=0.2, environment=environment_of_clock(place)) as pid:
        first = status_of(run)
        true_time = time.time
        monkeypatch.setattr(time, "time", lambda: true_time() + off)
        set_clock(place, off)
        wait_until(
            lambda: abs(status_of(run).updated_at - first.updated_at - off) < 60, 10, "it beats"
        )
        told = status_of(run).process_started_at - first.process_started_at
        assert told == pytest.approx(off, abs=1.0)
        found = find_other_trainer(run)
        assert found is not None and found.pid == pid
        end(pid)
        assert find_other_trainer(run) is None


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_worker_lives_until_its_next_heartbeat_after_the_clock_was_set(run, monkeypatch, off):
    with beating(run, interval=600.0) as pid:
        monkeypatch.setattr(time, "time", lambda time=time.time: time() + off)
        found = find_other_trainer(run, sleep=never)
        assert found is not None and found.pid == pid
        end(pid)
        assert find_other_trainer(run, sleep=never) is None


def test_of_a_hidden_worker_its_heartbeat_decides_and_no_process_table(run):
    with beating(run, hidden=True):
        status = status_of(run)
        assert status.host == os.uname().nodename
        assert is_live(status, time.time(), lambda *_: False)
        assert not is_live(status, time.time() + 60, lambda *_: True)
    old = msgspec.structs.replace(status, namespace="")
    assert not is_live(old, time.time(), lambda *_: False)


def test_what_is_certainly_dead_is_not_waited_for(run):
    with beating(run) as pid:
        end(pid)
        assert find_other_trainer(run, sleep=never) is None
        change(run, activity=Activity.EXITED, namespace="another boot:1")
        assert find_other_trainer(run, sleep=never) is None


def test_a_heartbeat_of_long_ago_is_not_waited_for(run):
    with beating(run, hidden=True) as pid:
        end(pid)
    long_ago = time.time() - 100
    os.utime(run.worker_status(0), (long_ago, long_ago))
    assert find_other_trainer(run, sleep=never) is None


@pytest.mark.parametrize("lives", [True, False])
def test_a_worker_with_rare_heartbeats_lives_while_its_chief_makes_steps(run, monkeypatch, lives):
    run.create()
    slept, long_ago = [], time.time() - 100

    def step(seconds: float) -> None:
        slept.append(seconds)
        monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
        if lives:
            beat_at(0, time.time(), FREQUENT)

    def beat_at(index: int, at: float, pace: Pace) -> None:
        status = WorkerStatus(
            index=index,
            host="elsewhere",
            pid=7,
            process_started_at=1.0,
            updated_at=at,
            **pace._asdict(),
            activity=Activity.TRAINING,
            step=5,
            last_step_at=at,
        )
        store(run.worker_status(index), status)
        os.utime(run.worker_status(index), (at, at))

    beat_at(1, long_ago, MEMBER)
    beat_at(0, time.time() - 20, FREQUENT)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    found = find_other_trainer(run, 1, sleep=step)
    assert (found is not None) is lives
    assert slept


def test_without_a_heartbeat_nobody_lives(run):
    run.create()
    assert find_other_trainer(run, sleep=never) is None


def test_times_that_are_skewed_do_not_make_a_live_worker_dead(run):
    """On some file systems the times are those of the writer, here half a minute behind."""
    with beating(run, hidden=True):
        seen = status_of(run)
        behind = time.time() - 30
        os.utime(run.worker_status(0), (behind, behind))
        found = find_other_trainer(run)
        assert found is not None
        assert found.pid == seen.pid


@pytest.mark.parametrize("disk", [0.0, 600.0, -600.0])
def test_times_of_another_machine_are_told_by_the_clock_of_this_one(run, monkeypatch, disk):
    """Its clock is an hour ahead, and that of the file system `disk` seconds."""
    now, minute = 1.7e9, 60.0
    run.create()
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(clock, "_measured", {})
    monkeypatch.setattr(clock, "is_network_file_system", lambda _: True)
    monkeypatch.setattr(clock, "file_system_time", lambda _: int((now + disk) * 1e9))
    status = WorkerStatus(
        index=0,
        host="elsewhere",
        namespace="another boot:1",
        pid=1,
        process_started_at=1.0,
        updated_at=now - minute + 3600,
        interval_seconds=1.0,
        activity=Activity.TRAINING,
        step=1,
    )
    store(run.worker_status(0), status)
    os.utime(run.worker_status(0), (now - minute + disk,) * 2)
    (seen,) = read_workers(run)
    assert seen.updated_at == pytest.approx(now - minute, abs=1e-3)


def test_only_the_worker_that_is_asked_for(run):
    with beating(run, 1, hidden=True):
        assert find_other_trainer(run, 0, sleep=never) is None
        assert find_other_trainer(run, 1) is not None
        assert find_other_trainer(run) is not None


def test_the_own_heartbeat_is_no_other_one(run):
    with beating(run) as pid:
        end(pid)
    change(run, **own_process()._asdict())
    assert process_lives(status_of(run).process)
    assert find_other_trainer(run, sleep=never) is None


@pytest.mark.parametrize("mounted", [small_tmpfs, small_ext4])
def test_the_clock_is_read_on_a_full_disk(tmp_path, monkeypatch, mounted):
    quick_to_judge(monkeypatch)
    with mounted(tmp_path / "disk") as root:
        run = RunDirectory(root / "run")
        with beating(run, hidden=True, interval=0.2) as pid:
            run.trainer_lock.touch()
            filler = fill(root)
            assert is_full(root)
            end(pid)
            assert find_other_trainer(run) is None
            filler.unlink()


def test_a_worker_that_exits_as_the_watch_ends_is_not_alive(run, monkeypatch):
    with beating(run, hidden=True):
        status = status_of(run)
    looks = [[status], [msgspec.structs.replace(status, activity=Activity.EXITED)]]
    monkeypatch.setattr(liveness, "read_workers", lambda _run: looks.pop(0))
    monkeypatch.setattr(liveness, "LONGEST_WATCH_SECONDS", -1.0)
    assert find_other_trainer(run, sleep=never) is None


def test_a_script_is_refused_in_another_directory_than_that_of_its_launch(tmp_path):
    here, there = RunDirectory(tmp_path / "here"), tmp_path / "there"
    here.create()
    (tmp_path / "link").symlink_to(here.root)
    launched = {"TFCKPT_RUN_DIR": str(there), "TFCKPT_ATTEMPT": "0"}
    with pytest.raises(UsageError, match=rf"trains in {here.root}, but .* launched for {there}\."):
        refuse_another_run(here, launched)
    refuse_another_run(here, {**launched, "TFCKPT_RUN_DIR": str(tmp_path / "link")})
    refuse_another_run(here, {"TFCKPT_RUN_DIR": str(there)})
    refuse_another_run(here, {"TFCKPT_ATTEMPT": "0"})
