"""Logs of workers: separated, bounded, safe to show."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.launch.processes import logs
from tfckpt_trainer.launch.processes.logs import last_lines, open_log


def write(path: Path, attempt: int, text: bytes) -> None:
    with open_log(path, attempt, ["python", "my train.py"]) as log:
        log.write(text)


def test_only_the_newest_attempt_speaks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, 0, b"old\n")
    write(path, 1, b"new\n\n  newer\n")
    assert last_lines(path) == ["new", "  newer"]
    assert last_lines(path, 1) == ["  newer"]
    write(path, 2, b"")
    assert last_lines(path) == []


def test_an_attempt_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, 0, b"torn")
    write(path, 1, b"whole\n")
    lines = path.read_text().splitlines()
    assert lines[1] == "torn"
    assert lines[2].endswith("start 1: my train.py")


def test_lines_that_look_like_ours_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, 0, b"--- epoch 1 ---\nloss 2\n")
    assert last_lines(path) == ["--- epoch 1 ---", "loss 2"]


def test_a_log_that_grew_too_long_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_LIMIT", 100)
    path = tmp_path / "log"
    for attempt in range(3):
        write(path, attempt, b"x" * 200 + b"\n")
    assert path.read_text().count(" start ") == 1
    assert " start 2: " in path.read_text()
    assert " start 1: " in path.with_name("log.1").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "log.1"]


def test_progress_bars_and_colours_come_out_as_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, 0, b"\x1b[1mstep 1\x1b[0m\rstep 2\r\n\x1b]0;title\x07done\x9b\n")
    assert last_lines(path) == ["step 2", "done�"]


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none") == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        open_log(tmp_path / "log", 0, ["true"])
    assert not (tmp_path / "elsewhere").exists()


@given(st.binary(max_size=400))
def test_whatever_was_printed_is_safe_to_show(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    write(path, 0, data)
    for line in last_lines(path, 1000):
        assert line.isprintable()
