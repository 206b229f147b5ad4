"""From the death of a worker to the first step after it, split up; with and without standing by.

    python tests/benchmarks/restart.py [--rounds N]

Two workers of the demo's model. Both ways take turns in one run of this script: a worker is killed,
and the journal, the heartbeats and the log of steps tell when what was reached.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from waiting import wait_until

PARTS = ("detection", "start", "import and cluster", "restore", "first step")
SETTLED_SECONDS = 8.0
"""After the first steps: time for a process to stand by."""


def restarted(directory: Path, *, standby: bool) -> dict[str, float]:
    """Kills a worker of a fresh run; returns seconds by part."""
    run = RunDirectory(directory / "run")
    module = "tfckpt_trainer.examples.language_model"
    launch(
        LaunchOptions(
            run_directory=str(run.root),
            command=(sys.executable, "-m", module, "--save-every", "20"),
            working_directory=str(directory),
            workers=2,
            standby=standby,
        )
    )
    try:
        _wait_for_steps(run, 25, since=0.0)
        time.sleep(SETTLED_SECONDS)
        victim = next(worker for worker in read_workers(run) if worker.index == 1)
        killed = time.time()
        os.kill(victim.pid, signal.SIGKILL)
        first_step = _wait_for_steps(run, 1, since=killed + 0.5)
    finally:
        stop_supervisor(run, 20, by="benchmark")
    entries = [entry for entry in read_entries(run) if entry.at > killed]
    lost = next(e.at for e in entries if e.kind is EventKind.WORKER_LOST)
    restart = next(e.at for e in entries if e.kind is EventKind.RESTART)
    restored = next(e for e in entries if e.kind is EventKind.START)
    cluster = restored.at - float(restored.details["seconds"])
    moments = [killed, lost, restart, cluster, restored.at, first_step]
    return {
        part: after - before
        for part, before, after in zip(PARTS, moments, moments[1:], strict=False)
    }


def _wait_for_steps(run: RunDirectory, steps: int, *, since: float) -> float:
    """Waits for a step after `since`; returns when it ended."""

    def made() -> float | None:
        workers = read_workers(run)
        ends = [w.last_step_at for w in workers if w.last_step_at and w.step >= steps]
        return max(ends) if len(ends) == 2 and min(ends) > since else None

    return wait_until(made, 120, "steps")


def import_tensorflow() -> float:
    """Returns the seconds that a fresh process takes to import TensorFlow."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
    return time.perf_counter() - began


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    imports = [import_tensorflow() for _ in range(rounds)]
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(rounds):
        for standby in found:
            with tempfile.TemporaryDirectory() as directory:
                found[standby].append(restarted(Path(directory), standby=standby))
    totals = {standby: [sum(way.values()) for way in ways] for standby, ways in found.items()}
    for standby, ways in found.items():
        name = "with a standby process" if standby else "without a standby process"
        for part in PARTS:
            report(f"{part}, {name}", [way[part] for way in ways], "s")
        what = f"from a killed worker to the next step, {name}"
        report_ratio(what, totals[standby], imports, "import tensorflow")


if __name__ == "__main__":
    main()
