"""The command `metrics`: the numbers that a run reported, for other programs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache

import click

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.charting.quantities import QUANTITIES
from tfckpt_tui.cli.main import LogdirOption, RunArgument, ToolCommand, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_message
from tfckpt_tui.formats.text import clean, csv_line
from tfckpt_tui.formats.thinned_series import thinned_words
from tfckpt_tui.reports.base import Report
from tfckpt_tui.services.metrics.metric_tail import MOST_FILES, MetricTail, has_events_alone

FOLLOW_SECONDS = 0.5

_WHOLE = 1 << 62
"""Bytes: more than any series has."""

_NAMED = 10
"""Metrics that are named where none was meant."""

_FIELDS = tuple(quantity.field for quantity in QUANTITIES)
"""What a point has beside the metrics of the script."""


class MetricPoint(Report, frozen=True, kw_only=True):
    """What training reported after a step.

    Attributes:
        at: When.
        step: The step.
        branch: Its branch. After a restore, smaller steps follow larger ones, on another branch.
        metrics: The values by name, with `examples_per_second` and `step_seconds`; null for NaN
            and infinity.
    """

    at: float
    step: int
    branch: int
    metrics: dict[str, float | None]


@click.command(cls=ToolCommand, heading="Look at a run")
@RunArgument
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="GLOB",
    help="Only metrics with such a name, for example 'val_*'; may be given several times.",
)
@click.option(
    "--branch",
    "branches",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Only this branch; may be given several times.",
)
@LogdirOption
@click.option("--csv", is_flag=True, expose_value=False, help="Print CSV, as without an option.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print JSON, a line for each point.")
@click.option("--follow", "-f", is_flag=True, help="Print new values until ctrl+c.")
@prints(MetricPoint)
@on_open_run
def metrics(
    run: RunDirectory,
    names: Sequence[str],
    branches: Collection[int],
    follow: bool,
    as_lines: bool,
    as_json: bool,
) -> None:
    """Print the metrics that a run reported, as CSV with one row for each value.

    If none were reported to this library, they come from TensorBoard event files and files of
    Keras's CSVLogger. Times are seconds since 1970. With --json, each line is the document of one
    point.
    """
    with suppress(FileNotFoundError), open_plain(run.series):
        # Otherwise, the series says that it is closed, or no file.
        pass
    as_json |= as_lines
    tail = MetricTail(run, first=_WHOLE, repeats=False)
    shown = _ShownNames(names)
    if not as_json:
        sys.stdout.write("at,step,branch,name,value\n")
    has_any, known = False, set[str]()
    while True:
        points = tail.read_new()
        known.update(clean(name) for point in points for name in point.metrics)
        for point in _chosen(points, shown, branches):
            has_any = True
            if as_json:
                print_json(point, one_line=True)
            else:
                sys.stdout.writelines(_rows(point))
        if tail.is_behind:
            continue
        if not follow:
            break
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
    if not has_any and known:
        named = f"The metrics are: {few_of(sorted(known), _NAMED)}."
        raise UsageError(f"{run.root} has no such metrics. {named}")
    if not has_any and has_events_alone(run):
        raise UsageError(
            f"{run.root} has event files without a scalar. `tf.summary.scalar`, or the callback "
            "`keras.callbacks.TensorBoard` of Keras, writes scalars. Images, histograms and texts "
            f"are shown by `tfckpt-tui tensorboard {run.shell_word}`."
        )
    if not has_any:
        raise UsageError(
            f"{run.root} has no metrics. A script reports them by run.report, or writes "
            "TensorBoard event files there or in --logdir."
        )
    thinned = tail.thinned
    if thinned is not None:
        print_message(thinned_words(thinned.before, thinned.width))
    if not tail.has_all_files:
        print_message(
            f"Only the first {MOST_FILES} event files were read. Name the others by --logdir."
        )


def _chosen(
    points: Sequence[SeriesPoint], shown: dict[str, str | None], branches: Collection[int]
) -> Iterator[MetricPoint]:
    for point in points:
        if branches and point.branch not in branches:
            continue
        fields = {name: getattr(point, name) for name in _FIELDS}
        own = {name: value for name, value in fields.items() if value is not None}
        found = {
            text: value
            for name, value in {**point.metrics, **own}.items()
            if (text := shown[name]) is not None
        }
        if found:
            yield MetricPoint(at=point.at, step=point.step, branch=point.branch, metrics=found)


class _ShownNames(dict[str, str | None]):
    """The names of metrics, each cleaned once; None if the user does not mean it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self._patterns = patterns

    def __missing__(self, name: str) -> str | None:
        is_meant = not self._patterns or any(fnmatchcase(name, one) for one in self._patterns)
        self[name] = clean(name) if is_meant else None
        return self[name]


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return csv_line((name,))


def _rows(point: MetricPoint) -> Iterator[str]:
    begin = f"{point.at:.3f},{point.step},{point.branch}"
    for name, value in point.metrics.items():
        yield f"{begin},{_quoted(name)},{math.nan if value is None else value!r}\n"
