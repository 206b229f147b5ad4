"""Runs all tests ten times: idle, beside each other, on one core, and in other unusual places.

usage: .venv/bin/python -m tests.whole_runs [CONDITION…]

It prints a row of a table for each run, and exits with 1 if a test failed. The processor time is
that of all processes, daemons included.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

DISK_MEGABYTES = 4096
PYTEST = (sys.executable, "-m", "pytest")
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)

Environment = dict[str, str]


@contextmanager
def unchanged() -> Iterator[Environment]:
    """The machine as it is."""
    yield {}


@contextmanager
def one_core() -> Iterator[Environment]:
    """One core for the whole run, as `taskset -c 0` does."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield {}
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def small_terminal() -> Iterator[Environment]:
    """A small terminal, no UTF-8 by name, and a time zone with quarters of an hour."""
    yield {"COLUMNS": "80", "LINES": "24", "LANG": "C", "TZ": "Pacific/Chatham"}


@contextmanager
def slow_disk() -> Iterator[Environment]:
    """Temporary files on a disk that flushes every write; only root can mount one."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        # Some tests act as other users.
        os.chmod(directory, 0o755)
        image, place = Path(directory) / "image", Path(directory) / "disk"
        place.mkdir()
        with open(image, "wb") as file:
            file.truncate(DISK_MEGABYTES << 20)
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop,sync", str(image), str(place)], check=True)
        try:
            yield {"TMPDIR": str(place)}
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


@dataclass(frozen=True)
class Condition:
    """Where the tests run, and how often."""

    place: Callable[[], AbstractContextManager[Environment]]
    runs: int = 1
    at_once: bool = False
    """The runs are beside each other: each one is the load of the others."""


CONDITIONS = {
    "idle": Condition(unchanged, runs=4),
    "load": Condition(unchanged, runs=3, at_once=True),
    "one-core": Condition(one_core),
    "terminal": Condition(small_terminal),
    "slow-disk": Condition(slow_disk),
}


@dataclass(frozen=True)
class Result:
    """What a run of all tests ended with, and its seconds."""

    status: int
    last_line: str
    wall: float
    processor: float


def run_tests(environment: Environment, output: Path, words: Sequence[str]) -> Result:
    """Runs the tests. The processor time is right in a process that has done nothing else."""
    # Orphans come to this process; it waits for them too, as the first process of a system does.
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    began = time.monotonic()
    with open(output, "wb") as file:
        tests = subprocess.Popen(
            [*PYTEST, *words], env={**os.environ, **environment}, stdout=file, stderr=file
        )
    status = None
    # What the tests started and shared ends a moment after them.
    with suppress(ChildProcessError):
        while True:
            pid, code = os.wait()
            status = os.waitstatus_to_exitcode(code) if pid == tests.pid else status
    tests.returncode = status
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    last_line = re.sub(r"^=+ | in .*", "", output.read_text().splitlines()[-1])
    return Result(status, last_line, time.monotonic() - began, used.ru_utime + used.ru_stime)


def runs_under(condition: Condition, name: str, arguments: argparse.Namespace) -> Iterator[Result]:
    """Runs the tests under a condition, as often as it says."""
    with (
        condition.place() as environment,
        ProcessPoolExecutor(
            condition.runs if condition.at_once else 1, get_context("spawn"), max_tasks_per_child=1
        ) as processes,
    ):
        runs = [
            processes.submit(
                run_tests, environment, arguments.output / f"{name}-{number}.txt", arguments.pytest
            )
            for number in range(1, condition.runs + 1)
        ]
        for run in as_completed(runs):
            yield run.result()


def main() -> int:
    """Runs the conditions that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("condition", nargs="*", choices=[*CONDITIONS, []])
    parser.add_argument("--output", type=Path, default=Path("build/whole-runs"))
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="words for pytest")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    print("| condition | result | wall | processor time |\n|---|---|---|---|", flush=True)
    failed = False
    for name in arguments.condition or CONDITIONS:
        for run in runs_under(CONDITIONS[name], name, arguments):
            seconds = f"{run.wall:.0f} s | {run.processor:.0f} s"
            print(f"| {name} | {run.last_line} | {seconds} |", flush=True)
            failed |= run.status != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
