"""Every benchmark starts; what it measures is read off by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scripts import machine
from tensorflow_processes import run_with_tensorflow

BENCHMARKS = [
    pytest.param(
        path, id=path.stem, marks=[pytest.mark.tensorflow] * ("\nimport tensorflow" in text)
    )
    for path, text in (
        (path, path.read_text())
        for path in sorted((Path(__file__).parent / "benchmarks").glob("*.py"))
    )
]


def run_alone(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_finds_its_imports_and_explains_itself(benchmark, request):
    run = run_with_tensorflow if request.node.get_closest_marker("tensorflow") else run_alone
    done = run(benchmark, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


@pytest.mark.parametrize(("share", "is_believed"), [(0.04, True), (0.06, False)])
def test_figures_of_a_busy_machine_are_not_to_be_believed(monkeypatch, capsys, share, is_believed):
    monkeypatch.setattr(machine, "busy_share", lambda: share)
    judged = machine.on_quiet_machine(lambda: print("a figure"))
    if is_believed:
        judged()
    else:
        with pytest.raises(SystemExit, match="too busy to believe these figures"):
            judged()
    assert capsys.readouterr().out.startswith("a figure")


def test_a_process_that_computes_is_seen(monkeypatch):
    monkeypatch.setattr(machine, "SAMPLE_SECONDS", 0.5)
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        # At least half a core, even beside other tests.
        assert machine.busy_share() > 0.5 / (os.cpu_count() or 1)
    finally:
        loop.kill()
        loop.wait()
