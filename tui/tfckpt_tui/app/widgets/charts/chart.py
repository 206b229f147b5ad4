"""A chart of measurements, with a curve per branch and marks for events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from textual import events
from textual.message import Message
from textual.strip import Strip

from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_tui.app.widgets.base.icons import EVENT_ICONS, MARK, Icon
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import (
    Span,
    StyledLine,
    branch_style,
    flow,
    line,
    shorten_middle,
)
from tfckpt_tui.app.widgets.charts.braille import Mark, Plot, plot
from tfckpt_tui.app.widgets.charts.heat_map import heat_map
from tfckpt_tui.charting.axis import Window, clock_labels, step_labels
from tfckpt_tui.charting.curves import Across, Curve, kept_until
from tfckpt_tui.charting.distributions import Distribution
from tfckpt_tui.charting.measurements import Measurement
from tfckpt_tui.charting.series import AT, VALUE
from tfckpt_tui.charting.view import (
    MARKED,
    REFERENCE_STYLE,
    RunSeries,
    ValueAt,
    View,
    curves_in,
    marked_events,
    places_of,
    saves_along,
    smoothed_curves,
    values_at,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_FRESH_SECONDS = 10.0
_LEAST_FOR_VALUES = 16
"""Cells of the upper edge that a long title leaves for the values at the cursor."""

_CROWDED_SAVE = "┴"


class Chart(Pane):
    """Draws a curve per branch. The current line of training is bright, other parts are dim."""

    class Pointed(Message):
        """The mouse moved over a chart, or left it.

        Attributes:
            x: The position on the x axis; None outside of the drawing.
        """

        def __init__(self, x: float | None) -> None:
            super().__init__()
            self.x = x

    class Pressed(Message):
        """A chart was clicked.

        Attributes:
            chart: The chart.
            x: The position on the x axis; None outside of the drawing.
            is_double: Whether it was a double click.
        """

        def __init__(self, chart: Chart, x: float | None, *, is_double: bool) -> None:
            super().__init__()
            self.chart, self.x, self.is_double = chart, x, is_double

    class Dragged(Message):
        """The mouse selects a part of the x axis.

        Attributes:
            selection: Where it was pressed, and where it is.
            has_ended: Whether it was released.
        """

        def __init__(self, selection: tuple[float, float], *, has_ended: bool) -> None:
            super().__init__()
            self.selection, self.has_ended = selection, has_ended

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
        self._shown_curves: list[Curve] = []
        self._is_stale = False
        self._distributions: tuple[Distribution, ...] = ()
        self._plot_key: tuple[Any, ...] = ()
        self._plot = Plot()
        self._dragged_from: float | None = None
        self.is_chosen = False
        """Whether the keys act on this one of several charts."""
        self.is_marked = False
        """Whether the user marked it, to join it with others."""
        self.nothing = ""
        """What it shows if there is no value; by default that there are no measurements."""

    @property
    def is_highlighted(self) -> bool:
        """Whether its border is bright."""
        return self.is_chosen

    def show_measurements(self, *measurements: Measurement) -> None:
        """Draws other measurements of the same points."""
        self._measurements = measurements
        self.repaint()

    def look(
        self,
        snapshot: RunSnapshot,
        measurements: Sequence[Measurement],
        view: View,
        *,
        kept: Mapping[int, float] | None = None,
        reference: RunSeries | None = None,
        cursor: float | None = None,
        selection: tuple[float, float] | None = None,
        distributions: Sequence[Distribution] = (),
    ) -> None:
        """Chooses what `draw` draws.

        Args:
            snapshot: Of the run.
            measurements: What is drawn.
            view: How it is drawn.
            kept: The part of the run that is not dimmed: by branch, its last step. None for what
                the present model was trained on.
            reference: Another run, or a branch, that is drawn under it.
            cursor: A position on the x axis; the title shows the values there.
            selection: The ends of a selected part of the x axis.
            distributions: A heat map of these is drawn in place of curves.
        """
        self.snapshot, self._measurements = snapshot, tuple(measurements)
        self._view, self._kept, self._reference = view, kept, reference
        self._cursor, self._selection = cursor, selection
        self._distributions = tuple(distributions)
        self._is_stale = True

    def draw(self) -> bool:
        """Draws what `look` chose; returns whether that was not drawn yet."""
        was_stale, self._is_stale = self._is_stale, False
        if was_stale:
            self.repaint()
        return was_stale

    def made_line(self, y: int) -> Strip:
        """Returns line `y` as it was made last; blank until `draw` draws it the first time."""
        if self._is_stale and not self._strips:
            return Strip.blank(self.size.width, self.rich_style)
        return super().made_line(y)

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
        channels = self.snapshot.samples.channels if self.snapshot else {}
        segments = (one.ends for channel in channels.values() for one in channel.segments)
        places = places_of(segments, self._view.x_of)
        return Window(places[0], places[-1]) if len(places) > 1 else None

    def heading(self) -> Sequence[Span]:
        """Returns the title, and as much as fits of the branches and the reference."""
        title = self._title()
        groups: list[Sequence[Span]] = []
        branches = self._branches()
        is_part = len(branches) > 1 or bool(self._view.hidden)
        if is_part and len(self._measurements) == 1:
            spans: list[Span] = [("branch", "label")]
            for branch in branches[-4:]:
                past = self.snapshot is not None and branch != self.snapshot.branch
                spans.append((f" {branch}", branch_style(branch, past=past)))
            groups.append(spans)
        if self._reference is not None:
            groups.append([("and ", "label"), (clean(self._reference.name), REFERENCE_STYLE)])
        room = self._room() - StyledLine(tuple(title)).width - StyledLine(tuple(self.note())).width
        # The values at the cursor matter more.
        legend = flow(groups, room - 2) if self._cursor is None else ()
        return [*title, ("  ", ""), *legend] if legend else title

    def _title(self) -> list[Span]:
        """Returns the names of the measurements, each of several in its colour."""
        spans: list[Span] = [(f"{MARK} ", "accent")] if self.is_marked else []
        room = self._room() - (_LEAST_FOR_VALUES if self._cursor is not None else 0)
        names = [clean(one.name) for one in self._measurements]
        if len(names) == 1:
            return [*spans, (shorten_middle(names[0], room - 2 * len(spans)), "title")]
        colours = [[(name, branch_style(number))] for number, name in enumerate(names)]
        return [*spans, *flow(colours, room - 2 * len(spans))]

    def _room(self) -> int:
        """Returns the cells of the upper edge for title and note."""
        return self.size.width - 10

    def note(self) -> Sequence[Span]:
        """Returns the values at the cursor; without one, the newest value and its age."""
        snapshot = self.snapshot
        if snapshot is None or not self._measurements:
            return ()
        if self._distributions:
            return self._range_at(self._cursor)
        if self._cursor is not None:
            return self._values_at(self._cursor)
        shown = self._measurements[0]
        segments = reversed(snapshot.samples.segments(shown.key))
        newest = next((one for one in segments if one.branch not in self._view.hidden), None)
        if newest is None:
            return ()
        value: Span = (shown.show(newest.last[VALUE]), "strong")
        age = snapshot.at - newest.last[AT]
        return (value, (f" {units.age(age)} ago", "faint")) if age >= _FRESH_SECONDS else (value,)

    def _range_at(self, x: float | None) -> Sequence[Span]:
        """Returns the range of the newest distribution, or of the one at or before `x`."""
        placed = ((self._view.x_of_event(one.point), one) for one in self._distributions)
        shown = [one for at, one in placed if at is not None and (x is None or at <= x)]
        if not shown:
            return ()
        low, high = map(self._measurements[0].show, (shown[-1].low, shown[-1].high))
        return ((low, "strong"), (" to ", "label"), (high, "strong"))

    def _values_at(self, x: float) -> Sequence[Span]:
        """Returns as many values at `x` as fit, and the difference to the reference."""
        show = self._measurements[0].show
        values = values_at(self._curves(), x)
        by_label = {value.label: value for value in values}
        groups: list[Sequence[Span]] = []
        for one in values:
            label = f"{clean(one.label)} " if one.label else ""
            text = "NaN" if one.value is None else show(one.value)
            groups.append([(label, "label"), (text, "value" if one.label else "strong")])
        if self._reference is not None:
            other = by_label.get(self._reference.name)
            groups.insert(1, _difference(by_label.get(""), other, show))
        return flow(groups, self._room() - StyledLine(tuple(self._title())).width)

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the plot, with the cursor and the selection over it."""
        snapshot = self.snapshot
        curves = self._curves()
        if snapshot is None or not (curves or self._distributions):
            self._plot_key, self._plot = (), Plot()
            rows = wrap(self.nothing or _no_measurements(snapshot), max(1, width))
            above = [StyledLine()] * max(0, (height - len(rows) + 1) // 2)
            return above + [line((row.center(width), "muted")) for row in rows]
        noted = (snapshot.event_log, snapshot.checkpoints)
        key = (curves, self._distributions, noted, self._view, width, height)
        if key != self._plot_key:
            self._plot_key, self._plot = key, self._draw(snapshot, curves, width, height)
        return self._plot.lines(self._cursor, self._selection)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Tells what is under the mouse, or what it selects."""
        x = self._x_at(event)
        if self._dragged_from is None:
            self.post_message(self.Pointed(x))
        elif x is not None:
            self.post_message(self.Dragged((self._dragged_from, x), has_ended=False))

    def on_leave(self) -> None:
        """Tells that the mouse left."""
        self.post_message(self.Pointed(None))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begins a selection."""
        self._dragged_from = self._x_at(event)
        self.capture_mouse()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Ends a selection."""
        self.release_mouse()
        start, self._dragged_from = self._dragged_from, None
        x = self._x_at(event)
        if start is not None and x is not None and start != x:
            self.post_message(self.Dragged((start, x), has_ended=True))

    def on_click(self, event: events.Click) -> None:
        """Tells that it was clicked."""
        self.post_message(self.Pressed(self, self._x_at(event), is_double=event.chain == 2))

    def _x_at(self, event: events.MouseEvent) -> float | None:
        left, top = self.inner_offset
        inside = top <= event.y < self.size.height
        return self._plot.x_at(event.x - left) if inside else None

    def _draw(
        self, snapshot: RunSnapshot, curves: Sequence[Curve], width: int, height: int
    ) -> Plot:
        view = self._view
        marks = _marks(charted_events(snapshot, self._measurements), width, view)
        labels = clock_labels if view.across is Across.TIME else step_labels
        if self._distributions:
            return heat_map(self._distributions, marks, width, height, view, labels)
        return plot(
            curves,
            marks,
            width,
            height,
            from_zero=all(one.from_zero for one in self._measurements),
            window=view.window,
            labels=labels,
            show=self._measurements[0].show,
            logarithmic=view.logarithmic,
            clips_outliers=view.clips_outliers,
        )

    def _branches(self) -> list[int]:
        branches = self.snapshot.samples.branches if self.snapshot else ()
        return [branch for branch in branches if branch not in self._view.hidden]

    def _curves(self) -> list[Curve]:
        """Returns the curves; they are made again when the values or the view change."""
        snapshot, view = self.snapshot, self._view
        if snapshot is None:
            return []
        looked_at = (view.across, view.epoch_steps, view.hidden, view.smoothing)
        kept = self._kept
        if kept is None:
            kept = kept_until(snapshot.lineage, snapshot.branch)
        key = (snapshot.samples, kept, looked_at, self._measurements, self._reference)
        if key != self._curves_key:
            series = RunSeries(snapshot.samples, kept)
            curves = curves_in(view, series, self._measurements, _style_of, self._reference)
            self._curves_key, self._shown_curves = key, smoothed_curves(curves)
        return self._shown_curves


def charted_events(
    snapshot: RunSnapshot, measurements: Sequence[Measurement]
) -> Sequence[EventEntry]:
    """Returns the events of a run, of which charts mark some.

    Args:
        snapshot: The run. If this library does not train it, its checkpoints are its saves.
        measurements: What the chart draws.
    """
    entries = snapshot.event_log
    if snapshot.tracked or any(entry.kind is EventKind.SAVE for entry in entries):
        return entries
    segments = [one for each in measurements for one in snapshot.samples.segments(each.key)]
    return (*entries, *saves_along(snapshot.checkpoints, segments))


def _style_of(branch: int, past: bool) -> str:
    return branch_style(branch, past=past)


def _no_measurements(snapshot: RunSnapshot | None) -> str:
    if snapshot is None:
        # Nobody has looked yet: a dialog opens before its chart is shown what there is.
        return ""
    return "no measurements yet" if snapshot.tracked else "no measurements"


def _difference(
    value: ValueAt | None, other: ValueAt | None, show: Callable[[float | None], str]
) -> Sequence[Span]:
    """Returns how far a value is from that of the reference; nothing if either is unknown."""
    if value is None or other is None or value.value is None or other.value is None:
        return []
    if value.is_earlier:
        # The model has not trained as far: these are values of two steps.
        return []
    more = value.value - other.value
    return [("Δ ", "label"), (f"{'+' if more > 0 else ''}{show(more)}", "strong")]


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
