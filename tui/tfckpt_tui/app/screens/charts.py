"""The charts of the run: all metrics, throughput and step time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tfckpt_trainer.rundir.records.event import EventEntry, SeriesPoint
from tfckpt_tui.app.screens.chart_page import ChartPage
from tfckpt_tui.charting.grid import ChartChoices
from tfckpt_tui.charting.measurements import Measurement, main_metric, measurements
from tfckpt_tui.monitor.snapshot import RunSnapshot


class ChartsScreen(ChartPage):
    """The measurements of the run."""

    caption = "the charts"

    def __init__(self, snapshot: RunSnapshot, open_event: Callable[[EventEntry], None]) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            open_event: Opens the checkpoint of an event, or the event.
        """
        super().__init__(main_metric(snapshot.points))
        self._snapshot = snapshot
        self._open_event = open_event
        self._measured: tuple[Sequence[SeriesPoint], list[Measurement]] | None = None

    def on_mount(self) -> None:
        """Takes the view that was chosen last, and shows the snapshot."""
        choices = self.run_app.chart_choices
        self._view, self._grid_size = choices.view, choices.grid_size
        self.update_charts()

    def on_unmount(self) -> None:
        """Keeps the view for the next time."""
        view = replace(self._view, window=None, hidden=frozenset())
        self.run_app.chart_choices = ChartChoices(view, self._grid_size)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.update_charts()

    def charted(self) -> RunSnapshot:
        """Returns the newest snapshot."""
        return self._snapshot

    def measurements(self) -> Sequence[Measurement]:
        """Returns the metrics, throughput and step time."""
        points = self._snapshot.points
        if self._measured is None or self._measured[0] is not points:
            # Thousands of points with a hundred names each take milliseconds.
            self._measured = points, measurements(points)
        return self._measured[1]

    def open_mark(self, entry: EventEntry) -> None:
        """Opens the checkpoint of a mark, or its event."""
        self._open_event(entry)
