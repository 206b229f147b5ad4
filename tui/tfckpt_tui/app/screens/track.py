"""One tensor over all checkpoints: its norm, update ratio, mean and deviation as charts."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_tui.app.screens.chart_page import ChartPage
from tfckpt_tui.app.widgets.base.list_pane import TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten_middle
from tfckpt_tui.charting.choices import ChartChoices
from tfckpt_tui.charting.curves import kept_until
from tfckpt_tui.charting.distributions import Distribution
from tfckpt_tui.charting.grid import Tile
from tfckpt_tui.charting.measurements import Measurement, metric
from tfckpt_tui.charting.series import Samples, Series
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.checkpoints.track import (
    TrackedPoint,
    csv_lines,
    track,
    tracked_checkpoints,
)

_POLL_SECONDS = 0.2
_NORM, _RATIO, _MEAN, _DEVIATION = "norm", "update ratio", "mean", "deviation"
_MEASUREMENTS = (
    metric(_NORM),
    replace(metric(_RATIO), from_zero=True),
    metric(_MEAN),
    metric(_DEVIATION),
)
_HISTOGRAM = Measurement("histogram", "histogram")


class TrackScreen(ChartPage):
    """Reads a tensor from all checkpoints, oldest first; the chart fills while it reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "i",
            "histogram",
            "histograms",
            tooltip="Reads a histogram of each checkpoint, and shows them as a heat map.",
        ),
        Binding(
            "escape",
            "back",
            "back",
            key_display="esc",
            tooltip="Stops reading, or closes this screen.",
        ),
    ]
    caption = "a tracked tensor"

    def __init__(
        self, run: RunDirectory, snapshot: RunSnapshot, source: Checkpoint, variable: Variable
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            snapshot: Of the run; its checkpoints are read.
            source: The checkpoint that the variable was selected in.
            variable: A numeric variable.
        """
        super().__init__(ChartChoices(chosen=_NORM))
        self._run = run
        self._snapshot = snapshot
        self._source = source
        self._variable = variable
        self._charted = replace(snapshot, samples=Samples(), event_log=())
        self._total = len(tracked_checkpoints(snapshot.checkpoints))
        self._read: list[TrackedPoint] = []
        self._shown_count = 0
        self._is_reading = True
        self._problem = ""
        self._stopped = threading.Event()
        self._has_histograms = False
        self._distributions: tuple[Distribution, ...] = ()

    def compose(self) -> ComposeResult:
        """Makes the facts above the chart."""
        facts = TextPane(boxed=False, id="facts")
        # The arrow keys belong to the chart.
        facts.can_focus = False
        yield facts
        yield from super().compose()

    def on_mount(self) -> None:
        """Starts to read in a thread."""
        self._begin()
        self.set_interval(_POLL_SECONDS, self._poll)
        # `is_open` is true only after this handler.
        self.call_later(self._update)

    def on_unmount(self) -> None:
        """Stops reading."""
        self._stopped.set()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes the time, for the ages; the checkpoints stay those that are read."""
        self._snapshot = replace(self._snapshot, at=snapshot.at)
        self._update()

    def charted(self) -> RunSnapshot:
        """Returns the values in the checkpoints whose step is known."""
        return self._charted

    def measurements(self) -> Sequence[Measurement]:
        """Returns the histogram if it is read, norm, update ratio, mean and deviation."""
        return (_HISTOGRAM, *_MEASUREMENTS) if self._has_histograms else _MEASUREMENTS

    def distributions(self, tile: Tile) -> Sequence[Distribution]:
        """Returns the histograms that were read."""
        return self._distributions if _HISTOGRAM in tile else ()

    def statistics(self) -> list[Sequence[Span]]:
        """Returns the range of all histograms; of other charts, their statistics."""
        drawn = self.distributions(self.tile)
        if not drawn:
            return super().statistics()
        low, high = min(one.low for one in drawn), max(one.high for one in drawn)
        return [
            [("values ", "label"), (f"{units.metric(low)} to {units.metric(high)}", "value")],
            [("in ", "label"), (units.count(len(drawn), "checkpoint"), "value")],
        ]

    def action_histogram(self) -> None:
        """Reads all again with histograms, and shows them alone."""
        self._chosen, self._is_full = _HISTOGRAM.name, True
        if not self._has_histograms:
            self._has_histograms = True
            self._begin()
        self._update()

    def csv_lines(self) -> Iterable[str]:
        """Returns what `track --csv` prints, as far as it is read."""
        return csv_lines(tuple(self._read))

    def end_current(self) -> bool:
        """Stops reading; returns whether it did."""
        if not self._is_reading or self._stopped.is_set():
            return super().end_current()
        self._stopped.set()
        self._update()
        return True

    # -- the job -----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Starts to read all checkpoints; a job that reads them now stops."""
        self._stopped.set()
        read: list[TrackedPoint] = []
        stopped = threading.Event()
        points = track(
            self._run,
            self._snapshot.checkpoints,
            self._source,
            self._variable,
            histogram=self._has_histograms,
        )

        def read_all() -> None:
            for point in points:
                # Safe without a lock: this thread only appends, the other only reads.
                read.append(point)
                if stopped.is_set():
                    return

        def end(problem: str | None) -> None:
            if read is self._read:
                self._problem, self._is_reading = problem or "", False
                self._update()

        self._read, self._stopped, self._is_reading = read, stopped, True
        self.run_app.start_job(f"track {clean(self._variable.path)}", read_all, end, end)

    def _poll(self) -> None:
        if len(self._read) != self._shown_count:
            self._update()

    # -- what is shown -----------------------------------------------------------------------

    def _resized(self) -> None:
        self._update()

    def _update(self) -> None:
        if not is_open(self):
            return
        self._shown_count = len(self._read)
        lines = [self._title(), *self._problem_lines()]
        head = self.query_one("#facts", TextPane)
        head.styles.height = len(lines)
        head.show_lines(lines)
        points = tuple(_point(p, p.checkpoint.step) for p in self._read if _has_place(p))
        self._distributions = tuple(self._histograms()) if self._has_histograms else ()
        # Checkpoints are marked on the axis, as saves are in the charts of the run.
        saves = tuple(
            EventEntry(at=point.at, kind=EventKind.SAVE, message="", step=point.step)
            for point in points
        )
        # Each checkpoint has a value in the chart.
        samples = Series(points, most=max(1, len(points))).samples
        self._charted = replace(self._snapshot, samples=samples, event_log=saves)
        self.update_charts()

    def _histograms(self) -> Iterator[Distribution]:
        """Yields the histograms of what led to the present model: others are at the same steps."""
        kept = kept_until(self._snapshot.lineage, self._snapshot.branch)
        for point in self._read:
            found = point.statistics.histogram if point.statistics is not None else None
            if found is not None and _has_place(point):
                place = _point(point, point.checkpoint.step)
                if place.step <= kept.get(place.branch, -math.inf):
                    yield Distribution(place, found.low, found.high, found.counts)

    def _room(self) -> tuple[int, int]:
        width, height = super()._room()
        return width, height - len(self._problem_lines()) - 1

    def why_nothing(self, tile: Tile) -> str:
        """Returns why a chart has no values."""
        if self._is_reading:
            return "reading…"
        if tile and tile[0].name == _RATIO and self._charted.samples:
            return "The update ratio needs two checkpoints that follow each other."
        return "No checkpoint has values of this tensor."

    def _title(self) -> StyledLine:
        entry = self._variable.entry
        kind: Span = (f"  {entry.dtype} {format_shape(entry.shape)}", "label")
        count = f"{len(self._read):,} of {units.count(self._total, 'checkpoint')} read"
        progress: list[Span] = [(f"   {count}", "muted")]
        if self._is_reading and self._stopped.is_set():
            progress = [(f"   ◌ {count}, stopping…", "busy")]
        elif self._is_reading:
            progress = [(f"   ◌ {count}", "busy"), ("  esc", "key"), (" stops", "label")]
        room = self.size.width - 2 - line(kind, *progress).width
        return line((shorten_middle(clean(self._variable.path), room), "title"), kind, *progress)

    def _problem_lines(self) -> list[StyledLine]:
        unread = [point for point in self._read if point.problem]
        broken = sum(bool(point.not_finite) for point in self._read)
        placeless = sum(not point.problem and not _has_place(point) for point in self._read)
        problems = [self._problem] if self._problem else []
        problems += [f"{clean(o.checkpoint.name)}: {clean(o.problem)}" for o in unread[:1]]
        if len(unread) > 1:
            count = units.count(len(unread) - 1, "other checkpoint")
            problems.append(f"{count} could not be read either")
        if broken:
            count = units.count(broken, "checkpoint")
            problems.append(f"{count} with NaN or infinite values in this tensor")
        lines = [text for problem in problems for text in self._wrapped(problem)]
        if placeless:
            count = units.count(placeless, "checkpoint")
            lines.append(line(("! ", "warn"), (f"{count} not in the chart: no known step", "warn")))
        return lines

    def _wrapped(self, problem: str) -> list[StyledLine]:
        """Returns a problem in as many lines as it needs."""
        width = max(20, self.size.width - 6)
        first, *rest = wrap(problem, width, break_long_words=True) or [""]
        lines = [line(("✗ ", "bad"), (first, "bad"))]
        return lines + [line(("  ", ""), (part, "bad")) for part in rest]


def _has_place(point: TrackedPoint) -> bool:
    return point.statistics is not None and point.checkpoint.step is not None


def _point(point: TrackedPoint, step: int | None) -> SeriesPoint:
    """Returns the values of a tensor in a checkpoint; None stands for NaN."""
    statistics, checkpoint = point.statistics, point.checkpoint
    assert statistics is not None
    assert step is not None
    values = {_NORM: statistics.norm, _MEAN: statistics.mean, _DEVIATION: statistics.deviation}
    if point.update_ratio is not None:
        values[_RATIO] = point.update_ratio
    if point.not_finite:
        values = dict.fromkeys(values)
    return SeriesPoint(at=checkpoint.saved_at, step=step, branch=checkpoint.branch, metrics=values)
