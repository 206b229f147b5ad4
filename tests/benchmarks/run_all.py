"""Runs all benchmarks one after the other, and compares their figures with those of an earlier run.

    python tests/benchmarks/run_all.py [NAME ...] [--output FILE] [--against FILE] [--publish]

Says before each benchmark which one it is, and what is left. A benchmark during which the machine
was busy is named at the end, and in the file. The file is JSON: the machine, and all figures.

With `--publish`, they replace those of the documentation, and its page on performance is made anew.
This needs `pip install -e '.[docs]'`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import msgspec
from scripts.aims import missed
from scripts.figures import COLLECTED, BenchmarkRun, Figure, Figures, number, read, write
from scripts.machine import additions, processor
from scripts.performance_page import FIGURES, write_page

PLACE = Path(__file__).parent

LEAST_CHANGE = 0.1
"""Changes of a median below this part of it are not told: so much differs from run to run."""


PACKAGES = ("tfckpt-tui", "tensorflow", "tensorflow-cpu", "numpy", "textual")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, as `run_all` runs it.

    Attributes:
        name: The module.
        words: Its arguments; sizes that users have, few rounds.
        minutes: About how long it takes on two cores.
    """

    name: str
    words: tuple[str, ...] = ()
    minutes: float = 0.5


BENCHMARKS = (
    Benchmark("first_frame", ("--rounds", "3"), 6),
    Benchmark("listing", ("--rounds", "2", "--kinds", "foreign", "ours"), 2),
    Benchmark("one_of_many", ("--kinds", "ours"), 1.5),
    Benchmark("follow", ("--rounds", "8"), 1.5),
    Benchmark("large_list"),
    Benchmark("commands", (), 0.5),
    Benchmark("chart_keys"),
    Benchmark("event_curves", ("--rounds", "3"), 7),
    Benchmark("page_keys", (), 1.5),
    Benchmark("panes", (), 1.5),
    Benchmark("fleet", ("--seconds", "20"), 3),
    Benchmark("terminal_load", ("--seconds", "15", "--presses", "60", "--hour", "0"), 2),
    Benchmark("open_index", (), 1),
    Benchmark("verify", ("--rounds", "3"), 3),
    Benchmark("memory", (), 3),
    Benchmark("state_walk"),
    Benchmark("replica_checksums"),
    Benchmark("save", ("--rounds", "3"), 3),
    Benchmark("many_variables", ("--rounds", "2"), 3),
    Benchmark("background_save", ("--rounds", "2"), 1.5),
    Benchmark("partitioned_save", (), 8),
    Benchmark("loop_overhead", ("--blocks", "10", "--guard", "not_finite loss: pause"), 1.5),
    Benchmark("parameter_servers", (), 2),
    Benchmark("guards", ("--noise-steps", "200000"), 0.5),
    Benchmark("restore_in_place", ("--ages", "3", "--megabytes", "1", "500", "--rounds", "2"), 5),
    Benchmark("restart", ("--rounds", "2"), 2),
    Benchmark("idle_file_calls", ("--seconds", "10", "--only", "local"), 1),
    Benchmark("server_operations", ("--settle", "45"), 5),
    Benchmark("check", (), 1),
    Benchmark("year_of_training", ("--days", "21"), 5),
)
"""In this order; those of the app, which scatter most, come first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = {one.name: one for one in BENCHMARKS}
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these benchmarks")
    parser.add_argument("--output", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--against", type=Path, default=FIGURES, help="compare with this file (those of the docs)"
    )
    parser.add_argument("--publish", action="store_true", help="replace the figures of the docs")
    options = parser.parse_args()
    unknown = set(options.names) - known.keys()
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {[*known]}")
    before = read(options.against) if options.against.exists() else None
    found = run([known[name] for name in options.names] or BENCHMARKS)
    if options.output is not None:
        write(found, options.output)
    if before is not None:
        print("\n".join(changes(before.figures, found.figures)) or "No median changed by a tenth.")
    for line in missed(found.figures):
        print(f"Missed: {line}.")
    if options.publish:
        publish(found)
    for names, what in ((found.busy, "The machine was busy during"), (found.failed, "Failed:")):
        if names:
            print(f"{what} {', '.join(names)}.")
    sys.exit(bool(found.failed))


def publish(found: Figures) -> None:
    """Replaces the figures of the same benchmarks in the documentation, and makes its page anew."""
    if FIGURES.exists() and len(found.runs) < len(BENCHMARKS):
        found = merged(read(FIGURES), found, [one.name for one in BENCHMARKS])
    write(found, FIGURES)
    write_page(found)


def merged(before: Figures, after: Figures, order: Sequence[str]) -> Figures:
    """Returns the figures of two runs; of benchmarks that are in both, the later ones.

    Args:
        before: The earlier run.
        after: The later run.
        order: The names of all benchmarks.

    Raises:
        SystemExit: They ran on different machines, or with different versions.
    """
    if (before.machine, before.versions) != (after.machine, after.versions):
        sys.exit("The figures of the docs are of another machine or versions. Run all benchmarks.")
    kept = [figure for figure in before.figures if figure.benchmark not in after.runs]
    figures = sorted([*kept, *after.figures], key=lambda figure: order.index(figure.benchmark))
    return msgspec.structs.replace(after, figures=figures, runs=before.runs | after.runs)


def run(benchmarks: Sequence[Benchmark]) -> Figures:
    """Runs benchmarks, and shows what they print."""
    figures: list[Figure] = []
    runs: dict[str, BenchmarkRun] = {}
    left = sum(one.minutes for one in benchmarks)
    for place, one in enumerate(benchmarks, 1):
        print(f"[{place}/{len(benchmarks)}] {one.name}, about {left:.0f} min left", flush=True)
        left -= one.minutes
        at, speed = time.time(), additions()
        with tempfile.NamedTemporaryFile() as collected:
            command = [sys.executable, str(PLACE / f"{one.name}.py"), *one.words]
            environment = {**os.environ, COLLECTED: collected.name}
            done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
            lines = Path(collected.name).read_bytes().splitlines()
        figures += [msgspec.json.decode(line, type=Figure) for line in lines]
        was_busy = "too busy to believe" in done.stderr
        has_failed = bool(done.returncode) and not was_busy
        if has_failed:
            print(done.stderr, file=sys.stderr)
        runs[one.name] = BenchmarkRun(
            at=at, additions=speed, was_busy=was_busy, has_failed=has_failed
        )
    packages = {one.name.replace("_", "-"): one.version for one in distributions()}
    return Figures(
        machine=f"{os.cpu_count()} × {processor()}",
        versions={"Python": platform.python_version()}
        | {name: packages[name] for name in PACKAGES if name in packages},
        runs=runs,
        figures=figures,
    )


def changes(before: Sequence[Figure], after: Sequence[Figure]) -> list[str]:
    """Returns a line for each median that moved out of the range of the earlier values.

    Args:
        before: The figures of the earlier run.
        after: Those of this run.
    """
    known = {figure.key: figure for figure in before}
    lines = []
    for figure in after:
        old = known.get(figure.key)
        if old is None or old.unit != figure.unit or old.low <= figure.value <= old.high:
            continue
        if abs(figure.value - old.value) >= LEAST_CHANGE * abs(old.value):
            lines.append(f"{number(old.value)} → {figure.words}")
    return lines


if __name__ == "__main__":
    main()
