"""Directory trees that are deeper than a recursion, and than a path may be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DEEP = 2 * sys.getrecursionlimit()


def make_deep(directory: Path, depth: int = DEEP) -> None:
    """Makes a tree whose deepest path is longer than the system takes, with a file at its end."""
    directory.mkdir(parents=True)
    place = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("long", dir_fd=place)
        inner = os.open("long", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(os.open("end", os.O_CREAT, dir_fd=place))
    os.close(place)
