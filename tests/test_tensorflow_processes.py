"""A command that begins with TensorFlow imported ends as its program, and the program with it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tensorflow_processes import python_with_tensorflow
from waiting import MOST_SECONDS, wait_until

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import os, signal, sys, time

if sys.argv[1:]:
    sys.exit(int(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with open("new", "w") as file:
    file.write(str(os.getpid()))
os.rename("new", "pid")
time.sleep(600)
"""


def start(place: Path, *arguments: str) -> subprocess.Popen[bytes]:
    (place / "script.py").write_text(SCRIPT)
    return subprocess.Popen([*python_with_tensorflow(), "script.py", *arguments], cwd=place)


def test_the_exit_status_is_that_of_the_program(tmp_path: Path) -> None:
    assert start(tmp_path, "3").wait(MOST_SECONDS) == 3


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 7),
        (signal.SIGUSR1, -signal.SIGUSR1),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_reaches_the_program(tmp_path: Path, number: signal.Signals, status: int) -> None:
    command = start(tmp_path)
    wait_until((tmp_path / "pid").exists, 60, "the program")
    command.send_signal(number)
    assert command.wait(MOST_SECONDS) == status
    program = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(program), 60, "the end of the program")
