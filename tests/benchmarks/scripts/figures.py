"""Figures of a benchmark: printed as lines, and written as JSON for whoever collects them."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

COLLECTED = "TFCKPT_FIGURES"
"""The variable that names the file to which figures are appended, a line of JSON each."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured once or several times.

    Attributes:
        benchmark: The name of the benchmark.
        what: What was measured.
        value: The median.
        low: The lowest.
        high: The highest.
        unit: The unit of these; `times` for a ratio to `against`.
        against: What it is compared with, in the same run; empty for an absolute figure.
        along: What `at` counts, such as `checkpoints`; empty for a figure at one size.
        at: The size at which it was measured.
    """

    benchmark: str
    what: str
    value: float
    low: float
    high: float
    unit: str
    against: str = ""
    along: str = ""
    at: float = 0.0

    @property
    def key(self) -> tuple[str, str, float]:
        """What tells it from the other figures of a collection."""
        return self.benchmark, self.what, self.at

    @property
    def words(self) -> str:
        """The figure in words."""
        size = f", {self.at:,g} {self.along}" if self.along else ""
        spread = f" ({number(self.low)} to {number(self.high)})" if self.low < self.high else ""
        against = f" {self.against}" if self.against else ""
        return f"{self.what}{size}: {number(self.value)} {self.unit}{against}{spread}"


class BenchmarkRun(msgspec.Struct, frozen=True, kw_only=True):
    """When and in what conditions a benchmark ran.

    Attributes:
        at: When it began, in seconds since the epoch.
        words: Its arguments.
        seconds: How long it took.
        additions: How fast one core was just before: millions of additions a second in Python;
            None if that was not measured.
        was_busy: Whether other processes used the machine.
        has_failed: Whether it failed.
    """

    at: float
    words: tuple[str, ...] = ()
    seconds: float = 0.0
    additions: float | None
    was_busy: bool = False
    has_failed: bool = False


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of some benchmarks, on one machine.

    Attributes:
        machine: Cores and processor.
        versions: Of Python and of the packages that matter, by name.
        runs: The runs of the benchmarks, by their names.
        figures: In the order in which they were measured.
    """

    machine: str
    versions: dict[str, str]
    runs: dict[str, BenchmarkRun]
    figures: list[Figure]

    @property
    def busy(self) -> list[str]:
        """Benchmarks during which other processes used the machine."""
        return [name for name, run in self.runs.items() if run.was_busy]

    @property
    def failed(self) -> list[str]:
        """Benchmarks that failed."""
        return [name for name, run in self.runs.items() if run.has_failed]


def read(path: Path) -> Figures:
    """Reads the figures of an earlier run."""
    return msgspec.json.decode(path.read_bytes(), type=Figures)


def write(figures: Figures, path: Path) -> None:
    """Writes the figures of a run."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")


def number(value: float) -> str:
    """Returns a value with three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def report(
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    against: str = "",
    along: str = "",
    at: float = 0.0,
) -> None:
    """Prints a figure, and appends it to the file that `TFCKPT_FIGURES` names.

    Args:
        what: What was measured.
        values: At least one value.
        unit: Their unit.
        against: What they are compared with.
        along: What `at` counts.
        at: The size.
    """
    figure = Figure(
        benchmark=Path(sys.argv[0]).stem,
        what=what,
        value=statistics.median(values),
        low=min(values),
        high=max(values),
        unit=unit,
        against=against,
        along=along,
        at=at,
    )
    print(figure.words, flush=True)
    place = os.environ.get(COLLECTED)
    if place:
        with open(place, "ab") as file:
            file.write(msgspec.json.encode(figure) + b"\n")


def report_ratio(
    what: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    against: str,
    *,
    along: str = "",
    at: float = 0.0,
) -> None:
    """Reports how many times longer something took than a reference.

    Args:
        what: What was measured.
        ours: Its values.
        theirs: Those of the reference, each measured just before or after.
        against: The reference.
        along: What `at` counts.
        at: The size.
    """
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    report(what, ratios, "times", against=against, along=along, at=at)
