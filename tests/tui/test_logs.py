"""Lines of several logs, merged by time and filtered by level."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_tui.monitor.logs import (
    ALL,
    Level,
    LogLine,
    LogTail,
    MergedLogs,
    level_of,
    merge_logs,
    row_at,
)

LINES = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.floats(0, 100)), max_size=40)


@given(LINES, st.integers(1, 5))
def test_merged_logs_keep_the_order_of_each_log(lines, batch):
    book = MergedLogs()
    for place in range(0, len(lines), batch):
        for log in "ab":
            part = enumerate(lines[place : place + batch])
            book.add(log, [LogLine(f"{place + n}", at) for n, (own, at) in part if own == log])
    rows = book.rows(ALL)
    assert sorted(int(row.text) for row in rows) == list(range(len(lines)))
    for log in "ab":
        own = [int(row.text) for row in rows if row.log == log]
        assert own == sorted(own)
        assert own == [int(row.text) for row in book.rows(log)]
    assert [row.order for row in rows] == sorted(row.order for row in rows)


def test_late_lines_are_sorted_in() -> None:
    book = MergedLogs()
    book.add("a", [LogLine("first", 1.0), LogLine("third", 3.0)])
    book.add("b", [LogLine("second", 2.0), LogLine("fourth", 4.0)])
    assert [row.text for row in book.rows(ALL)] == ["first", "second", "third", "fourth"]


def test_the_number_of_lines_is_bounded() -> None:
    book = MergedLogs(most=10)
    book.add("a", [LogLine(str(n), float(n)) for n in range(25)])
    book.add("b", [LogLine("b", 100.0)])
    assert [row.text for row in book.rows("a")] == [str(n) for n in range(15, 25)]
    assert [row.text for row in book.rows(ALL)] == [*(str(n) for n in range(16, 25)), "b"]


def test_levels_follow_from_the_text() -> None:
    errors = (
        "ValueError: no",
        "Traceback (most recent call last):",
        "E0000 00:00:1732 rpc.cc:1] lost",
        "2026-11-21 11:00:00.123: E tensorflow/x.cc:1] bad",
    )
    warnings = ("WARNING: slow", "/a.py:3: UserWarning: hm", "W0000 00:00:1 x.cc] hm")
    plain = (
        "loss 2.1",
        "INFO: the error rate is an Error of 3",
        "I0000 00:00:1 x.cc] ErrorHandler is there",
        "2026-11-21 11:00:00.123: I tensorflow/x.cc:1] Error reporting is on",
    )
    assert {level_of(line, Level.ANY) for line in errors} == {Level.ERROR}
    assert {level_of(line, Level.ANY) for line in warnings} == {Level.WARNING}
    assert {level_of(line, Level.ANY) for line in plain} == {Level.ANY}


def test_indented_lines_have_the_level_of_the_error_above() -> None:
    book = MergedLogs()
    text = "step 1\nTraceback (most recent call last):\n  File x\n    y()\nKeyError: 1\nstep 2"
    book.add("a", [LogLine(line) for line in text.split("\n")])
    assert [row.text for row in book.rows("a", Level.ERROR)] == text.split("\n")[1:5]


def test_rows_are_found_by_time() -> None:
    rows = merge_logs({"a": [LogLine("old"), LogLine("x", 10.0), LogLine("y", 20.0)]})
    assert [row_at(rows, at) for at in (0.0, 10.0, 15.0, 99.0)] == [1, 1, 2, 2]
    assert row_at(merge_logs({"a": [LogLine("x")]}), 5.0) is None


def test_a_tail_reads_the_time_of_each_line(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    moments = iter((100.0, 200.0))
    clock = LogTimesRecorder(lambda: next(moments))
    log.write_text("one\ntwo\n")
    clock.record([log])
    with log.open("a") as file:
        file.write("three\nfour")
    clock.record([log])
    with log.open("a") as file:
        file.write("teen\n")
    os.utime(log, (300.0, 300.0))
    tail = LogTail(log)
    read = tail.read_new()
    assert read is not None
    assert [(line.text, line.at) for line in read] == [
        ("one", 100.0),
        ("two", 100.0),
        ("three", 200.0),
        ("fourteen", 300.0),
    ]


def test_without_recorded_times_only_new_lines_have_a_time(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("old\n")
    tail = LogTail(log)
    assert tail.read_new() == [LogLine("old", None)]
    with log.open("a") as file:
        file.write("new\n")
    os.utime(log, (50.0, 50.0))
    assert tail.read_new() == [LogLine("new", 50.0)]


def test_a_line_that_is_written_in_pieces_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("one\ntw")
    tail = LogTail(log)
    assert texts(tail) == ["one"]
    assert tail.unfinished is not None and tail.unfinished.text == "tw"
    with log.open("a") as file:
        file.write("o\n")
    assert texts(tail) == ["two"]
    assert tail.unfinished is None


def test_a_line_that_is_not_complete_is_shown_and_then_replaced() -> None:
    book = MergedLogs()
    book.add("a", [LogLine("one", 1.0)], LogLine("10%", 2.0))
    book.add("b", [LogLine("other", 3.0)])
    assert [row.text for row in book.rows("a")] == ["one", "10%"]
    assert [row.text for row in book.rows(ALL)] == ["one", "10%", "other"]
    book.add("a", [], LogLine("20%", 4.0))
    assert [row.text for row in book.rows(ALL)] == ["one", "other", "20%"]
    assert book.rows(ALL) is book.rows(ALL)
    book.add("a", [LogLine("100%", 5.0)])
    assert [row.text for row in book.rows("a")] == ["one", "100%"]
    assert [row.text for row in book.rows(ALL)] == ["one", "other", "100%"]


def test_a_progress_bar_without_an_end_shows_its_last_state(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_bytes(b"one\n" + b"".join(b"\r%d%%" % part for part in range(3000)))
    tail = LogTail(log)
    assert texts(tail) == ["one"]
    assert tail.unfinished is not None
    assert (tail.unfinished.text, tail.unfinished.place) == ("2999%", 4)


def test_a_log_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, other = tmp_path / "worker-0.log", tmp_path / "other"
    log.write_text("old\n")
    tail = LogTail(log)
    assert texts(tail) == ["old"]
    other.write_text("new one\nnew two\n")
    other.replace(log)
    assert texts(tail) == ["new one", "new two"]


def texts(tail: LogTail) -> list[str]:
    """Reads the new lines of a log."""
    return [line.text for line in tail.read_new() or []]
