"""One worker: activity, step time, resources, and charts since the app was opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from tfckpt_trainer.catalog.scan.lineage import Lineage
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.text_pane import TextPane
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.run.worker_lines import title_of, worker_lines
from tfckpt_tui.charting.measurements import STEP_TIME, Measurement
from tfckpt_tui.formats import units
from tfckpt_tui.formats.worker_columns import WorkerView
from tfckpt_tui.monitor.snapshot import RunSnapshot


class WorkerScreen(Page):
    """One worker; the arrows switch to the others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,tab,down",
            "turn(1)",
            "next worker",
            key_display="→",
            tooltip="Shows the next worker; ← the previous one.",
            priority=True,
        ),
        Binding("left,shift+tab,up", "turn(-1)", "Previous worker", show=False, priority=True),
        Binding("l", "logs", "log", tooltip="Shows the log of this worker."),
        Binding("w", "close", "Back", show=False),
    ]
    caption = "a worker"

    def __init__(self, snapshot: RunSnapshot, open_log: Callable[[int], None]) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            open_log: Opens the log of the worker with this index.
        """
        super().__init__()
        self._snapshot = snapshot
        self._open_log = open_log
        suspected = (view.status.index for view in snapshot.workers if view.straggling)
        self._index = next(suspected, 0)

    def compose(self) -> ComposeResult:
        """Makes the facts, the charts and the keys."""
        yield TextPane(id="worker-facts")
        with Horizontal(id="worker-charts"):
            yield Chart(STEP_TIME, id="time")
            yield Chart(Measurement("cpu", "cpu", _percent, from_zero=True), id="cpu")
            memory = Measurement("memory", "memory", _size, from_zero=True)
            yield Chart(memory, id="memory")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        view = self._view
        facts = self.query_one("#worker-facts", TextPane)
        if view is None:
            facts.show_lines((), ((f"worker {self._index} has no heartbeat", "title"),))
            return
        best = self.run_app.worker_history.best_step_seconds(self._index)
        facts.show_lines(worker_lines(view, snapshot, best), title_of(view))
        samples = self.run_app.worker_history.samples(self._index)
        for chart in self.query(Chart):
            chart.show(replace(snapshot, samples=samples, lineage=Lineage(), event_log=()))

    def action_turn(self, places: int) -> None:
        """Shows another worker."""
        indexes = [view.status.index for view in self._snapshot.workers]
        if indexes:
            place = indexes.index(self._index) if self._index in indexes else 0
            self._index = indexes[(place + places) % len(indexes)]
            self.show(self._snapshot)

    def action_logs(self) -> None:
        """Opens the log of this worker."""
        self._open_log(self._index)

    @property
    def _view(self) -> WorkerView | None:
        return next((v for v in self._snapshot.workers if v.status.index == self._index), None)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def _size(value: float | None) -> str:
    return "–" if value is None else units.size(value)
