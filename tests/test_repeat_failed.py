"""The gate of a change repeats failed tests that may have had bad luck, and no others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from documentation import ROOT

CONFIGURATION = """
[pytest]
markers =
    e2e
    tensorflow
    faults
    cluster
"""
TESTS = """
from pathlib import Path
import pytest

def fails_until(times):
    count = Path("count")
    done = int(count.read_text()) if count.exists() else 0
    count.write_text(str(done + 1))
    assert done >= times, f"no answer at attempt {done + 1}"

@pytest.mark.e2e
@pytest.mark.xdist_group("some")
def test_process():
    fails_until(TIMES)

@pytest.mark.e2e
@pytest.mark.parametrize("number", range(4))
def test_other_processes(number):
    assert Path("passing").exists()

def test_unit():
    assert Path("passing").exists()
"""


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Runs the tests with these words, and repeats what failed if these tests fail at first."""
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    # The plugins of our own tests take a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")

    def run(*words: str, fails: int = 1) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_some.py").write_text(TESTS.replace("TIMES", str(fails)))
        words = (sys.executable, "-m", "pytest", "-ra", *words)
        first = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert first.returncode == 1, first.stdout
        (tmp_path / "output").write_text(first.stdout)
        return subprocess.run(
            [sys.executable, ROOT / ".ci" / "repeat_failed.py", "output"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.e2e
@pytest.mark.parametrize("processes", [(), ("-n", "1", "--dist", "loadgroup")], ids=len)
def test_a_test_that_passes_alone_is_named_in_the_last_line(gate, processes):
    done = gate("-k", "test_process", *processes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "unstable: test_some.py::test_process, first failure: "
        "AssertionError: no answer at attempt 1"
    )


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("chosen", "fails", "reason", "repeats"),
    [
        ("test_process", 2, "Failed twice: test_some.py::test_process", 1),
        ("test_unit or test_process", 1, "not repeated: test_some.py::test_unit", 0),
        ("test_other_processes", 1, "4 tests failed", 0),
    ],
)
def test_other_failures_fail_the_run(gate, tmp_path, chosen, fails, reason, repeats):
    done = gate("-k", chosen, fails=fails)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "unstable" not in done.stdout
    attempts = tmp_path / "count"
    assert (int(attempts.read_text()) if attempts.exists() else 1) == 1 + repeats
