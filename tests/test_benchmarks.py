"""Every benchmark starts; what it measures is read off by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
