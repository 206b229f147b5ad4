"""Says beside the figures of a benchmark whether the machine was quiet enough to believe them."""

from __future__ import annotations

import functools
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

MOST_BY_OTHERS = 0.05
"""The share of all processors that other processes may use. Above it, ratios scatter."""

SAMPLE_SECONDS = 2.0
"""How long the machine is watched before and after the benchmark, while that does nothing."""

ADDED = 5_000_000
"""How many additions tell the speed of a core."""


def busy_seconds(stat: str) -> float:
    """Returns the processor time of all processes and of other virtual machines on the same host.

    Args:
        stat: The content of `/proc/stat`, see `proc_stat(5)`.
    """
    user, nice, system, _idle, _wait, *interrupts_and_stolen = stat.splitlines()[0].split()[1:9]
    ticks = sum(map(int, (user, nice, system, *interrupts_and_stolen)))
    return ticks / os.sysconf("SC_CLK_TCK")


def busy_share() -> float:
    """Watches the machine, and returns the share of all processors that is in use."""
    stat = Path("/proc/stat")
    before, began = busy_seconds(stat.read_text()), time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    used = busy_seconds(stat.read_text()) - before
    return used / ((time.monotonic() - began) * (os.cpu_count() or 1))


def on_quiet_machine(benchmark: Callable[[], None]) -> Callable[[], None]:
    """Wraps `main` of a benchmark: prints the machine and its load, exits with 1 if it was busy."""

    @functools.wraps(benchmark)
    def judged() -> None:
        if {"-h", "--help"} & set(sys.argv[1:]):
            benchmark()
        before = busy_share()
        benchmark()
        after = busy_share()
        used = f"others used {before:.0%} before, {after:.0%} after"
        print(f"{os.cpu_count()} × {processor()}; {used}.")
        if max(before, after) > MOST_BY_OTHERS:
            sys.exit(
                f"The machine was too busy to believe these figures: others may use "
                f"{MOST_BY_OTHERS:.0%} of its processors. Run it again on a quiet machine."
            )

    return judged


def additions() -> float:
    """Returns how fast one core is: millions of additions a second in Python."""
    total, began = 0, time.process_time()
    for value in range(ADDED):
        total += value
    return ADDED / 1e6 / (time.process_time() - began)


def processor() -> str:
    """Returns the name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
