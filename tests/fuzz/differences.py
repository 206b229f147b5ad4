"""Looks for indexes on which our reader and TensorFlow's differ, and ours says nothing.

From a shell: `python tests/fuzz/differences.py FIRST_SEED COUNT SECONDS`.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tensorflow_processes import run_with_tensorflow

SCRIPT = Path(__file__).parent / "scripts" / "compare_readers.py"


def find_differences(first: int, count: int, seconds: int) -> tuple[int, int, list[str]]:
    """Returns how many indexes were tried, how many were sound to us, and the differences."""
    tried = clean = 0
    found: list[str] = []
    while tried < count and len(found) < 100:
        shared = Path("/dev/shm")
        place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        try:
            start = first + tried
            done = run_with_tensorflow(
                SCRIPT, place, start, count - tried, seconds, timeout=seconds + 60
            )
            ended, sound = struct.unpack("<QQ", (place / "seed").read_bytes())
        finally:
            shutil.rmtree(place)
        found += done.stdout.splitlines()
        tried, clean = ended - first, clean + sound
        if done.returncode == 0:
            break
        found.append(f"seed {ended - 1}: {done.returncode}: {done.stderr[-300:]}")
    return tried, clean, found


if __name__ == "__main__":
    _tried, _clean, _found = find_differences(*map(int, sys.argv[1:4]))
    print(f"{_tried} indexes, {_clean} sound, {len(_found)} differences")
    print("\n".join(_found))
