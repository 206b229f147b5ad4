"""Every benchmark starts; what it measures is read off by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = [
    pytest.param(
        path, id=path.stem, marks=[pytest.mark.tensorflow] * ("\nimport tensorflow" in text)
    )
    for path, text in (
        (path, path.read_text())
        for path in sorted((Path(__file__).parent / "benchmarks").glob("*.py"))
    )
]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_finds_its_imports_and_explains_itself(benchmark):
    done = subprocess.run(
        [sys.executable, benchmark, "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
