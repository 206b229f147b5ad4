"""Faults at file calls come where they are asked for, in C libraries too."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from file_calls import KILL, NONE, TEAR, Fault, build
from requirements import require

WRITES = """
import os, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from file_calls import Fault, begin, counted
place = Path({place!r})
begin(place / "watched", {fault!r})
for name in ("watched/a", "beside", "watched/b"):
    (place / name).write_bytes(bytes(10))
directory = os.open(place / "watched", os.O_RDONLY)
os.rename("b", "c", src_dir_fd=directory, dst_dir_fd=directory)
assert (place / "watched" / "c").read_bytes() == bytes(10)
print(*counted())
"""
"""Five changes below `watched`: open and write of `a` and of `b`, and the rename."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is loaded before the C library."""
    require("cc", "Linux")
    return build(tmp_path_factory.mktemp("library"))


def ended(library: Path, place: Path, fault: Fault) -> subprocess.CompletedProcess[str]:
    """Runs a program with a fault."""
    (place / "watched").mkdir()
    code = WRITES.format(tests=str(Path(__file__).parent), place=str(place), fault=fault)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )


def sizes(place: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (place / "watched").iterdir()}


def test_calls_below_a_directory_are_counted(library: Path, tmp_path: Path) -> None:
    done = ended(library, tmp_path, NONE)
    changes, reads = map(int, done.stdout.split())
    assert (done.returncode, changes, reads >= 3) == (0, 5, True), done.stderr
    assert sizes(tmp_path) == {"a": 10, "c": 10}


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (Fault(KILL, 3, 3), {"a": 10}),
        (Fault(KILL, 5, 5), {"a": 10, "b": 10}),
        (Fault(TEAR, 4, 4), {"a": 10, "b": 5}),
        (Fault(KILL, 3, 3, of_reads=True), {"a": 10, "c": 10}),
    ],
)
def test_a_process_ends_at_a_call(
    library: Path, tmp_path: Path, fault: Fault, left: dict[str, int]
) -> None:
    assert ended(library, tmp_path, fault).returncode == -signal.SIGKILL
    assert sizes(tmp_path) == left


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_call_fails_with_an_error(library: Path, tmp_path: Path, number: int) -> None:
    done = ended(library, tmp_path, Fault(errno.EDQUOT, number, number))
    assert done.returncode == 1
    assert os.strerror(errno.EDQUOT) in done.stderr
    assert (tmp_path / "beside").exists() == (number > 2)
