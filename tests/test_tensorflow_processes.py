"""A command that begins with TensorFlow imported ends as its program, and the program with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def test_temporary_files_are_in_no_directory_of_the_test_that_was_first(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys, tensorflow_processes as processes;"
        f"os.environ['TMPDIR'] = {str(gone)!r};"
        "first = processes.CommandProcess('tempfile');"
        "first.communicate();"
        f"print(os.listdir({str(gone)!r}))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_XDIST_TESTRUNUID"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


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
