"""When each line of a log was printed: noted beside it, whatever becomes of the log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts import ALICE, BOB, acting_as, share
from requirements import needs
from tfckpt_trainer.rundir.log_times import (
    IDLE_RECORD_SECONDS,
    MAX_RECORDS,
    RECORD_SECONDS,
    LogTimes,
    LogTimesRecorder,
    read_log_times,
    times_path,
)
from waiting import PassingTime


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker-0.log"


def test_a_line_was_printed_by_the_first_note_behind_its_end(log: Path) -> None:
    clock = PassingTime(1000.0)
    notes = LogTimesRecorder(clock)
    for text in ("one\n", "two\n", "three\n"):
        with log.open("a") as file:
            file.write(text)
        notes.record([log])
        clock.now += 10
    known = read_log_times(log)
    assert [known.printed_at(end) for end in (4, 5, 8, 14, 15)] == [1000, 1010, 1010, 1020, None]


def test_sizes_are_noted_rarely_while_nobody_looks(log: Path) -> None:
    clock = PassingTime(1000.0)
    notes = LogTimesRecorder(clock)
    for _ in range(int(2 * IDLE_RECORD_SECONDS)):
        with log.open("a") as file:
            file.write("a line\n")
        notes.record_if_due([log], is_looked_at=False)
        clock.now += 1
    assert read_log_times(log).moments == (1000.0, 1000.0 + IDLE_RECORD_SECONDS)
    notes.record_if_due([log])
    assert read_log_times(log).moments[-1] == clock.now


@needs("root")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_log_of_a_colleague_is_noted_too(open_place: Path, umask: int) -> None:
    log = share(open_place) / "worker-0.log"
    clock = PassingTime(1000.0)
    for number, user in enumerate((ALICE, BOB, ALICE), 1):
        clock.now = 1000.0 * number
        with acting_as(user, umask):
            with open(log, "ab", buffering=0) as file:
                file.write(b"line\n")
                if number == 1:
                    os.fchmod(file.fileno(), 0o664)
            LogTimesRecorder(clock).record([log])
    known = read_log_times(log)
    assert [known.printed_at(end) for end in (5, 10, 15)] == [1000, 2000, 3000]


def test_notes_come_no_more_often_than_they_are_due(log: Path) -> None:
    clock = PassingTime(1000.0)
    notes = LogTimesRecorder(clock)
    for _ in range(10):
        with log.open("a") as file:
            file.write("x")
        notes.record_if_due([log])
        clock.now += RECORD_SECONDS / 4
    assert len(read_log_times(log).moments) == 3


def test_a_log_that_is_quiet_is_not_noted_again(log: Path) -> None:
    log.write_text("one\n")
    notes = LogTimesRecorder()
    notes.record([log])
    before = times_path(log).read_bytes()
    notes.record([log])
    assert times_path(log).read_bytes() == before


def test_a_clock_of_another_process_goes_on_where_the_last_ended(log: Path) -> None:
    clock = PassingTime(1000.0)
    log.write_text("one\n")
    LogTimesRecorder(clock).record([log])
    clock.now += 5
    with log.open("a") as file:
        file.write("two\n")
    LogTimesRecorder(clock).record([log])
    assert read_log_times(log).moments == (1000, 1005)


@pytest.mark.parametrize("how", ["replaced", "cut"])
def test_a_log_that_begins_anew_has_new_notes(log: Path, how: str) -> None:
    clock = PassingTime(1000.0)
    notes = LogTimesRecorder(clock)
    log.write_text("a long first line\n")
    notes.record([log])
    clock.now += 5
    if how == "replaced":
        os.replace(log, log.with_name("worker-0.log.1"))
    log.write_text("short\n")
    notes.record([log])
    known = read_log_times(log)
    assert known == LogTimes(log.stat().st_ino, (1005.0,), (6,))


def test_many_notes_are_thinned_out_and_the_newest_kept(log: Path) -> None:
    lines = [f"{moment}.00 {moment}" for moment in range(1, MAX_RECORDS + 1)]
    log.write_bytes(b"x" * (MAX_RECORDS + 1))
    times_path(log).write_text("\n".join([f"inode {log.stat().st_ino}", *lines, ""]))
    LogTimesRecorder(PassingTime(1000.0)).record([log])
    known = read_log_times(log)
    assert MAX_RECORDS / 2 < len(known.moments) < MAX_RECORDS * 3 / 4
    assert known.sizes[-1] == MAX_RECORDS + 1
    assert known.sizes[-1000:] == tuple(range(MAX_RECORDS - 998, MAX_RECORDS + 2))


def test_a_link_in_their_place_is_not_followed(log: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text(f"inode {1}\n")
    log.write_text("one\n")
    times_path(log).symlink_to(victim)
    LogTimesRecorder().record([log])
    assert victim.read_text() == "inode 1\n"
    assert read_log_times(log).inode == log.stat().st_ino


@given(st.binary(max_size=300))
def test_no_bytes_are_a_reason_to_fail(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    log = tmp_path_factory.mktemp("logs") / "worker-0.log"
    times_path(log).write_bytes(data)
    known = read_log_times(log)
    assert list(known.sizes) == sorted(known.sizes)
    assert len(known.sizes) == len(known.moments)
