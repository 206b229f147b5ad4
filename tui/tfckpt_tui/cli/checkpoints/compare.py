"""The command `compare`: options and output."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

import click
import msgspec
from msgspec import UNSET

from tfckpt_trainer.bundle.analysis.compare import TensorChange, TensorComparison, TensorDifference
from tfckpt_trainer.bundle.analysis.statistics import Histogram, Statistics
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_tui.cli.checkpoints.other_files import compare_files
from tfckpt_tui.cli.checkpoints.tensor_output import (
    CHANGES,
    DIFFERENCE_WORDS,
    change_cells,
    change_report,
    compared_report,
    comparison_report,
    difference_counts,
    statistics_report,
    tensor_words,
)
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT_OR_FILE
from tfckpt_tui.cli.completion.tensor_names import TensorName
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_table,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.tensors import ComparedTensor, CompareReport
from tfckpt_tui.services.checkpoints.compare import (
    Comparison,
    MeasuredDifference,
    compare_checkpoints,
    difference_of_each,
    find_differing,
    measure,
    worst_first,
)
from tfckpt_tui.services.checkpoints.look_up import look_up_all
from tfckpt_tui.services.checkpoints.tensor_files import find_file

_MeasuredT = TypeVar("_MeasuredT")

_MOST_PROBLEMS = 5
"""Problems that `compare` prints."""

_WIDTH = 40
"""Longest bar of a histogram, in characters."""


@click.command()
@RunArgument
@click.argument("before", type=CHECKPOINT_OR_FILE, metavar="A")
@click.argument("after", type=CHECKPOINT_OR_FILE, metavar="B")
@click.option(
    "--norms", is_flag=True, help="Read the changed tensors, and print by how much they changed."
)
@click.option("--all", "everything", is_flag=True, help="List equal tensors too.")
@click.option(
    "--histogram",
    "pattern",
    type=TensorName("after"),
    is_flag=False,
    flag_value="*",
    metavar="[TENSOR]",
    help="Read the changed tensors, or those that match, and print histograms of B minus A.",
)
@prints(CompareReport)
@on_open_run
def compare(
    run: RunDirectory,
    before: str,
    after: str,
    norms: bool,
    everything: bool,
    pattern: str | None,
    as_json: bool,
) -> int:
    """Show what changed from checkpoint A to checkpoint B; each is a name or a step.

    A and B can be files of Keras or safetensors in the directory: then all values are read. Tensors
    are compared by path, and with a checkpoint by the variable of the model that they are.

    Without --norms and --histogram only the indexes are read, which is fast for any size. Put
    --histogram last, so that A or B is not taken for its tensor. Exits 1 if A or B cannot be
    restored, or if a tensor is damaged or cannot be read.
    """
    if find_file(run, before) or find_file(run, after):
        if pattern is not None:
            raise click.UsageError("--histogram compares two checkpoints of TensorFlow.")
        return compare_files(run, before, after, norms=norms, everything=everything, json=as_json)
    comparison = compare_checkpoints(run, *look_up_all(run, [before, after]))
    measured, unread = None, dict[str, str]()
    if norms:
        changed = [
            tensor.name
            for tensor in comparison.tensors
            if tensor.difference is TensorDifference.CHANGED
        ]
        read = list(_metered(comparison, changed, measure(run, comparison)))
        measured = {tensor.name: tensor.change for tensor in read if tensor.change is not None}
        unread = {tensor.name: tensor.problem for tensor in read if tensor.problem}
    differences: list[MeasuredDifference] = []
    if pattern is not None:
        names = find_differing(run, comparison, pattern)
        differences = list(_metered(comparison, names, difference_of_each(run, comparison, names)))
    unread |= {
        difference.name: difference.problem for difference in differences if difference.problem
    }
    damage = comparison.damage
    comparison = replace(comparison, damage={**damage, **unread})
    if as_json:
        figures = (
            None
            if pattern is None
            else {difference.name: difference.statistics for difference in differences}
        )
        print_json(_comparison_report(comparison, measured, figures))
    else:
        _print_comparison(comparison, measured, everything, unread.keys() - damage.keys())
        _print_unread(unread if pattern is None else {})
    if pattern is not None and not as_json:
        print_line()
        _print_differences(comparison, differences)
    return int(ExitCode.PROBLEM if comparison.problems or comparison.damage else ExitCode.DONE)


def _metered(
    comparison: Comparison, names: Sequence[str], work: Iterator[_MeasuredT]
) -> Iterator[_MeasuredT]:
    """Shows progress while tensors are read from both checkpoints, in the order of their names."""
    sizes = [
        2 * comparison.variables[name].size if name in comparison.variables else 0 for name in names
    ]
    total, meter = sum(sizes), ReadProgress("reading")
    try:
        for done, measured in zip(accumulate(sizes), work, strict=True):
            meter(done, total)
            yield measured
    finally:
        meter.close()


def _print_comparison(
    comparison: Comparison,
    measured: dict[str, TensorChange] | None,
    everything: bool,
    unread: Collection[str],
) -> None:
    print_line(
        f"{comparison.before.name} → {comparison.after.name}: {difference_counts(comparison.count)}"
    )
    for problem in comparison.problems:
        print_line(f"problem: {problem}")
    for name, (before, after) in comparison.hyperparameters.items():
        print_line(f"{clean(name)}: {_value(before)} → {_value(after)}")
    shown = [
        tensor
        for tensor in comparison.tensors
        if everything
        or tensor.difference is not TensorDifference.EQUAL
        or tensor.name in comparison.damage
    ]
    if measured is not None:
        shown.sort(key=lambda tensor: worst_first(comparison.damage, measured, tensor))
    header = ["TENSOR", "DIFFERENCE", "BEFORE", "AFTER"]
    header += CHANGES if measured is not None else []
    rows = [
        [
            comparison.path(tensor.name),
            _difference_words(comparison, tensor, tensor.name in unread),
            tensor_words(tensor.before),
            tensor_words(tensor.after),
            *(change_cells(measured.get(tensor.name)) if measured is not None else ()),
        ]
        for tensor in shown
    ]
    if rows:
        print_table(header, rows, right={4, 5, 6})


def _value(hyperparameter: float | None) -> str:
    return "–" if hyperparameter is None else number(hyperparameter)


def _print_unread(unread: Mapping[str, str]) -> None:
    """Prints why tensors could not be read; a histogram says so in its place."""
    problems = list(dict.fromkeys(unread.values()))
    for problem in problems[:_MOST_PROBLEMS]:
        print_message(problem)
    if len(problems) > _MOST_PROBLEMS:
        print_message(f"{len(problems) - _MOST_PROBLEMS} more tensors could not be read.")


def _difference_words(comparison: Comparison, tensor: TensorComparison, is_unread: bool) -> str:
    parts = " (saved in other parts)" if tensor.unknown else ""
    damage = " (damaged)" if tensor.name in comparison.damage else ""
    return DIFFERENCE_WORDS[tensor.difference] + parts + (" (not read)" if is_unread else damage)


def _comparison_report(
    comparison: Comparison,
    measured: Mapping[str, TensorChange] | None,
    figures: Mapping[str, Statistics | None] | None,
) -> CompareReport:
    def tensor(compared: TensorComparison) -> ComparedTensor:
        return msgspec.structs.replace(
            compared_report(
                compared, comparison.path(compared.name), comparison.damage.get(compared.name, "")
            ),
            change=UNSET if measured is None else change_report(measured.get(compared.name)),
            difference_statistics=(
                UNSET if figures is None else statistics_report(figures.get(compared.name))
            ),
        )

    tensors = [tensor(compared) for compared in comparison.tensors]
    report = comparison_report(
        comparison.before.name, comparison.after.name, comparison.problems, tensors
    )
    return msgspec.structs.replace(report, hyperparameters=comparison.hyperparameters)


def _print_differences(comparison: Comparison, differences: Sequence[MeasuredDifference]) -> None:
    """Prints the statistics of the differences, each with a histogram."""
    print_line(f"{comparison.after.name} minus {comparison.before.name}:")
    for tensor in differences:
        print_line()
        path = comparison.path(tensor.name)
        if tensor.statistics is None:
            print_line(f"{path}  {tensor.problem}")
            continue
        print_line(f"{path}  {_summary(tensor.statistics)}")
        if tensor.statistics.histogram is not None:
            _print_bars(tensor.statistics.histogram)


def _summary(statistics: Statistics) -> str:
    parts = [units.count(statistics.elements, "element"), f"{statistics.zeros:,} equal"]
    if statistics.nan + statistics.infinite:
        parts.append(f"{statistics.nan + statistics.infinite:,} not finite")
    if statistics.mean is not None and statistics.deviation is not None:
        parts.append(f"mean {units.metric(statistics.mean)}")
        parts.append(f"deviation {units.metric(statistics.deviation)}")
    return ", ".join([*parts, f"norm {units.metric(statistics.norm)}"])


def _print_bars(histogram: Histogram) -> None:
    width = (histogram.high - histogram.low) / len(histogram.counts)
    places = range(len(histogram.counts))
    edges = _as_texts([*(histogram.low + place * width for place in places), histogram.high])
    room, most = max(map(len, edges)), max(histogram.counts)
    for place, count in enumerate(histogram.counts):
        # A bin with few elements still gets the smallest bar.
        bar = "#" * math.ceil(count / most * _WIDTH)
        ends = f"{edges[place]:>{room}} to {edges[place + 1]:>{room}}"
        print_line(f"  {ends}  {bar:<{_WIDTH}}  {count:,}".rstrip())


def _as_texts(edges: Sequence[float]) -> list[str]:
    """Returns the edges with as many digits as it takes to tell them apart."""
    texts = [units.metric(edge) for edge in edges]
    for digits in (8, 12, 17):
        if len(set(texts)) < len(set(edges)):
            texts = [f"{edge:.{digits}g}" for edge in edges]
    return texts
