"""The newest entries of an event log of any length."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tfckpt_trainer.rundir import event_log, series
from tfckpt_trainer.rundir.event_log import WHOLE_LOG, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.series import read_newest_points
from tfckpt_trainer.rundir.storage.documents import append, encode
from tfckpt_trainer.rundir.storage.tail import TAIL_BYTES, Tail


def with_entries(root: Path, count: int) -> RunDirectory:
    run = RunDirectory(root)
    run.control.mkdir(parents=True)
    entry = EventEntry(at=1.7e9, kind=EventKind.SAVE, message="Saved.", step=-1)
    line = encode(entry).rstrip(b"\n")
    lines = [line.replace(b'"step":-1', b'"step":%d' % step) for step in range(count)]
    run.event_log.write_bytes(b"\n".join(lines) + b"\n")
    return run


def test_more_entries_than_are_read_at_first(tmp_path):
    count = 90_000
    run = with_entries(tmp_path, count)
    assert run.event_log.stat().st_size > TAIL_BYTES
    assert len(read_entries(run)) < count
    for newest in (count, count + 1, count - 1):
        found = [entry.step for entry in read_entries(run, newest)]
        assert found == list(range(max(0, count - newest), count))


@pytest.mark.parametrize("block", [1, 64, 1000])
def test_every_number_of_entries_from_blocks_of_any_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(event_log, "_BLOCK", block)
    run = with_entries(tmp_path, 12)
    for newest in range(1, 14):
        found = [entry.step for entry in read_entries(run, newest)]
        assert found == list(range(12))[-newest:]


@pytest.mark.parametrize("kept", [0, 5])
def test_a_line_without_end_takes_no_memory_and_hides_no_entry(tmp_path, kept):
    run = with_entries(tmp_path, kept)
    with run.event_log.open("ab") as file:
        file.truncate(file.tell() + 100_000_000)
    append(run.event_log, EventEntry(at=1.7e9, kind=EventKind.SAVE, message="Saved.", step=kept))
    tracemalloc.start()
    try:
        found = [entry.step for entry in read_entries(run, WHOLE_LOG)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found[:-1] == list(range(kept))
    assert most < 10_000_000


def test_no_more_than_the_end_of_a_log_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "_BLOCK", 256)
    run = with_entries(tmp_path, 100)
    assert len(read_entries(run, WHOLE_LOG)) == 100
    monkeypatch.setattr(event_log, "LOG_BYTES", run.event_log.stat().st_size // 2)
    found = [entry.step for entry in read_entries(run, WHOLE_LOG)]
    assert found == list(range(100 - len(found), 100))
    assert 45 < len(found) <= 50


def test_no_event_log_has_no_entries(tmp_path):
    assert read_entries(RunDirectory(tmp_path), 5) == []


@pytest.mark.parametrize("limit", [1, 200, 1 << 15])
def test_the_newest_points_are_those_of_whole_lines(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(series, "RECENT_BYTES", limit)
    run = RunDirectory(tmp_path)
    run.control.mkdir()
    lines = [
        encode(SeriesPoint(at=1.7e9, step=step, branch=0, metrics={})).rstrip(b"\n") + b"\n"
        for step in range(12)
    ]
    run.series.write_bytes(b"".join(lines) + b'{"at":')
    for most in range(1, 15):
        found = [point.step for point in read_newest_points(run, most)]
        assert found == list(range(12))[12 - len(found) :]
        assert len(found) <= most
        assert limit < 1 << 15 or len(found) == min(most, 12)


def test_no_series_has_no_points(tmp_path):
    assert read_newest_points(RunDirectory(tmp_path), 5) == []


def test_a_log_that_has_not_changed_is_not_opened(tmp_path, monkeypatch):
    run = with_entries(tmp_path, 3)
    tail = Tail(run.event_log, EventEntry)
    assert len(tail.read_new()) == 3
    entry = EventEntry(at=1.7e9, kind=EventKind.SAVE, message="Saved.", step=3)
    append(run.event_log, entry)
    assert tail.read_new() == [entry]
    with monkeypatch.context() as patched:
        patched.setattr(event_log, "open_plain", None)
        assert tail.read_new() == []
    another = tmp_path / "another"
    another.write_bytes(encode(entry) + b"\n")
    another.replace(run.event_log)
    assert tail.read_new() == [entry]
    run.event_log.unlink()
    assert tail.read_new() == []
