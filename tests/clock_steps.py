"""Sets the clock of the Python programs of a test, as somebody sets that of a machine."""

from __future__ import annotations

import os
import struct
from pathlib import Path


def set_clock(place: Path, off: float) -> None:
    """Has a file say by how many seconds the clock of its programs is off."""
    with open(place, "r+b" if place.exists() else "wb") as file:
        file.write(struct.pack("d", off))


def environment_of_clock(place: Path) -> dict[str, str]:
    """Returns the variables of programs whose clock is off by what a file says."""
    path = Path(__file__).parent / "stepped_clock"
    before = os.environ.get("PYTHONPATH", "")
    return {
        "TESTS_CLOCK": str(place),
        "PYTHONPATH": f"{path}{os.pathsep}{before}" if before else str(path),
    }
