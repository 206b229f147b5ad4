"""`logs --follow`: what comes, from a log that grows, is cut, or is replaced by another."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from json_reference import check
from rundir_factory import two_branches

from command_running import BINARY
from tfckpt_tui.reports.logs import FollowedLineReport
from waiting import MOST_SECONDS

Follow = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = two_branches(tmp_path).run.worker_log(0)
    path.write_text("first\n")
    return path


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [BINARY, "logs", tmp_path, "--follow", *words], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=MOST_SECONDS)


def test_new_lines_of_a_replaced_log_are_printed(log: Path, follow: Follow) -> None:
    out = follow().stdout
    assert out is not None
    assert out.readline() == "first\n"
    with open(log, "a") as more:
        more.write("second\nthi")
    assert out.readline() == "second\n"
    with open(log, "a") as more:
        more.write("rd\n")
    assert out.readline() == "third\n"

    other = log.with_name("other")
    other.write_text("from another file\n")
    os.replace(other, log)
    assert out.readline() == "from another file\n"
    log.write_text("cut\n")
    assert out.readline() == "cut\n"


def test_a_log_that_is_gone_for_a_while_is_waited_for(log: Path, follow: Follow) -> None:
    out = follow().stdout
    assert out is not None
    assert out.readline() == "first\n"
    log.rename(log.with_name("worker-0.log.1"))
    log.write_text("second attempt\n")
    assert out.readline() == "second attempt\n"


def test_json_is_one_document_a_line(log: Path, follow: Follow) -> None:
    out = follow("--json").stdout
    assert out is not None
    first = json.loads(out.readline())
    assert first == {"schema": 1, "log": "worker-0", "at": None, "line": "first"}
    check(FollowedLineReport, first)
    with open(log, "a") as more:
        more.write("\x1b[31m50%\r\x1b[31m100%\n")
    line = json.loads(out.readline())["line"]
    assert line.endswith("100%")
    assert "\x1b" not in line


def test_lines_of_several_workers_say_whose_they_are(log: Path, follow: Follow) -> None:
    log.with_name("worker-1.log").write_text("other\n")
    out = follow().stdout
    assert out is not None
    assert [out.readline(), out.readline()] == ["worker-0: first\n", "worker-1: other\n"]
    assert log.exists()
