"""Runs all tests ten times: idle, beside a load, on one core, and in other unusual places.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOAD = 12
"""How many processes compute beside a run under load."""
DISK_MEGABYTES = 4096
PYTEST = (sys.executable, "-m", "pytest")
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)

Environment = dict[str, str]


@contextmanager
def idle() -> Iterator[Environment]:
    """Nothing beside the run."""
    yield {}


@contextmanager
def loaded() -> Iterator[Environment]:
    """Processes that compute until the run ends."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(LOAD)]
    try:
        yield {}
    finally:
        for process in busy:
            process.kill()
            process.wait()


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


CONDITIONS = {
    "idle": (idle, 4),
    "load": (loaded, 3),
    "one-core": (one_core, 1),
    "terminal": (small_terminal, 1),
    "slow-disk": (slow_disk, 1),
}


def run_tests(environment: Environment, output: Path, words: Sequence[str]) -> tuple[int, float]:
    """Runs the tests; returns pytest's exit status and the seconds of processor time."""
    began = _processor_seconds()
    with open(output, "wb") as file:
        tests = subprocess.Popen(
            [*PYTEST, *words], env={**os.environ, **environment}, stdout=file, stderr=file
        )
    status = None
    # Orphans come to this process; it waits for them too, as the first process of a system does.
    while status is None:
        pid, code = os.wait()
        status = os.waitstatus_to_exitcode(code) if pid == tests.pid else None
    tests.returncode = status
    return status, _processor_seconds() - began


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Runs the conditions that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("condition", nargs="*", choices=[*CONDITIONS, []])
    parser.add_argument("--output", type=Path, default=Path("build/whole-runs"))
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="words for pytest")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    arguments.output.mkdir(parents=True, exist_ok=True)
    print("| condition | result | wall | processor time |\n|---|---|---|---|", flush=True)
    failed = False
    for name in arguments.condition or CONDITIONS:
        condition, times = CONDITIONS[name]
        for number in range(1, times + 1):
            output = arguments.output / f"{name}-{number}.txt"
            began = time.monotonic()
            with condition() as environment:
                status, processor = run_tests(environment, output, arguments.pytest)
            wall = time.monotonic() - began
            result = re.sub(r"^=+ | in .*", "", output.read_text().splitlines()[-1])
            print(f"| {name} | {result} | {wall:.0f} s | {processor:.0f} s |", flush=True)
            failed |= status != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
