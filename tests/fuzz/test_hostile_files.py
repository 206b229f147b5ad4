"""Whatever lies in the place of a file of a run: bounded memory, one error, no link followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from weekly import weekly

SCRIPT = Path(__file__).parent / "scripts" / "hostile_files.py"


@pytest.mark.e2e
@pytest.mark.parametrize(
    "contents",
    [
        ["depth", "grown"],
        ["link", "pipe"],
        *weekly(["lines", "sparse", "lists"], ["digits", "directory", "socket"]),
    ],
    ids=" ".join,
)
def test_each_file_that_a_command_reads_may_hold_anything(
    tmp_path: Path, contents: list[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "STATE", "CONFIG")}
    ended = subprocess.run(
        [sys.executable, SCRIPT, place, *contents],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **homes},
        timeout=500,
    )
    *problems, summary = ended.stdout.splitlines() or [""]
    assert (problems, ended.stderr, ended.returncode) == ([], "", 0)
    counted = re.fullmatch(r"(\d+) cases, (\d+) files", summary)
    assert counted is not None
    assert int(counted[1]) > 40
    assert int(counted[2]) > 15
