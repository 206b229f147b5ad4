"""Prints the difference of each tensor as a histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfckpt_trainer.bundle.analysis.statistics import Histogram, Statistics
from tfckpt_tui.cli.output import print_line
from tfckpt_tui.formats import units
from tfckpt_tui.services.compare import Comparison, MeasuredDifference

_WIDTH = 40


def print_differences(found: Comparison, differences: Sequence[MeasuredDifference]) -> None:
    """Prints the statistics of the differences, each with a histogram."""
    print_line(f"{found.after.name} minus {found.before.name}:")
    for one in differences:
        print_line()
        path = found.path(one.name)
        if one.statistics is None:
            print_line(f"{path}  {one.problem}")
            continue
        print_line(f"{path}  {_summary(one.statistics)}")
        if one.statistics.histogram is not None:
            _print_bars(one.statistics.histogram)


def _summary(found: Statistics) -> str:
    parts = [units.count(found.elements, "element"), f"{found.zeros:,} equal"]
    if found.nan + found.infinite:
        parts.append(f"{found.nan + found.infinite:,} not finite")
    if found.mean is not None and found.deviation is not None:
        parts.append(f"mean {units.metric(found.mean)}")
        parts.append(f"deviation {units.metric(found.deviation)}")
    return ", ".join([*parts, f"norm {units.metric(found.norm)}"])


def _print_bars(found: Histogram) -> None:
    width = (found.high - found.low) / len(found.counts)
    places = range(len(found.counts))
    edges = _as_texts([*(found.low + place * width for place in places), found.high])
    room, most = max(map(len, edges)), max(found.counts)
    for place, count in enumerate(found.counts):
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
