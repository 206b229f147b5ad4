"""One chart of the run on the whole screen: the loss, another metric, throughput or step time."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.screens.chart_page import ChartPage, Measurement
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.formats import units
from tfckpt_tui.monitor.series import main_metric, metric_of
from tfckpt_tui.monitor.snapshot import RunSnapshot


def measurements(points: Sequence[SeriesPoint]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, throughput, step time."""
    first = main_metric(points)
    names = {name for point in points for name in point.metrics} - {first}
    return [
        *(Measurement(name, metric_of(name)) for name in (first, *sorted(names))),
        Measurement(
            "throughput",
            lambda point: point.examples_per_second,
            lambda value: units.rate(value, " examples"),
            from_zero=True,
        ),
        Measurement("step time", lambda point: point.step_seconds, units.step_time, from_zero=True),
    ]


class ChartsScreen(ChartPage):
    """The measurements of the run."""

    caption = "the charts"

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(main_metric(snapshot.points))
        self._snapshot = snapshot

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(Chart).show(snapshot)
        self.update_chart()

    def points(self) -> Sequence[SeriesPoint]:
        """Returns the measurements of the run."""
        return self._snapshot.points

    def measurements(self) -> Sequence[Measurement]:
        """Returns the metrics, throughput and step time."""
        return measurements(self._snapshot.points)
