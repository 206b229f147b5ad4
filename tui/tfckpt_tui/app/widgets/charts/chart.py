"""A chart of one metric, with a curve per branch and marks for events."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tfckpt_trainer.catalog.scan.lineage import current_lineage
from tfckpt_trainer.rundir.records.event import EventKind, SeriesPoint
from tfckpt_tui.app.widgets.base.icons import EVENT_ICONS, Icon
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, branch_style, line, shorten
from tfckpt_tui.app.widgets.charts.axis import Window, clock_labels, step_labels
from tfckpt_tui.app.widgets.charts.braille import Curve, Mark, plot
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import cell_width
from tfckpt_tui.monitor.snapshot import RunSnapshot

_FRESH_SECONDS = 10.0
_CROWDED_SAVE = "┴"
_MARKED = (EventKind.SAVE, EventKind.SET, EventKind.GUARD, EventKind.RESTART, EventKind.RESTORE)


class Chart(Pane):
    """Draws a curve per branch. The current line of training is bright, other parts are dim."""

    def __init__(
        self,
        title: str,
        value_of: Callable[[SeriesPoint], float | None],
        *,
        show: Callable[[float | None], str] = units.metric,
        from_zero: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Creates a chart.

        Args:
            title: Its title.
            value_of: Returns the value of a point; None if it has none.
            show: Formats the newest value.
            from_zero: Whether the y axis begins at 0.
            id: ID of the widget.
        """
        super().__init__(id=id)
        self._title = title
        self._show = show
        self._value_of = value_of
        self._from_zero = from_zero
        self._window: Window | None = None
        self._by_time = False
        self.nothing = ""
        """What it shows if there is no value; by default that there are no measurements."""

    def show_metric(
        self,
        title: str,
        value_of: Callable[[SeriesPoint], float | None],
        show: Callable[[float | None], str],
        *,
        from_zero: bool,
    ) -> None:
        """Draws another metric of the same points."""
        self._title, self._value_of, self._show = title, value_of, show
        self._from_zero = from_zero
        self.repaint()

    def show_window(self, window: Window | None, *, by_time: bool) -> None:
        """Shows a window of the x axis (None is all of it), in steps or in seconds."""
        self._window, self._by_time = window, by_time
        self.repaint()

    @property
    def whole(self) -> Window | None:
        """The whole x axis; None if it has fewer than two positions."""
        places = [self._place(point) for point in (self.snapshot.points if self.snapshot else ())]
        if not places or min(places) == max(places):
            return None
        return Window(min(places), max(places))

    def _place(self, point: SeriesPoint) -> float:
        return point.at if self._by_time else float(point.step)

    def heading(self) -> Sequence[Span]:
        """Returns the title, and the branches in their colours."""
        spans: list[Span] = [(self._title, "title")]
        branches = self._branches()
        if len(branches) > 1 and self.size.width >= 30:
            spans.append(("  branch", "label"))
            shown = branches[-4:]
            for branch in shown:
                past = self.snapshot is not None and branch != self.snapshot.branch
                spans.append((f" {branch}", branch_style(branch, past=past)))
        return spans

    def note(self) -> Sequence[Span]:
        """Returns the newest value, and its age unless it is recent."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.points:
            return ()
        points = (p for p in reversed(snapshot.points) if self._value_of(p) is not None)
        newest = next(points, snapshot.points[-1])
        value: Span = (self._show(self._value_of(newest)), "strong")
        age = snapshot.at - newest.at
        return (value, (f" {units.age(age)} ago", "faint")) if age >= _FRESH_SECONDS else (value,)

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the plot."""
        snapshot = self.snapshot
        curves = self._curves(snapshot) if snapshot is not None else []
        if snapshot is None or not curves:
            words = shorten(self.nothing or _no_measurements(snapshot), width)
            gap = " " * max(0, (width - cell_width(words)) // 2)
            return [Line()] * (height // 2) + [line((gap + words, "muted"))]
        return plot(
            curves,
            _marks(snapshot, width, by_time=self._by_time, window=self._window),
            width,
            height,
            from_zero=self._from_zero,
            window=self._window,
            labels=clock_labels if self._by_time else step_labels,
            show=self._show,
        )

    def _branches(self) -> list[int]:
        points = self.snapshot.points if self.snapshot else ()
        return sorted({point.branch for point in points})

    def _curves(self, snapshot: RunSnapshot) -> list[Curve]:
        lineage = current_lineage(snapshot.checkpoints, snapshot.branch)
        kept = {**lineage.last_steps, snapshot.branch: math.inf}
        past: list[Curve] = []
        present: list[Curve] = []
        series = [point for point in snapshot.points if self._value_of(point) is not None]
        for segment in _segments(series):
            branch = segment[0].branch
            points = tuple((self._place(p), _finite(self._value_of(p))) for p in segment)
            last_kept = kept.get(branch, -math.inf)
            split = bisect_right(segment, last_kept, key=lambda point: point.step)
            if points[:split]:
                present.append(Curve(points[:split], branch_style(branch)))
            if points[split:]:
                past.append(Curve(points[max(0, split - 1) :], branch_style(branch, past=True)))
        return [*past, *present]


def _no_measurements(snapshot: RunSnapshot | None) -> str:
    may_come = snapshot is None or snapshot.tracked
    return "no measurements yet" if may_come else "no measurements"


def _segments(points: Sequence[SeriesPoint]) -> list[list[SeriesPoint]]:
    """Splits points where the branch changes or the step goes back."""
    segments: list[list[SeriesPoint]] = []
    for point in points:
        last = segments[-1][-1] if segments else None
        if last is None or last.branch != point.branch or last.step > point.step:
            segments.append([])
        segments[-1].append(point)
    return segments


def _marks(
    snapshot: RunSnapshot, width: int, *, by_time: bool, window: Window | None
) -> list[Mark]:
    entries = [
        (entry.at if by_time else float(entry.step), entry)
        for entry in snapshot.event_log
        if entry.kind in _MARKED and entry.step is not None
    ]
    if window is not None:
        entries = [(place, entry) for place, entry in entries if window.contains(place)]
    crowded = sum(entry.kind is EventKind.SAVE for _, entry in entries) > width // 4
    marks: list[Mark] = []
    for kind in _MARKED:
        icon = EVENT_ICONS[kind]
        if crowded and kind is EventKind.SAVE:
            icon = Icon(_CROWDED_SAVE, icon.style, icon.meaning)
        marks += [
            Mark(place, icon.glyph, icon.style) for place, entry in entries if entry.kind is kind
        ]
    return marks


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
