"""Lists runs for the first time, and looks at all their files; prints what each takes.

python first_lists.py DIRECTORY

A line for each round: seconds of the list and of the look, then their processor times.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# As in the app: it sets how often Python looks for garbage.
import tfckpt_tui.cli  # noqa: F401
from tfckpt_tui.services.runs.job_list import ANSWER_TIMEOUT_SECONDS, JobList
from tfckpt_tui.services.runs.search import RunSearch

ROUNDS = 3


def main() -> None:
    root = Path(sys.argv[1])
    for turn in range(ROUNDS + 1):
        listed, looked = timed(lambda: first_list(root)), timed(lambda: look_at_all(root))
        # In the first one, modules are imported and the page cache is filled.
        if turn:
            print(listed[0], looked[0], listed[1], looked[1])


def timed(act: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - began, time.process_time() - used


def first_list(root: Path) -> None:
    roots = RunSearch(root).find(ANSWER_TIMEOUT_SECONDS, whole=True)
    assert len(JobList().read(roots, with_others=False)) == len(list(root.iterdir()))


def look_at_all(root: Path) -> None:
    for place, _, _ in os.walk(root):
        with os.scandir(place) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)


if __name__ == "__main__":
    main()
