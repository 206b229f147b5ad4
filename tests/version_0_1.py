"""Run directories that version 0.1 wrote, as files of it: no later code had a hand in them.

run             trained, gone back, trained on; one prune in the trash, one pin
run-cut-prune   the same, and a prune was killed after the index of ckpt-b1-4000 had moved
run-cut-save    the same, and a save was killed before the index of ckpt-b1-6046 moved
"""

from __future__ import annotations

import tarfile
from pathlib import Path

_ARCHIVE = Path(__file__).with_name("data") / "run-directories-0.1.tar.gz"


def unpacked(place: Path, name: str = "run") -> Path:
    """Unpacks one of the directories below `place` and returns it."""
    with tarfile.open(_ARCHIVE) as archive:
        members = [m for m in archive if m.name == name or m.name.startswith(f"{name}/")]
        archive.extractall(place, members, filter="data")
    return place / name
