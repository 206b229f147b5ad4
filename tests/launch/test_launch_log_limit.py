"""Logs of processes that run for a year are bounded too."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from refusing_disk import RefusingDisk
from tfckpt_trainer.launch.processes.log_limit import CHECK_SECONDS, LogLimit
from tfckpt_trainer.launch.processes.logs import open_log
from tfckpt_trainer.rundir.log_times import LogTimesRecorder, read_log_times
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_tui.monitor.logs import LogTail

LIMIT = 10_000


def limit() -> LogLimit:
    minutes = count()
    return LogLimit(LIMIT, clock=lambda: next(minutes) * CHECK_SECONDS)


def test_a_process_that_prints_for_a_year_keeps_the_newest(tmp_path: Path) -> None:
    path, limits, tail = tmp_path / "worker-0.log", limit(), LogTail(tmp_path / "worker-0.log")
    shown: list[str] = []
    with open_log(path, 0, ["train"]) as log:
        for step in range(5000):
            log.write(b"step %d\n" % step)
            if step % 100 == 0:
                # Its reader looks more often than the log is limited.
                shown += [line.text for line in tail.read_new() or ()]
                limits.apply_if_due([path])
    shown += [line.text for line in tail.read_new() or ()]
    assert shown[1:] == [f"step {step}" for step in range(5000)]
    older = path.with_name("worker-0.log.1")
    assert sorted(tmp_path.iterdir()) == [path, older]
    assert older.stat().st_size + path.stat().st_size < 2 * LIMIT + 2000
    lines = [*older.read_text().splitlines(), *path.read_text().splitlines()]
    assert lines == [f"step {step}" for step in range(5000)][-len(lines) :]
    assert not path.read_bytes().startswith(b"\0"), "the process writes at the new end"


def test_no_more_than_the_newest_part_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"x" * 5 * LIMIT)
    limit().apply_if_due([path, tmp_path / "none"])
    assert path.stat().st_size == 0
    assert path.with_name("worker-0.log.1").stat().st_size == LIMIT


def test_sizes_are_looked_at_once_a_minute(tmp_path: Path) -> None:
    now, path = [0.0], tmp_path / "worker-0.log"
    limits = LogLimit(LIMIT, clock=lambda: now[0])
    limits.apply_if_due([path])
    path.write_bytes(b"x" * 2 * LIMIT)
    limits.apply_if_due([path])
    assert path.stat().st_size == 2 * LIMIT
    now[0] += CHECK_SECONDS
    limits.apply_if_due([path])
    assert path.stat().st_size == 0


def test_times_begin_anew_with_an_emptied_log(tmp_path: Path) -> None:
    path, now = tmp_path / "worker-0.log", [1000.0]
    times = LogTimesRecorder(clock=lambda: now[0])
    with open_log(path, 0, ["train"]) as log:
        log.write(b"x" * 2 * LIMIT)
        times.record([path])
        limit().apply_if_due([path])
        now[0] += 10
        log.write(b"y" * 50)
        times.record([path])
    assert read_log_times(path).sizes == (50,)


@pytest.mark.parametrize("number", range(1, 12))
def test_a_disk_that_refuses_leaves_the_log(tmp_path: Path, number: int) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"x" * 2 * LIMIT)
    with using(RefusingDisk(lambda call: call == number)):
        limit().apply_if_due([path])
    older = path.with_name("worker-0.log.1")
    assert path.stat().st_size or older.stat().st_size == LIMIT
    with open_log(path, 0, ["train"]) as log:
        os.write(log.fileno(), b"x" * 2 * LIMIT)
    limit().apply_if_due([path])
    assert sorted(tmp_path.iterdir()) == [path, older]
    assert path.stat().st_size == 0
