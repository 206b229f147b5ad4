"""The event log is bounded, and a rotation neither hides nor repeats an entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfckpt_trainer.rundir import event_log
from tfckpt_trainer.rundir.event_log import (
    WHOLE_LOG,
    EventLogTail,
    read_entries,
    rotate_event_log,
    write_entry,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.control.mkdir()
    return run


def write(run: RunDirectory, *steps: int) -> None:
    for step in steps:
        write_entry(run, EventEntry(at=1.7e9, kind=EventKind.SAVE, message="Saved.", step=step))


def steps(entries: list[EventEntry]) -> list[int | None]:
    return [entry.step for entry in entries]


def test_who_opens_a_rotated_log_reads_both_files(run) -> None:
    write(run, *range(5))
    rotate_event_log(run)
    for entries in (read_entries(run), read_entries(run, 10), EventLogTail(run).read_new()):
        assert steps(entries) in ([], list(range(5)))
    write(run, 5, 6)
    assert steps(read_entries(run)) == list(range(7))
    assert steps(EventLogTail(run).read_new()) == list(range(7))
    for newest in range(1, 8):
        assert steps(read_entries(run, newest)) == list(range(7))[-newest:]


def test_who_follows_gets_each_entry_once(run) -> None:
    write(run, 0)
    tail, later = EventLogTail(run), EventLogTail(run, from_end=True)
    assert steps(tail.read_new()) == [0]
    write(run, 1, 2)
    rotate_event_log(run)
    write(run, 3)
    assert steps(tail.read_new()) == steps(later.read_new()) == [1, 2, 3]
    write(run, 4)
    assert steps(tail.read_new()) == steps(later.read_new()) == [4]


def test_what_is_read_first_is_no_more_than_that_of_one_file(run, monkeypatch) -> None:
    write(run, *range(20))
    size = run.event_log.stat().st_size
    rotate_event_log(run)
    write(run, *range(20, 30))
    tail = EventLogTail(run)
    tail._first = size
    found = steps(tail.read_new())
    assert found == list(range(30))[-len(found) :]
    assert 18 <= len(found) <= 20


def test_a_log_that_is_rotated_while_it_is_read_is_read_once(run, monkeypatch) -> None:
    write(run, *range(5))
    opened = event_log.open_plain

    def open_and_rotate(path: Path):
        file = opened(path)
        if path == run.event_log:
            rotate_event_log(run)
        return file

    monkeypatch.setattr(event_log, "open_plain", open_and_rotate)
    assert steps(read_entries(run, WHOLE_LOG)) == list(range(5))
