"""Draws line charts with braille dots, two by four per cell, as styled lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tfckpt_tui.app.widgets.base.styled_text import Line, Span, padded
from tfckpt_tui.app.widgets.charts.axis import Labels, Window, step_labels
from tfckpt_tui.app.widgets.charts.value_axis import fit_axis
from tfckpt_tui.formats import units

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BRAILLE = 0x2800
_POINT = "•"
_ROOM_PARTS = 25
_LEAST_WITH_OUTLIERS = 20
_OUTLIER_PARTS = 20
"""One in so many of the values may be cut off at each end."""
_AIR = 0.2
"""Room beyond the values that are not cut off, as a part of half their range."""
_LABEL_WIDTH = 9
"""Columns for each label of the x axis."""


@dataclass(frozen=True)
class Curve:
    """One curve.

    Attributes:
        points: Pairs of x and y, from left to right. Values that are not finite are drawn as gaps
            with a mark.
        style: Name of the style of its dots.
    """

    points: tuple[tuple[float, float | None], ...]
    style: str


@dataclass(frozen=True)
class Mark:
    """A glyph on the x axis: a checkpoint, a restore, a restart."""

    x: float
    glyph: str
    style: str


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    def place(self, value: float, size: int) -> int:
        """Returns the position of `value` among `size` dots, clamped."""
        if self.high <= self.low:
            return (size - 1) // 2
        share = value / self._span - self.low / self._span
        return min(size - 1, max(0, round(share * (size - 1))))

    @property
    def _span(self) -> float:
        return max(self.high - self.low, 1e-300)


def plot(
    curves: Sequence[Curve],
    marks: Sequence[Mark],
    width: int,
    height: int,
    *,
    from_zero: bool = False,
    window: Window | None = None,
    labels: Labels = step_labels,
    show: Callable[[float | None], str] = units.metric,
) -> list[Line]:
    """Draws curves and their axes.

    Args:
        curves: Curves; later ones are drawn over earlier ones.
        marks: Marks on the x axis; later ones are drawn over earlier ones.
        width: Cells, including axes.
        height: Lines, including axes.
        from_zero: Whether the y axis begins at 0.
        window: Visible part of the x axis; by default all of it.
        labels: Makes the labels of the x axis.
        show: Formats values that are cut off.

    Returns:
        `height` lines of `width` cells. If there is no data, they contain a message.
    """
    if window is not None:
        curves = [_cut(curve, window) for curve in curves]
    xs = [x for curve in curves for x, _ in curve.points if math.isfinite(x)]
    ys = [y for curve in curves for _, y in curve.points if y is not None and math.isfinite(y)]
    rows = height - 2
    if not xs or rows < 1 or width < 12:
        return _empty(width, height, "no data yet" if not xs else "")
    low, high = _without_outliers(ys, from_zero=from_zero)
    y_axis = fit_axis(*_bounds([low, high] if ys else []), rows)
    # Rounding may leave the ends just outside of the axis.
    y_scale = _Scale(min(low, y_axis.low), max(high, y_axis.high))
    numbers = y_axis.labels
    label_width = max(len(label) for label in numbers.values())
    columns = width - label_width - 2
    if columns < 4:
        return _empty(width, height, "")
    x_scale = _roomy(min(xs), max(xs)) if window is None else _Scale(window.low, window.high)
    grid = _Grid(columns, rows)
    for curve in curves:
        _draw(grid, curve, x_scale, y_scale)
    if ys:
        if max(ys) > y_scale.high:
            _tell_cut(grid, 0, f"▲ {show(max(ys))}")
        if min(ys) < y_scale.low:
            _tell_cut(grid, rows - 1, f"▼ {show(min(ys))}")
    lines = [
        Line(
            (
                (padded(numbers.get(row, ""), label_width, ">"), "muted"),
                ("┤" if row in numbers else "│", "border"),
                *grid.row(row),
                (" ", ""),
            )
        )
        for row in range(rows)
    ]
    lines.append(_axis(marks, x_scale, label_width, columns))
    lines.append(_x_labels(labels, x_scale, label_width, columns))
    return lines


def _cut(curve: Curve, window: Window) -> Curve:
    return Curve(tuple(point for point in curve.points if window.contains(point[0])), curve.style)


class _Grid:
    """Cells of dots; the curve that was drawn last gives a cell its style."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]
        self._glyphs: dict[tuple[int, int], Span] = {}

    def dot(self, x: int, y: int, style: str) -> None:
        """Sets dot (x, y); y counts from the top."""
        column, row = x // 2, y // 4
        if self._styles[row][column] not in {"", style}:
            self._bits[row][column] = 0
        self._bits[row][column] |= _BITS[x % 2][y % 4]
        self._styles[row][column] = style

    def line(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """Draws a straight line of dots."""
        (x0, y0), (x1, y1) = start, end
        length = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(length + 1):
            self.dot(round(x0 + (x1 - x0) * i / length), round(y0 + (y1 - y0) * i / length), style)

    def glyph(self, column: int, row: int, glyph: str, style: str) -> None:
        """Puts a character over a cell."""
        self._glyphs[row, column] = (glyph, style)

    def row(self, row: int) -> list[Span]:
        """Returns one line, neighbours of one style joined."""
        spans: list[Span] = []
        for column in range(self.columns):
            bits = self._bits[row][column]
            cell = (chr(_BRAILLE + bits), self._styles[row][column]) if bits else (" ", "")
            text, style = self._glyphs.get((row, column), cell)
            if spans and spans[-1][1] == style:
                spans[-1] = (spans[-1][0] + text, style)
            else:
                spans.append((text, style))
        return spans


def _draw(grid: _Grid, curve: Curve, x_scale: _Scale, y_scale: _Scale) -> None:
    width, height = 2 * grid.columns, 4 * grid.rows
    stroke: list[tuple[int, int]] = []
    was_cut = False
    for x, y in _thinned(curve, x_scale, width):
        place = x_scale.place(x, width)
        if y is None or not math.isfinite(y):
            grid.glyph(place // 2, grid.rows - 1, "✗", "bad")
            _draw_stroke(grid, stroke, curve.style)
            stroke = []
            continue
        is_cut = not y_scale.low <= y <= y_scale.high
        if is_cut and was_cut:
            # A line along the edge would show values that nobody reported.
            _draw_stroke(grid, stroke, curve.style)
            stroke = []
        was_cut = is_cut
        stroke.append((place, height - 1 - y_scale.place(y, height)))
    _draw_stroke(grid, stroke, curve.style)


def _draw_stroke(grid: _Grid, points: Sequence[tuple[int, int]], style: str) -> None:
    """Draws points without a gap between them; a single one is larger than a dot."""
    if len(points) == 1:
        x, y = points[0]
        grid.glyph(x // 2, y // 4, _POINT, style)
    for start, end in pairwise(points):
        grid.line(start, end, style)


def _thinned(curve: Curve, x_scale: _Scale, width: int) -> list[tuple[float, float | None]]:
    """Keeps at most the first, lowest, highest and last point of each column of dots."""
    if len(curve.points) <= 2 * width:
        return list(curve.points)
    columns: dict[int, list[tuple[float, float | None]]] = {}
    for point in curve.points:
        columns.setdefault(x_scale.place(point[0], width), []).append(point)
    kept: list[tuple[float, float | None]] = []
    for points in columns.values():
        finite = [p for p in points if p[1] is not None and math.isfinite(p[1])]
        broken = [p for p in points if p not in finite] if len(finite) < len(points) else []
        if finite:
            low = min(finite, key=lambda p: p[1] or 0.0)
            high = max(finite, key=lambda p: p[1] or 0.0)
            wanted = {id(p) for p in (finite[0], low, high, finite[-1], *broken[:1])}
            kept.extend(p for p in points if id(p) in wanted)
        else:
            kept.append(points[0])
    return kept


def _roomy(low: float, high: float) -> _Scale:
    """Returns an x axis with some room at its right end.

    New points fit into the room, so the whole chart is not redrawn, and sent over SSH, for each.
    """
    room = units.nice_step((high - low) / _ROOM_PARTS)
    if not 0 < room < math.inf:
        return _Scale(low, high)
    return _Scale(low, math.ceil(high / room + 0.1) * room)


def _without_outliers(ys: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """Returns the ends of the values to show, without a few that would flatten the others.

    That is how a first loss, or a first step that is traced, compares with all that follow.
    """
    ends = sorted([*ys, 0.0] if from_zero else ys)
    if len(ys) < _LEAST_WITH_OUTLIERS:
        return (ends[0], ends[-1]) if ends else (0.0, 0.0)
    cut = len(ends) // _OUTLIER_PARTS
    low, high = (0.0 if from_zero else ends[cut]), ends[-1 - cut]
    # Halves, because the difference of two values may be too large for a number.
    half = high / 2 - low / 2
    air = half * _AIR
    top = high + air if ends[-1] / 2 - high / 2 > half > 0 else ends[-1]
    bottom = low - air if low / 2 - ends[0] / 2 > half > 0 else ends[0]
    return bottom, top


def _tell_cut(grid: _Grid, row: int, words: str) -> None:
    """Shows at the end of a line how far the values beyond it go."""
    if len(words) <= grid.columns:
        for place, character in enumerate(words, grid.columns - len(words)):
            grid.glyph(place, row, character, "warn")


def _bounds(ys: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of the y axis, which always differ."""
    if not ys:
        return 0.0, 1.0
    low, high = min(ys), max(ys)
    if low == high:
        air = abs(low) * 0.1 or 1.0
        return max(low - air, -1.7e308), min(high + air, 1.7e308)
    return low, high


def _axis(marks: Sequence[Mark], scale: _Scale, label_width: int, columns: int) -> Line:
    cells: list[Span] = [("─", "border")] * columns
    for mark in marks:
        if scale.low <= mark.x <= scale.high:
            cells[scale.place(mark.x, 2 * columns) // 2] = (mark.glyph, mark.style)
    spans: list[Span] = [(" " * label_width, ""), ("└", "border")]
    for text, style in cells:
        if spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    return Line((*spans, (" ", "")))


def _x_labels(labels: Labels, scale: _Scale, label_width: int, columns: int) -> Line:
    """Returns evenly spaced labels, as many as fit beside each other."""
    left, width = label_width + 1, label_width + columns + 2
    usual = max(1, columns // _LABEL_WIDTH)
    text = ""
    for most in (*range(usual, 0, -1), *range(usual + 1, usual + 4)):
        places = [
            (left + scale.place(value, 2 * columns) // 2, label)
            for value, label in labels(scale.low, scale.high, most)
        ]
        row = _laid_out(places, left, width)
        if row is not None and len(places) > 1:
            text = row
            break
        text = text or row or ""
    return Line(((padded(text, width), "muted"),))


def _laid_out(labels: Sequence[tuple[int, str]], left: int, width: int) -> str | None:
    """Returns labels centred at their columns from `left` on; None if they do not fit."""
    if not labels:
        return None
    text = " " * left
    for column, label in labels:
        start = min(max(left, column - len(label) // 2), width - len(label))
        if start < len(text) + bool(text.strip()):
            return None
        text += " " * (start - len(text)) + label
    return text


def _empty(width: int, height: int, word: str) -> list[Line]:
    middle = height // 2
    gap = " " * max(0, (width - len(word)) // 2)
    return [Line(((gap + word, "muted"),)) if row == middle else Line() for row in range(height)]
