"""Draws distributions as a heat map, with the axes of the line charts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.app.widgets.charts.braille import (
    AxisScale,
    Mark,
    Plot,
    axis_cells,
    empty_plot,
    roomy,
    x_labels,
)
from tfckpt_tui.charting.axis import Labels
from tfckpt_tui.charting.distributions import Distribution, shades_of
from tfckpt_tui.charting.value_axis import apart, fit_axis
from tfckpt_tui.charting.view import View

_SHADES = " ░▒▓█"


def heat_map(
    distributions: Sequence[Distribution],
    marks: Sequence[Mark],
    width: int,
    height: int,
    view: View,
    labels: Labels,
) -> Plot:
    """Draws a column for each distribution, which reaches to the next one.

    Args:
        distributions: What is drawn.
        marks: Marks on the x axis.
        width: Cells, including axes.
        height: Lines, including axes.
        view: Has the x axis and its visible part.
        labels: Makes the labels of the x axis.

    Returns:
        A plot of `height` lines of `width` cells.
    """
    placed = sorted(
        ((x, one) for one in distributions if (x := view.x_of_event(one.point)) is not None),
        key=lambda pair: pair[0],
    )
    window = view.window
    if window is not None:
        placed = [pair for pair in placed if window.contains(pair[0])]
    rows = height - 2
    if not placed or rows < 1 or width < 12:
        return empty_plot(width, height, "" if placed else "no data yet")
    low = min(one.low for _, one in placed)
    high = max(one.high for _, one in placed)
    y_axis = fit_axis(*apart(low, high), rows)
    columns = width - max(map(len, y_axis.labels.values())) - 2
    if columns < 4:
        return empty_plot(width, height, "")
    xs = [x for x, _ in placed]
    scale = roomy(xs[0], xs[-1]) if window is None else AxisScale(window.low, window.high)
    # Halves, because the difference of two values may be too large for a number.
    half = y_axis.high / 2 - y_axis.low / 2
    edges = [y_axis.low + 2 * half * (row / rows) for row in range(rows + 1)]
    edges[-1] += abs(edges[-1]) * 1e-9
    cells: list[list[Span]] = [[(" ", "")] * columns for _ in range(rows)]
    starts = [scale.place(x, columns) for x in xs]
    usual = max((after - start for start, after in pairwise(starts)), default=2)
    ends = [*starts[1:], min(columns, starts[-1] + max(2, usual))]
    for (_, one), start, end in zip(placed, starts, ends, strict=True):
        for row, shade in enumerate(reversed(shades_of(one, edges))):
            for column in range(start, max(end, start + 1)):
                cells[row][column] = (_SHADES[shade], "bar" if shade else "")
    label_width = width - columns - 2
    return Plot(
        tuple(map(tuple, cells)),
        y_axis.labels,
        axis_cells(marks, scale, columns),
        x_labels(labels, scale, label_width, columns),
        scale,
    )
