"""A chart of measurements, with a curve per branch and marks for events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_tui.app.widgets.base.icons import EVENT_ICONS, Icon
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, branch_style, line, shorten
from tfckpt_tui.app.widgets.charts.braille import Mark, Plot, plot
from tfckpt_tui.charting.axis import Window, clock_labels, step_labels
from tfckpt_tui.charting.curves import Across, Curve, kept_until
from tfckpt_tui.charting.measurements import Measurement
from tfckpt_tui.charting.view import (
    MARKED,
    REFERENCE_STYLE,
    RunSeries,
    ValueAt,
    View,
    curves_in,
    marked_events,
    values_at,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import cell_width, clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_FRESH_SECONDS = 10.0
_CROWDED_SAVE = "┴"


class Chart(Pane):
    """Draws a curve per branch. The current line of training is bright, other parts are dim."""

    def __init__(self, *measurements: Measurement, id: str | None = None) -> None:  # noqa: A002
        """Creates a chart.

        Args:
            measurements: What it draws.
            id: ID of the widget.
        """
        super().__init__(id=id)
        self._measurements = measurements
        self._reference: RunSeries | None = None
        self._kept: Mapping[int, float] | None = None
        self._view = View()
        self._cursor: float | None = None
        self._selection: tuple[float, float] | None = None
        self._curves_key: tuple[Any, ...] = ()
        self._made_curves: list[Curve] = []
        self._plot_key: tuple[Any, ...] = ()
        self._plot = Plot()
        self.nothing = ""
        """What it shows if there is no value; by default that there are no measurements."""

    def show_measurements(self, *measurements: Measurement) -> None:
        """Draws other measurements of the same points."""
        self._measurements = measurements
        self.repaint()

    def show_view(self, view: View, reference: RunSeries | None = None) -> None:
        """Draws the same measurements in another view, and a reference under them."""
        self._view, self._reference = view, reference
        self.repaint()

    def show_cursor(
        self, cursor: float | None, selection: tuple[float, float] | None = None
    ) -> None:
        """Shows a vertical line, the values there, and a selected part of the x axis."""
        self._cursor, self._selection = cursor, selection
        self.repaint()

    def show_kept(self, kept: Mapping[int, float] | None) -> None:
        """Dims all but a part of the run: by branch, its last step.

        Args:
            kept: The part; None for what the present model was trained on.
        """
        self._kept = kept
        self.repaint()

    @property
    def measurements(self) -> Sequence[Measurement]:
        """What it draws."""
        return self._measurements

    @property
    def plot(self) -> Plot:
        """What it drew last, to find the position under the mouse."""
        return self._plot

    @property
    def whole(self) -> Window | None:
        """The whole x axis; None if it has fewer than two positions."""
        points = self.snapshot.points if self.snapshot else ()
        places = [x for x in map(self._view.across.place, points) if x is not None]
        if not places or min(places) == max(places):
            return None
        return Window(min(places), max(places))

    def heading(self) -> Sequence[Span]:
        """Returns the title, and the branches, the measurements or the reference in colours."""
        spans: list[Span] = []
        if len(self._measurements) > 1:
            for number, one in enumerate(self._measurements):
                spans += [("  " if number else "", ""), (clean(one.name), branch_style(number))]
        else:
            spans = [(clean(one.name), "title") for one in self._measurements]
        branches = self._branches()
        if len(branches) > 1 and len(self._measurements) == 1 and self.size.width >= 30:
            spans.append(("  branch", "label"))
            for branch in branches[-4:]:
                past = self.snapshot is not None and branch != self.snapshot.branch
                spans.append((f" {branch}", branch_style(branch, past=past)))
        if self._reference is not None:
            spans += [("  and ", "label"), (clean(self._reference.name), REFERENCE_STYLE)]
        return spans

    def note(self) -> Sequence[Span]:
        """Returns the values at the cursor; without one, the newest value and its age."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.points:
            return ()
        if self._cursor is not None:
            return self._values_at(self._cursor)
        show, value_of = self._measurements[0].show, self._measurements[0].value_of
        points = (p for p in reversed(snapshot.points) if value_of(p) is not None)
        newest = next(points, snapshot.points[-1])
        value: Span = (show(value_of(newest)), "strong")
        age = snapshot.at - newest.at
        return (value, (f" {units.age(age)} ago", "faint")) if age >= _FRESH_SECONDS else (value,)

    def _values_at(self, x: float) -> Sequence[Span]:
        """Returns the values of all curves at `x`, and the difference to the reference."""
        show = self._measurements[0].show
        values = values_at(self._curves(), x)
        by_label = {value.label: value for value in values}
        spans: list[Span] = []
        for one in values:
            label = f"{clean(one.label)} " if one.label else ""
            gap = "  " if spans else ""
            text = "NaN" if one.value is None else show(one.value)
            spans += [(gap + label, "label"), (text, "value" if one.label else "strong")]
        if self._reference is not None:
            spans += _difference(by_label.get(""), by_label.get(self._reference.name), show)
        return spans

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the plot, with the cursor and the selection over it."""
        snapshot = self.snapshot
        curves = self._curves()
        if snapshot is None or not curves:
            words = shorten(self.nothing or _no_measurements(snapshot), width)
            gap = " " * max(0, (width - cell_width(words)) // 2)
            self._plot = Plot()
            return [Line()] * (height // 2) + [line((gap + words, "muted"))]
        key = (curves, snapshot.event_log, self._view, width, height)
        if key != self._plot_key:
            self._plot_key, self._plot = key, self._draw(snapshot, curves, width, height)
        return self._plot.lines(self._cursor, self._selection)

    def _draw(
        self, snapshot: RunSnapshot, curves: Sequence[Curve], width: int, height: int
    ) -> Plot:
        view = self._view
        return plot(
            curves,
            _marks(snapshot.event_log, width, view),
            width,
            height,
            from_zero=all(one.from_zero for one in self._measurements),
            window=view.window,
            labels=clock_labels if view.across is Across.TIME else step_labels,
            show=self._measurements[0].show,
            logarithmic=view.logarithmic,
            clips_outliers=view.clips_outliers,
        )

    def _branches(self) -> list[int]:
        points = self.snapshot.points if self.snapshot else ()
        return sorted({point.branch for point in points} - self._view.hidden)

    def _curves(self) -> list[Curve]:
        """Returns the curves; they are made again when the points or the view change."""
        snapshot, view = self.snapshot, self._view
        if snapshot is None:
            return []
        looked_at = (view.across, view.smoothing, view.hidden)
        key = (
            *(snapshot.points, snapshot.checkpoints, snapshot.branch),
            *(looked_at, self._measurements, self._reference, self._kept),
        )
        if key != self._curves_key:
            kept = self._kept
            if kept is None:
                kept = kept_until(snapshot.checkpoints, snapshot.branch)
            series = RunSeries(snapshot.points, kept)
            self._made_curves = curves_in(
                view, series, self._measurements, _style_of, self._reference
            )
            self._curves_key = key
        return self._made_curves


def _style_of(branch: int, past: bool) -> str:
    return branch_style(branch, past=past)


def _no_measurements(snapshot: RunSnapshot | None) -> str:
    may_come = snapshot is None or snapshot.tracked
    return "no measurements yet" if may_come else "no measurements"


def _difference(
    value: ValueAt | None, other: ValueAt | None, show: Callable[[float | None], str]
) -> list[Span]:
    """Returns how far a value is from that of the reference; nothing if either is unknown."""
    if value is None or other is None or value.value is None or other.value is None:
        return []
    more = value.value - other.value
    return [("  Δ ", "label"), (f"{'+' if more > 0 else ''}{show(more)}", "strong")]


def _marks(entries: Sequence[EventEntry], width: int, view: View) -> list[Mark]:
    """Returns the marks of the visible events; those of saves are narrow where there are many."""
    visible = marked_events(entries, view)
    crowded = sum(entry.kind is EventKind.SAVE for _, entry in visible) > width // 4
    marks: list[Mark] = []
    for kind in MARKED:
        icon = EVENT_ICONS[kind]
        if crowded and kind is EventKind.SAVE:
            icon = Icon(_CROWDED_SAVE, icon.style, icon.meaning)
        marks += [Mark(x, icon.glyph, icon.style) for x, entry in visible if entry.kind is kind]
    return marks
