"""The command `track`."""

from __future__ import annotations

import csv
import io
import math

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import JsonOption, RunArgument, on_open_run
from tfckpt_tui.cli.output import StepProgress, print_json, print_line, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.services.report import Json, list_checkpoints
from tfckpt_tui.services.tensors.track import TrackedPoint, find_tensor
from tfckpt_tui.services.tensors.track import track as follow


@click.command()
@RunArgument
@click.argument("tensor", metavar="TENSOR")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV to standard output.")
@JsonOption
@on_open_run
def track(run: RunDirectory, tensor: str, as_csv: bool, as_json: bool) -> int:
    """Show norm, mean and update ratio of a tensor over all checkpoints, oldest first.

    TENSOR is a path or name as `inspect` shows it. The update ratio is the norm of the change
    since the nearest ancestor, divided by the norm there. Exits 1 if a checkpoint does not
    have the tensor, or if it cannot be read.
    """
    if as_csv and as_json:
        raise click.UsageError("Give either --csv or --json.")
    checkpoints = list_checkpoints(run)
    tracked = find_tensor(run, checkpoints, tensor)
    progress, points = StepProgress(), []
    try:
        for point in follow(run, checkpoints, tracked):
            points.append(point)
            progress(f"reading: {point.checkpoint.name}")
    finally:
        progress.close()
    if as_json:
        names = {"tensor": tracked.entry.name, "path": tracked.path}
        print_json({**names, "checkpoints": [_data(point) for point in points]})
    elif as_csv:
        _print_csv(points)
    else:
        _print_table(points)
    return int(ExitCode.PROBLEM if any(point.problem for point in points) else ExitCode.DONE)


def _data(point: TrackedPoint) -> Json:
    checkpoint, found = point.checkpoint, point.statistics
    return {
        "name": checkpoint.name,
        "step": checkpoint.step,
        "branch": checkpoint.branch,
        "compared_with": point.before.name if point.before is not None else None,
        "mean": None if found is None else found.mean,
        "deviation": None if found is None else _finite(found.deviation),
        "norm": None if found is None else _finite(found.norm),
        "minimum": None if found is None else found.minimum,
        "maximum": None if found is None else found.maximum,
        "not_finite": None if found is None else found.nan + found.infinite,
        "update": _finite(point.update),
        "update_ratio": point.update_ratio,
        "problem": point.problem,
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _print_csv(points: list[TrackedPoint]) -> None:
    for place, row in enumerate(_data(point) for point in points):
        if place == 0:
            print_line(_csv_line(list(row)))
        print_line(_csv_line(["" if value is None else str(value) for value in row.values()]))


def _csv_line(cells: list[str]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(cells)
    return file.getvalue()


def _print_table(points: list[TrackedPoint]) -> None:
    header = ("NAME", "STEP", "BRANCH", "MEAN", "DEVIATION", "NORM", "UPDATE", "RATIO", "SINCE")
    rows = [
        (
            point.checkpoint.name,
            "?" if point.checkpoint.step is None else str(point.checkpoint.step),
            str(point.checkpoint.branch),
            *_figures(point),
            (point.before.name if point.before is not None else "–") + _remark(point),
        )
        for point in points
    ]
    print_table(header, rows, right={1, 2, 3, 4, 5, 6, 7})


def _figures(point: TrackedPoint) -> tuple[str, ...]:
    found = point.statistics
    if found is None:
        return ("–",) * 5
    numbers = (found.mean, found.deviation, found.norm, point.update, point.update_ratio)
    return tuple("–" if number is None else units.metric(number) for number in numbers)


def _remark(point: TrackedPoint) -> str:
    if point.problem:
        return f"  {point.problem}"
    found = point.statistics
    count = found.nan + found.infinite if found is not None else 0
    return f"  {count:,} not finite" if count else ""
