"""File calls per second of an idle worker, and the time from a command to its answer.

    python tests/benchmarks/idle_file_calls.py [--seconds N] [--commands N] [--only local|network]

A worker of `steered.py` is paused. On a local disk, `strace` counts its calls that name a file of
the run directory. On a network disk, a FUSE file system of the tests counts the calls that it gets.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "training")]
from scripts.figures import report
from scripts.machine import on_quiet_machine
from steered import SteeredRun
from training_cluster import Cluster

from faulty_file_system import faulty_mounts
from tfckpt_trainer.rundir.records.command import CommandKind

SETTLED_SECONDS = 3.0


def measure(disk: str, root: Path, counted: Callable[[int], Counter[str]], commands: int) -> None:
    """Reports the calls of one worker with its run directory below `root`."""
    with Cluster(root / "run", "steered.py", [], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        answered = []
        for _ in range(commands):
            for kind in (CommandKind.PAUSE, CommandKind.RESUME):
                began = time.perf_counter()
                run.ask(kind)
                answered.append(time.perf_counter() - began)
        run.ask(CommandKind.PAUSE)
        time.sleep(SETTLED_SECONDS)
        calls = counted(cluster.processes[0].pid)
    report(
        f"file calls of an idle worker on a {disk} disk", [sum(calls.values())], "calls a second"
    )
    for name, count in calls.most_common():
        if count >= 0.05:
            report(f"{name}, {disk} disk", [count], "calls a second")
    if answered:
        what = f"from a command to its answer on a {disk} disk"
        report(what, [1e3 * seconds for seconds in answered], "ms")


def traced(pid: int, root: Path, seconds: float) -> Counter[str]:
    """Returns the calls per second of a process that concern a file below `root`, by name."""
    log = root / "strace"
    words = ["strace", "-f", "-y", "-e", "trace=%file,%desc", "-o", log, "-p", str(pid)]
    tracer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    tracer.terminate()
    tracer.wait()
    place = str(root / "run")
    names = (
        re.match(r"\d+\s+(\w+)\(", line) for line in log.read_text().splitlines() if place in line
    )
    counts = Counter(found[1] for found in names if found is not None)
    return Counter({name: count / seconds for name, count in counts.items()})


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--commands", type=int, default=20)
    parser.add_argument("--only", choices=["local", "network"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        if options.only != "network":
            (place / "local").mkdir()

            def count_traced(pid: int) -> Counter[str]:
                return traced(pid, place / "local", options.seconds)

            measure("local", place / "local", count_traced, options.commands)
        if options.only != "local":
            with faulty_mounts(place / "network", "client", cache_seconds=1.0) as (mount,):

                def count_served(pid: int) -> Counter[str]:
                    mount.count_calls()
                    time.sleep(options.seconds)
                    calls = mount.count_calls().items()
                    return Counter({name: count / options.seconds for name, count in calls})

                measure("network", mount.root, count_served, options.commands)


if __name__ == "__main__":
    main()
