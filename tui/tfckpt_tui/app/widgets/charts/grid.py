"""A grid of charts, of which the keys act on one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from textual.app import ComposeResult
from textual.containers import Grid

from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.charting.grid import MOST_CHARTS, GridSize, Tile


class ChartGrid(Grid, can_focus=True):
    """Shows one page of charts."""

    def compose(self) -> ComposeResult:
        """Makes as many charts as a page can have; those without measurements are hidden."""
        for number in range(MOST_CHARTS):
            yield Chart(id="chart" if number == 0 else f"chart-{number}")

    @property
    def charts(self) -> Sequence[Chart]:
        """The charts that are shown."""
        return [chart for chart in self.query(Chart) if chart.display]

    def chart_of(self, name: str) -> Chart:
        """Returns the chart that shows a measurement, or else the first one."""
        showing = (c for c in self.charts if any(one.name == name for one in c.measurements))
        return next(showing, self.query(Chart).first())

    def show_tiles(self, size: GridSize, tiles: Sequence[Tile]) -> Iterator[tuple[Chart, Tile]]:
        """Shows as many charts as there are tiles, but at least one; together they fill the page.

        Args:
            size: The grid.
            tiles: What each chart draws.

        Yields:
            Each chart that is shown, and what it draws.
        """
        count = max(1, len(tiles))
        columns = min(size.columns, count)
        rows = math.ceil(count / columns)
        if (self.styles.grid_size_columns, self.styles.grid_size_rows) != (columns, rows):
            self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
        for number, chart in enumerate(self.query(Chart)):
            chart.display = number < count
            if chart.display:
                # The last one fills the rest of its row.
                span = columns * rows - number if number == count - 1 else 1
                if chart.styles.column_span != span:
                    chart.styles.column_span = span
                yield chart, tiles[number] if tiles else ()
