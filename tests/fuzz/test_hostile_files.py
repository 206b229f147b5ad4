"""Whatever lies in the place of a file of a run: bounded memory, one error, no link followed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weekly import weekly

SCRIPT = Path(__file__).parent / "scripts" / "hostile_files.py"


@pytest.mark.e2e
@pytest.mark.parametrize(
    "contents",
    [
        ["depth|grown", "link|pipe"],
        *weekly(["depth", "grown", "lines"], ["link", "pipe", "sparse", "lists"]),
        *weekly(["digits", "directory", "socket"]),
    ],
    ids=" ".join,
)
def test_each_file_that_a_command_reads_may_hold_anything(
    tmp_path: Path, contents: list[str]
) -> None:
    # Each case is a run of its own, made anew: thousands of files.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        try_each_file(Path(directory, "place"), tmp_path, contents)


def try_each_file(place: Path, tmp_path: Path, contents: list[str]) -> None:
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
