"""Draws line charts with braille dots, two by four per cell, as styled lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, padded
from tfckpt_tui.charting.axis import Labels, Window, step_labels
from tfckpt_tui.charting.curves import Curve, Place, thin
from tfckpt_tui.charting.value_axis import apart, fit_axis, fit_log_axis, value_range
from tfckpt_tui.formats import units

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_RUNS = [
    [[sum(bits[first : last + 1]) for last in range(4)] for first in range(4)] for bits in _BITS
]
"""The dots from a place to another in the left and the right column of a cell."""
_BRAILLE = 0x2800
_POINT = "•"
_CURSOR, _EDGE, _SELECTED = ("│", "label"), ("┊", "accent"), "accent"
_ROOM_PARTS = 25
_LABEL_WIDTH = 9
"""Columns for each label of the x axis."""


class Mark(msgspec.Struct, frozen=True):
    """A glyph on the x axis: a checkpoint, a restore, a restart."""

    x: float
    glyph: str
    style: str


class AxisScale(msgspec.Struct, frozen=True):
    """Positions on an axis that ends at two values."""

    low: float
    high: float

    def place(self, value: float, size: int) -> int:
        """Returns the position of `value` among `size` dots, clamped."""
        return self.placer(size)(value)

    def placer(self, size: int) -> Callable[[float], int]:
        """Returns what `place` does, for many values."""
        last = size - 1
        if self.high <= self.low:
            return lambda _: last // 2
        span = max(self.high - self.low, 1e-300)
        start = self.low / span

        def place(value: float) -> int:
            position = round((value / span - start) * last)
            # Several times as quick as `min` and `max`.
            return 0 if position < 0 else last if position > last else position

        return place

    def value(self, place: int, size: int) -> float:
        """Returns the value of a position among `size` dots."""
        return self.low + (self.high - self.low) * place / max(1, size - 1)

    def contains(self, value: float) -> bool:
        """Whether a value is on the scale."""
        return self.low <= value <= self.high


class Plot(msgspec.Struct, frozen=True):
    """A drawn chart, on which a cursor and a selection can be shown.

    Attributes:
        rows: The cells of the drawing, one tuple for each line.
        numbers: Labels of the y axis, by line.
        axis: The cells of the x axis.
        labels: The line of its labels.
        scale: The ends of the x axis.
        message: Lines that are shown instead if there is nothing to draw.
    """

    rows: tuple[tuple[Span, ...], ...] = ()
    numbers: Mapping[int, str] = {}
    axis: tuple[Span, ...] = ()
    labels: StyledLine = StyledLine()
    scale: AxisScale = AxisScale(0.0, 0.0)
    message: tuple[StyledLine, ...] | None = None

    @property
    def left(self) -> int:
        """Cells left of the drawing."""
        return max(map(len, self.numbers.values()), default=-1) + 1

    @property
    def column_width(self) -> float:
        """The length of the x axis in a column."""
        return (self.scale.high - self.scale.low) / max(1, len(self.axis) - 1)

    def x_at(self, column: int) -> float | None:
        """Returns the position on the x axis of a cell; None outside of the drawing."""
        place = column - self.left
        return self.scale.value(place, len(self.axis)) if 0 <= place < len(self.axis) else None

    def column_of(self, x: float) -> int | None:
        """Returns the column of the drawing at a position; None if it is not visible."""
        columns = len(self.axis)
        return self.scale.place(x, 2 * columns) // 2 if self.scale.contains(x) and columns else None

    def lines(
        self, cursor: float | None = None, selection: tuple[float, float] | None = None
    ) -> list[StyledLine]:
        """Returns the lines.

        Args:
            cursor: Position of a vertical line.
            selection: The ends of a part of the x axis to show as selected.
        """
        if self.message is not None:
            return list(self.message)
        over: dict[int, Span] = {}
        axis = self.axis
        if selection is not None:
            low, high = (min(max(x, self.scale.low), self.scale.high) for x in sorted(selection))
            first, last = self.column_of(low), self.column_of(high)
            assert first is not None
            assert last is not None
            over |= dict.fromkeys((first, last), _EDGE)
            chosen = tuple(("━", _SELECTED) if c[0] == "─" else c for c in axis[first : last + 1])
            axis = (*axis[:first], *chosen, *axis[last + 1 :])
        column = None if cursor is None else self.column_of(cursor)
        if column is not None:
            over[column] = _CURSOR
        width = self.left - 1
        lines = [
            StyledLine(
                (
                    (padded(self.numbers.get(row, ""), width, ">"), "muted"),
                    ("┤" if row in self.numbers else "│", "border"),
                    *_joined(_overlaid(cells, over)),
                    (" ", ""),
                )
            )
            for row, cells in enumerate(self.rows)
        ]
        lines.append(StyledLine(((" " * width, ""), ("└", "border"), *_joined(axis), (" ", ""))))
        lines.append(self.labels)
        return lines


def _overlaid(cells: Sequence[Span], over: Mapping[int, Span]) -> Sequence[Span]:
    """Returns cells with others over them; dots stay, in the other style."""
    if not over:
        return cells
    shown = list(cells)
    for column, (glyph, style) in over.items():
        text = shown[column][0]
        shown[column] = (glyph, style) if text == " " else (text, "strong")
    return shown


def _joined(cells: Sequence[Span]) -> list[Span]:
    """Returns cells with neighbours of one style joined."""
    spans: list[Span] = []
    start, size = 0, len(cells)
    while start < size:
        style, end = cells[start][1], start + 1
        while end < size and cells[end][1] == style:
            end += 1
        spans.append(("".join([text for text, _ in cells[start:end]]), style))
        start = end
    return spans


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
    logarithmic: bool = False,
    clips_outliers: bool = True,
) -> Plot:
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
        logarithmic: Whether the y axis is logarithmic; it leaves out values up to 0, and says so.
        clips_outliers: Whether the y axis may leave out a few values far from the others.

    Returns:
        A plot of `height` lines of `width` cells. If there is no data, they contain a message.
    """
    if window is not None:
        curves = [curve.within(window) for curve in curves]
    left_out = 0
    if logarithmic:
        left_out = sum(y is not None and y <= 0 for curve in curves for _, y in curve.points)
        curves = [_logarithm(curve) for curve in curves]
    xs = [x for curve in curves for x in curve.ends if math.isfinite(x)]
    ys = [y for curve in curves for _, y in curve.points if y is not None and y - y == 0]
    rows = height - 2
    if not xs or rows < 1 or width < 12:
        word = "no values above 0" if left_out else "no data yet"
        return empty_plot(width, height, "" if xs else word)
    from_zero = from_zero and not logarithmic
    low, high = value_range(ys, from_zero=from_zero, clips_outliers=clips_outliers)
    fit = fit_log_axis if logarithmic else fit_axis
    y_axis = fit(*(apart(low, high) if ys else (0.0, 1.0)), rows)
    # Rounding may leave the ends just outside of the axis.
    y_scale = AxisScale(min(low, y_axis.low), max(high, y_axis.high))
    numbers = y_axis.labels
    label_width = max(len(label) for label in numbers.values())
    columns = width - label_width - 2
    if columns < 4:
        return empty_plot(width, height, "")
    x_scale = roomy(min(xs), max(xs)) if window is None else AxisScale(window.low, window.high)
    grid = _Grid(columns, rows)
    for curve in curves:
        _draw(grid, curve, x_scale, y_scale)
    above, below = "", ""
    if ys and max(ys) > y_scale.high:
        above = f"▲ {show(_number(max(ys), logarithmic=logarithmic))}"
    if ys and min(ys) < y_scale.low:
        below = f"▼ {show(_number(min(ys), logarithmic=logarithmic))}"
    if left_out:
        below = f"▼ {units.count(left_out, 'value')} ≤ 0"
    _tell_cut(grid, 0, above)
    _tell_cut(grid, rows - 1, below)
    return Plot(
        tuple(tuple(grid.row(row)) for row in range(rows)),
        numbers,
        axis_cells(marks, x_scale, columns),
        x_labels(labels, x_scale, label_width, columns),
        x_scale,
    )


def _logarithm(curve: Curve) -> Curve:
    """Returns the curve of the logarithms; values up to 0 interrupt no line."""
    points = tuple(
        (x, None if y is None else math.log10(y)) for x, y in curve.points if y is None or y > 0
    )
    return replace(curve, points=points)


def _number(y: float, *, logarithmic: bool) -> float:
    """Returns the value at a height of the y axis."""
    return math.pow(10, min(y, 308)) if logarithmic else y


class _Grid:
    """Cells of dots; the curve that was drawn last gives a cell its style."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]
        self._glyphs: dict[tuple[int, int], Span] = {}

    def column(self, x: int, top: int, bottom: int, style: str) -> None:
        """Sets the dots of a column from `top` to `bottom`; y counts from the top."""
        column, runs = x // 2, _RUNS[x % 2]
        highest, lowest = top // 4, bottom // 4
        for row in range(highest, lowest + 1):
            first = top % 4 if row == highest else 0
            dots = runs[first][bottom % 4 if row == lowest else 3]
            styles = self._styles[row]
            before = self._bits[row][column] if styles[column] == style else 0
            self._bits[row][column], styles[column] = before | dots, style

    def line(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """Draws a straight line of dots, column by column."""
        (x0, y0), (x1, y1) = start, end
        columns = abs(x1 - x0)
        slope = (y1 - y0) / max(1, columns)
        half = slope / 2 if abs(slope) > 1 else 0.0
        for place in range(columns + 1):
            y = y0 + slope * place
            # A steep line has several dots in a column, up to halfway to the next one.
            first = y0 if place == 0 else round(y - half)
            last = y1 if place == columns else round(y + half)
            x = x0 + place if x1 > x0 else x0 - place
            self.column(x, min(first, last), max(first, last), style)

    def glyph(self, column: int, row: int, glyph: str, style: str) -> None:
        """Puts a character over a cell."""
        self._glyphs[row, column] = (glyph, style)

    def row(self, row: int) -> list[Span]:
        """Returns the cells of one line."""
        cells: list[Span] = [
            (chr(_BRAILLE + bits), style) if bits else (" ", "")
            for bits, style in zip(self._bits[row], self._styles[row], strict=True)
        ]
        for (glyph_row, column), span in self._glyphs.items():
            if glyph_row == row:
                cells[column] = span
        return cells


def _draw(grid: _Grid, curve: Curve, x_scale: AxisScale, y_scale: AxisScale) -> None:
    width, height = 2 * grid.columns, 4 * grid.rows
    column_at, height_at = x_scale.placer(width), y_scale.placer(height)

    def dot(point: Place) -> tuple[int, int]:
        return column_at(point[0]), height - 1 - height_at(point[1] or 0.0)

    points = thin(curve.points, width, column_at)
    for x, y in points:
        if y is None or not math.isfinite(y):
            grid.glyph(column_at(x) // 2, grid.rows - 1, "✗", "bad")
    joined = False
    end, end_dot = None, (0, 0)
    for place, point in enumerate(points):
        after = points[place + 1] if place + 1 < len(points) else None
        part = None if after is None else _visible(point, after, y_scale)
        if part is not None:
            start_dot = end_dot if part[0] is end else dot(part[0])
            end, end_dot = part[1], dot(part[1])
            grid.line(start_dot, end_dot, curve.style)
        elif not joined and point[1] is not None and y_scale.contains(point[1]):
            # A single point is larger than a dot.
            x_dot, y_dot = dot(point)
            grid.glyph(x_dot // 2, y_dot // 4, _POINT, curve.style)
        joined = part is not None


def _visible(start: Place, end: Place, scale: AxisScale) -> tuple[Place, Place] | None:
    """Returns the part of a line between the ends of the y axis; None if there is none."""
    (x0, y0), (x1, y1) = start, end
    if y0 is None or y1 is None or not (math.isfinite(y0) and math.isfinite(y1)):
        return None
    if (y0 < scale.low and y1 < scale.low) or (y0 > scale.high and y1 > scale.high):
        return None

    def at_edge(point: Place, y: float) -> Place:
        edge = min(max(y, scale.low), scale.high)
        if edge == y:
            return point
        # Shares, because the difference of two values may be too large for a number.
        size = max(abs(y0), abs(y1))
        share = (edge / size - y0 / size) / (y1 / size - y0 / size)
        return (x0 + (x1 - x0) * share, edge)

    return at_edge(start, y0), at_edge(end, y1)


def roomy(low: float, high: float) -> AxisScale:
    """Returns an x axis with some room at its right end.

    New points fit into the room, so the whole chart is not redrawn, and sent over SSH, for each.
    """
    room = units.nice_step((high - low) / _ROOM_PARTS)
    if not 0 < room < math.inf:
        return AxisScale(low, high)
    return AxisScale(low, math.ceil(high / room + 0.1) * room)


def _tell_cut(grid: _Grid, row: int, words: str) -> None:
    """Shows at the end of a line how far the values beyond it go."""
    if len(words) <= grid.columns:
        for place, character in enumerate(words, grid.columns - len(words)):
            grid.glyph(place, row, character, "warn")


def axis_cells(marks: Sequence[Mark], scale: AxisScale, columns: int) -> tuple[Span, ...]:
    """Returns the cells of an x axis with its marks."""
    cells: list[Span] = [("─", "border")] * columns
    for mark in marks:
        if scale.contains(mark.x):
            cells[scale.place(mark.x, 2 * columns) // 2] = (mark.glyph, mark.style)
    return tuple(cells)


def x_labels(labels: Labels, scale: AxisScale, label_width: int, columns: int) -> StyledLine:
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
    return StyledLine(((padded(text, width), "muted"),))


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


def empty_plot(width: int, height: int, word: str) -> Plot:
    """Returns a plot that shows only a word."""
    middle = height // 2
    gap = " " * max(0, (width - len(word)) // 2)
    shown = (
        StyledLine(((gap + word, "muted"),)) if row == middle else StyledLine()
        for row in range(height)
    )
    return Plot(message=tuple(shown))
