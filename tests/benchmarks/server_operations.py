"""What a run of two workers asks of the server of a network disk, by who asks for what.

    python tests/benchmarks/server_operations.py [--seconds N] [--settle N]
        [--runs N] [--live N] [--call-seconds S] [--run-workers N ...] [--workers N ...]
        [--only run|list|workers|members]

A FUSE file system of the tests, whose clients keep attributes for 3 s as NFS does, counts what
reaches its server: first while nobody looks at the run, then while `watch`, the app and the list of
runs do on another machine.

Then the list of many runs, of which some are live: what it asks while it is open, and how long
after its first frame it has rows where each call takes a while. The first list remembers nothing.
Live runs are simulated, with a heartbeat each second.

Then a run of many workers, simulated likewise: what the app asks, one `status`, and the chief that
gathers the heartbeats.

With `--only members`, for six minutes, a run of two workers of which the second counts as one of
many, and what a cluster of such runs would ask.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

for part in ("", "training", "e2e"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from fleet import simulated
from scripts.figures import report
from scripts.machine import on_quiet_machine
from terminal import Terminal

from faulty_file_system import FaultyMount, faulty_mounts
from many_workers import ManyWorkers
from served_run import CACHE_SECONDS, Asked, ServedRun, served_run
from tfckpt_trainer.launch.processes.log_limit import check_seconds
from tfckpt_trainer.launch.supervision.heartbeat_reader import others_seconds
from tfckpt_trainer.rundir.heartbeats.attention import MEMBER_SECONDS
from tfckpt_trainer.rundir.heartbeats.gathered import READ_EACH_SECOND
from tfckpt_trainer.rundir.log_times import idle_record_seconds
from tfckpt_trainer.rundir.paths import RunDirectory

RARE = 0.02
"""Operations a second that are not worth a line."""

LONGEST_SECONDS = 300.0

OF_A_READ = 5
"""Operations that read a small file."""

RUNS, RUN_WORKERS = 1000, 64
"""The runs of a whole cluster, and the workers of each."""


def report_asked(what: str, asked: Asked, seconds: float) -> None:
    """Reports operations a second."""
    for who, calls in sorted(asked.items()):
        report(f"{who}, {what}".rstrip(", "), [calls.total() / seconds], "operations a second")
        for name, count in calls.most_common():
            if count / seconds >= RARE:
                report(
                    f"{who}, {what}".rstrip(", ") + f": {name}",
                    [count / seconds],
                    "operations a second",
                )


def look(served: ServedRun, words: list[str], shown: str, seconds: float) -> Asked:
    """Returns what is asked while a program on another machine shows the run."""
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", *words]
    with Terminal(command, columns=140, rows=40) as terminal:
        terminal.wait_for(shown, 60)
        time.sleep(seconds / 4)
        return served.count(seconds)


def measure_lists(place: Path, options: argparse.Namespace) -> None:
    """Reports what a list of many runs asks, and when it has rows."""
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    with faulty_mounts(place, "there", cache_seconds=CACHE_SECONDS) as (mount,):
        (place / "server" / "runs").mkdir()
        with simulated(place / "server" / "runs", options.live, options.runs - options.live):
            mount.set_faults(delay=options.call_seconds)
            for what in ("a first list", "a later list", "an open list"):
                is_open = what == "an open list"
                if is_open:
                    mount.clear()
                seconds = options.seconds if is_open else 0.0
                measure_list(mount, options, f"{what} of {options.runs:,} runs", seconds)


def measure_list(
    mount: FaultyMount, options: argparse.Namespace, what: str, seconds: float
) -> None:
    """Reports about one list; if it is open for some seconds, what it asks then."""
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "browse", str(mount.root / "runs")]
    mount.count_calls()
    with Terminal(command, columns=140, rows=40) as terminal:
        terminal.wait_for("runs below|searching for runs", 60)
        began = time.perf_counter()
        everything = rf"{options.runs:,} runs · {options.live} training(?!.* not read yet)"
        for words, shown in (
            ("rows", "(ended|live)-[0-9]"),
            ("live rows", "live-0"),
            ("all that were read", everything),
        ):
            terminal.wait_for(shown, LONGEST_SECONDS)
            took = time.perf_counter() - began
            report(f"{what}: from its first frame to {words}", [took], "s")
        report(f"{what}: until all are read", [mount.count_calls().total()], "operations")
        if seconds:
            time.sleep(options.settle)
            mount.count_calls()
            time.sleep(seconds)
            report_asked("", {what: mount.count_calls()}, seconds)


def measure_workers(place: Path, count: int, seconds: float) -> None:
    """Reports what is asked about a run of many workers, whose heartbeats the chief gathers."""
    what = f"a run of {count:,} workers"
    with (
        faulty_mounts(place, "here", "there", cache_seconds=CACHE_SECONDS) as (here, there),
        beating(RunDirectory(place / "server" / "run"), RunDirectory(here.root / "run"), count),
    ):
        root = str(there.root / "run")
        there.count_calls()
        command = [sys.executable, "-m", "tfckpt_tui.cli.main"]
        subprocess.run([*command, "status", root], check=True, capture_output=True)
        report(f"one status of {what}", [there.count_calls().total()], "operations")
        with Terminal([*command, root], columns=140, rows=40) as terminal:
            terminal.wait_for("training", 60)
            report(f"the app until it shows {what}", [there.count_calls().total()], "operations")
            time.sleep(seconds / 4)
            there.count_calls()
            here.count_calls()
            time.sleep(seconds)
            asked = {"the app": there.count_calls(), "the chief gathers": here.count_calls()}
            report_asked(what, asked, seconds)


@contextmanager
def beating(server: RunDirectory, run: RunDirectory, count: int) -> Iterator[None]:
    """A run whose workers write heartbeats, and whose chief has gathered them once."""
    workers = ManyWorkers(server, run, count, time.time())
    for _ in range(2 + count // READ_EACH_SECOND):
        workers.beat(time.time())
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(1.0):
            workers.beat(time.time())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=45.0)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--live", type=int, default=20)
    parser.add_argument("--call-seconds", type=float, default=0.001)
    parser.add_argument("--run-workers", type=int, nargs="*", default=[2])
    parser.add_argument("--workers", type=int, nargs="*", default=[64, 1024])
    parser.add_argument("--only", choices=["run", "list", "workers", "members"])
    options = parser.parse_args()
    if options.only in {None, "run"}:
        for count in options.run_workers:
            measure_run(count, options)
    if options.only == "members":
        measure_members(options)
    if options.only in {None, "list"}:
        with tempfile.TemporaryDirectory() as directory:
            measure_lists(Path(directory), options)
    if options.only in {None, "workers"}:
        for count in options.workers:
            with tempfile.TemporaryDirectory() as directory:
                measure_workers(Path(directory), count, options.seconds)


def measure_members(options: argparse.Namespace) -> None:
    """Reports what a run asks whose other worker counts as one of many, and what many would ask."""
    what = "two workers, as of many, nobody looks"
    with (
        tempfile.TemporaryDirectory() as directory,
        served_run(Path(directory), "--few", "1") as served,
    ):
        time.sleep(options.settle)
        # So that it has a heartbeat.
        seconds = max(options.seconds, MEMBER_SECONDS)
        asked = served.count(seconds)
        report_asked(what, asked, seconds)
    a_second = {who: calls.total() / seconds for who, calls in asked.items()}
    member = a_second.pop("worker 1")
    more = supervisor_asks(RUN_WORKERS) - supervisor_asks(2)
    whole = RUNS * (sum(a_second.values()) + more + (RUN_WORKERS - 1) * member)
    report(
        f"{RUNS:,} runs of {RUN_WORKERS} workers, reckoned from these",
        [whole],
        "operations a second",
    )


def supervisor_asks(count: int) -> float:
    """Returns the operations a second of a supervisor for the logs and heartbeats of workers."""
    logs = count / idle_record_seconds(count) + count / check_seconds(count)
    return logs + OF_A_READ * count / others_seconds(count)


def measure_run(count: int, options: argparse.Namespace) -> None:
    """Reports what a run of so many workers asks."""
    with (
        tempfile.TemporaryDirectory() as directory,
        served_run(Path(directory), workers=count) as served,
    ):
        time.sleep(options.settle)
        asked = served.count(options.seconds)
        report_asked(f"of {count}, nobody looks", asked, options.seconds)
        there = served.elsewhere.root
        for what, words, shown in (
            ("the app is open", [str(there)], "training"),
            ("the list is open", ["browse", str(there.parent)], "1 training"),
        ):
            asked = look(served, words, shown, options.seconds)
            report_asked(f"of {count}, {what}", asked, options.seconds)


if __name__ == "__main__":
    main()
