"""Runs benchmarks one after the other, and compares their figures with those of an earlier run.

    python tests/benchmarks/run_all.py [NAME ...] [--quick | --all] [--times N] [--output FILE]
                                       [--against FILE] [--publish]

`--quick` takes 3 minutes: one round of what is fast, at sizes of the others. Its ratios are
compared, and not published. `--all` adds benchmarks that take minutes each, such as that of a year.
Names run these alone. `--times` runs each so many times: of a figure it keeps the median, and the
range of all.

Says before each benchmark which one it is, and what is left, by what each took in the earlier run.
A benchmark during which the machine was busy is named at the end, and in the file. The file is
JSON: the machine, and all figures.

With `--publish`, they replace those of the documentation, and its page on performance is made anew.
This needs `pip install -e '.[docs]'`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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
        quick: Its arguments in the quick form; None if it has no ratio to compare, or takes long.
        is_long: Whether it runs only with `--all`, or by its name.
    """

    name: str
    words: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    is_long: bool = False


def _benchmark(
    name: str, words: str = "", quick: str | None = None, *, is_long: bool = False
) -> Benchmark:
    split = None if quick is None else tuple(shlex.split(quick))
    return Benchmark(name, tuple(shlex.split(words)), split, is_long)


BENCHMARKS = (
    _benchmark("first_frame", "--rounds 3", "--checkpoints 1000 --rounds 2"),
    _benchmark(
        "listing",
        "--rounds 3 --kinds foreign ours",
        "--checkpoints 10000 --rounds 1 --kinds foreign ours",
    ),
    _benchmark("one_of_many", "--checkpoints 10 10000 100000 --kinds ours"),
    _benchmark("follow", "--rounds 3"),
    _benchmark("large_list"),
    _benchmark("commands", "--rounds 7", "--rounds 3"),
    _benchmark("chart_keys"),
    _benchmark("event_curves", "--rounds 3", is_long=True),
    _benchmark("page_keys"),
    _benchmark("panes", "--rounds 3", "--rows 100 --rounds 1"),
    _benchmark("fleet", "--seconds 20", is_long=True),
    _benchmark("terminal_load", "--seconds 15 --presses 60"),
    _benchmark("open_for_long", is_long=True),
    _benchmark("open_index", "--rounds 3", "--rounds 1", is_long=True),
    _benchmark("verify", "--rounds 3", "--rounds 1 --small 1000"),
    _benchmark("memory", is_long=True),
    _benchmark("state_walk"),
    _benchmark("replica_checksums"),
    _benchmark("save", "--rounds 3", "--megabytes 100 --shared --growth --rounds 1"),
    _benchmark("many_variables", "--variables 1000 5000 --rounds 3"),
    _benchmark("background_save", "--rounds 3"),
    _benchmark("partitioned_save", is_long=True),
    _benchmark("loop_overhead", '--blocks 10 --guard "not_finite loss: pause"'),
    _benchmark("parameter_servers", is_long=True),
    _benchmark("guards", "--noise-steps 200000"),
    _benchmark("restore_in_place", "--ages 3 --megabytes 1 100 500 --rounds 3", is_long=True),
    _benchmark("restart", "--rounds 3", is_long=True),
    _benchmark("idle_file_calls", "--seconds 10 --only local"),
    _benchmark("server_operations", "--settle 45", is_long=True),
    _benchmark("check"),
    _benchmark("year_of_training", "--days 21", is_long=True),
)
"""In this order; those of the app, which scatter most, come first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = {one.name: one for one in BENCHMARKS}
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these benchmarks")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="one round of what takes seconds")
    form.add_argument("--all", action="store_true", help="also those that take minutes each")
    parser.add_argument("--times", type=int, default=1, help="run each so many times (1)")
    parser.add_argument("--output", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--against", type=Path, default=FIGURES, help="compare with this file (those of the docs)"
    )
    parser.add_argument("--publish", action="store_true", help="replace the figures of the docs")
    options = parser.parse_args()
    unknown = set(options.names) - known.keys()
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {[*known]}")
    if options.quick and options.publish:
        parser.error("The quick form has too few rounds to be published.")
    before = read(options.against) if options.against.exists() else None
    chosen = [known[name] for name in options.names] or BENCHMARKS
    if options.quick:
        words = {one.name: one.quick for one in chosen if one.quick is not None}
    else:
        has_long = bool(options.names) or options.all
        words = {one.name: one.words for one in chosen if has_long or not one.is_long}
    found = run(words, before.runs if before else {}, options.times)
    if options.output is not None:
        write(found, options.output)
    if before is not None:
        # Times differ from day to day on a virtual machine: a single round of them tells nothing.
        told = [one for one in found.figures if one.against or not options.quick]
        print("\n".join(changes(before.figures, told)) or "No median changed by a tenth.")
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


def run(
    benchmarks: Mapping[str, Sequence[str]], before: Mapping[str, BenchmarkRun], times: int = 1
) -> Figures:
    """Runs benchmarks, and shows what they print.

    Args:
        benchmarks: The arguments of each, by its name.
        before: The earlier run of each, which tells how long it takes.
        times: How often to run each.
    """
    figures: list[Figure] = []
    runs: dict[str, BenchmarkRun] = {}
    seconds = {
        name: times * before[name].seconds
        for name, words in benchmarks.items()
        if name in before and before[name].words == tuple(words)
    }
    for place, (name, words) in enumerate(benchmarks.items(), 1):
        left = sum(seconds.get(one, 0.0) for one in benchmarks if one not in runs) / 60
        about = f", about {left:.0f} min left" if left >= 1 else ""
        print(f"[{place}/{len(benchmarks)}] {name}{about}", flush=True)
        ran = [run_once(name, words) for _ in range(times)]
        figures += joined([found for _, found in ran])
        each = [one for one, _ in ran]
        runs[name] = msgspec.structs.replace(
            each[0],
            seconds=round(sum(one.seconds for one in each) / times, 1),
            was_busy=any(one.was_busy for one in each),
            has_failed=any(one.has_failed for one in each),
        )
    packages = {one.name.replace("_", "-"): one.version for one in distributions()}
    return Figures(
        machine=f"{os.cpu_count()} × {processor()}",
        versions={"Python": platform.python_version()}
        | {name: packages[name] for name in PACKAGES if name in packages},
        runs=runs,
        figures=figures,
    )


def run_once(name: str, words: Sequence[str]) -> tuple[BenchmarkRun, list[Figure]]:
    """Runs a benchmark once."""
    at, speed = time.time(), additions()
    with tempfile.NamedTemporaryFile() as collected:
        command = [sys.executable, str(PLACE / f"{name}.py"), *words]
        environment = {**os.environ, COLLECTED: collected.name}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        lines = Path(collected.name).read_bytes().splitlines()
    was_busy = "too busy to believe" in done.stderr
    has_failed = bool(done.returncode) and not was_busy
    if has_failed:
        print(done.stderr, file=sys.stderr)
    ran = BenchmarkRun(
        at=at,
        words=tuple(words),
        seconds=round(time.time() - at, 1),
        additions=speed,
        was_busy=was_busy,
        has_failed=has_failed,
    )
    return ran, [msgspec.json.decode(line, type=Figure) for line in lines]


def joined(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Returns the figures of several runs of one benchmark, each with the range of all of them."""
    found: dict[tuple[str, str, float], list[Figure]] = {}
    for figure in itertools.chain.from_iterable(runs):
        found.setdefault(figure.key, []).append(figure)
    return [
        msgspec.structs.replace(
            same[0],
            value=statistics.median(one.value for one in same),
            low=min(one.low for one in same),
            high=max(one.high for one in same),
        )
        for same in found.values()
    ]


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
