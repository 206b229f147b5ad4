"""The command `track`."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.completion.tensor_names import TensorName
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import StepProgress, print_json, print_line, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.reports.tensors import TrackReport
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.checkpoints.track import (
    TrackedPoint,
    csv_lines,
    find_tensor,
    point_report,
)
from tfckpt_tui.services.checkpoints.track import track as follow


@click.command()
@RunArgument
@click.argument("tensor", type=TensorName(), metavar="TENSOR")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV to standard output.")
@prints(TrackReport)
@on_open_run
def track(run: RunDirectory, tensor: str, as_csv: bool, as_json: bool) -> int:
    """Show norm, mean and update ratio of a tensor over all checkpoints, oldest first.

    TENSOR is a path or name as `inspect` shows it. The update ratio is the norm of the change
    since the nearest ancestor, divided by the norm at that ancestor. Exits 1 if a checkpoint
    does not have the tensor, or if it cannot be read.
    """
    if as_csv and as_json:
        raise click.UsageError("Give either --csv or --json.")
    checkpoints = list_checkpoints(run)
    source, tracked = find_tensor(run, checkpoints, tensor)
    progress, points = StepProgress(), []
    try:
        for point in follow(run, checkpoints, source, tracked):
            points.append(point)
            progress(f"reading: {point.checkpoint.name}")
    finally:
        progress.close()
    if as_json:
        print_json(
            TrackReport(
                tensor=tracked.entry.name,
                path=tracked.path,
                checkpoints=tuple(map(point_report, points)),
            )
        )
    elif as_csv:
        for row in csv_lines(points):
            print_line(row)
    else:
        _print_table(points)
    return int(ExitCode.PROBLEM if any(point.problem for point in points) else ExitCode.DONE)


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
    figures = point.statistics
    if figures is None:
        return ("–",) * 5
    numbers = (figures.mean, figures.deviation, figures.norm, point.update, point.update_ratio)
    return tuple("–" if number is None else units.metric(number) for number in numbers)


def _remark(point: TrackedPoint) -> str:
    if point.problem:
        return f"  {point.problem}"
    return f"  {point.not_finite:,} not finite" if point.not_finite else ""
