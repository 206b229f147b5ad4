"""One worker: activity, step time, resources, and charts since the app was opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from tfckpt_trainer.catalog.scan.lineage import Lineage
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.icons import WORKER
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import TextPane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.charting.measurements import STEP_TIME, Measurement
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.worker_columns import WorkerView, phase_in_words
from tfckpt_tui.monitor.snapshot import RunSnapshot

_GAP: Span = ("   ", "")


def title_of(view: WorkerView) -> Sequence[Span]:
    """Returns index, job and state."""
    status = view.status
    job = f", {clean(status.job)}" if status.job != "worker" else ""
    return (
        (f"worker {status.index}{job}", "title"),
        ("  ", ""),
        *WORKER[view.state].with_word(view.state.value),
    )


def worker_lines(view: WorkerView, snapshot: RunSnapshot, best: float | None) -> list[StyledLine]:
    """Returns all facts about a worker.

    Args:
        view: The worker.
        snapshot: Its run.
        best: Its fastest median step time since the app was opened, in seconds.
    """
    status = view.status
    lines = [_process_line(view), _activity_line(view, snapshot.at)]
    if view.straggling:
        lines.append(line(("▲ ", "warn"), (view.straggling, "warn")))
    lines += [
        _step_time_line(status),
        _comparison_line(status, snapshot, best),
        _resource_line(view),
    ]
    lines += [
        line(
            ("gpu ", "label"),
            (clean(gpu.name), "value"),
            *([] if gpu.use_percent is None else _fact("busy", f"{gpu.use_percent:.0f}%")),
            *_fact("memory", f"{units.size(gpu.memory_used)} of {units.size(gpu.memory_total)}"),
        )
        for gpu in status.gpus
    ]
    if snapshot.gpus:
        lines.append(line(("gpus of the run ", "label"), (clean(snapshot.gpus), "value")))
    if status.metrics:
        spans: list[Span] = []
        for name, value in status.metrics.items():
            spans += [(f"{clean(name)} ", "label"), (units.metric(value), "value"), _GAP]
        lines.append(StyledLine(tuple(spans)))
    return [row for row in lines if row.spans]


def _process_line(view: WorkerView) -> StyledLine:
    status = view.status
    since = units.local_time(status.process_started_at)
    return line(
        ("host ", "label"),
        (clean(status.host), "value"),
        *_fact("process", str(status.pid)),
        *_fact("since", since),
        *_fact("heard", _ago(view.age)),
    )


def _activity_line(view: WorkerView, at: float) -> StyledLine:
    status = view.status
    spans: list[Span] = [("step ", "label"), (f"{status.step:,}", "value")]
    spans += _fact("branch", str(status.branch))
    phase = "" if view.is_past else phase_in_words(status, at)
    if phase:
        spans += [_GAP, (phase, "muted")]
    if status.last_step_at is not None:
        spans += _fact("last step", _ago(at - status.last_step_at))
    if status.ending is not None:
        spans += _fact("ended", status.ending.value)
    if status.detail:
        spans += [_GAP, (clean(status.detail), "muted")]
    return StyledLine(tuple(spans))


def _step_time_line(status: WorkerStatus) -> StyledLine:
    if status.step_seconds is None:
        return StyledLine()
    spans = [
        ("step time ", "label"),
        (units.step_time(status.step_seconds), "value"),
        *_fact("95th percentile", units.step_time(status.step_seconds_p95)),
        *_fact("input wait", units.step_time(status.input_wait_seconds)),
    ]
    if status.examples_per_second is not None:
        spans += _fact("all workers", units.rate(status.examples_per_second, " examples"))
    return StyledLine(tuple(spans))


def _comparison_line(status: WorkerStatus, snapshot: RunSnapshot, best: float | None) -> StyledLine:
    """Compares the step time with the fastest worker, and with its own best."""
    own = status.step_seconds
    others = [v.status.step_seconds for v in snapshot.workers if v.status.step_seconds]
    if not own or not others:
        return StyledLine()
    spans = [*_ratio("of the fastest worker's", own / min(others))]
    if best:
        spans += [_GAP, *_ratio("of its own best", own / best)]
    return StyledLine((("takes ", "label"), *spans))


def _ratio(words: str, ratio: float) -> Sequence[Span]:
    style = "bad" if ratio >= 2 else "warn" if ratio >= 1.3 else "value"
    return ((f"{ratio:.0%} ", style), (words, "muted"))


def _resource_line(view: WorkerView) -> StyledLine:
    status = view.status
    spans: list[Span] = [("last heard: ", "muted")] if view.is_past else []
    if status.cpu_percent is not None:
        spans += [("cpu ", "label"), (f"{status.cpu_percent:.0f}% of a core", "value")]
    if status.cpu_stall_ratio is not None:
        style = "warn" if status.cpu_stall_ratio > 0.25 else "value"
        spans += [_GAP, ("CPU stall ", "label"), (f"{status.cpu_stall_ratio:.0%}", style)]
    if status.memory_bytes is not None:
        spans += _fact("memory", units.size(status.memory_bytes))
    if status.measured_at is not None:
        spans += _fact("measured", _ago(view.measured_age))
    return StyledLine(tuple(spans))


def _ago(seconds: float) -> str:
    return f"{units.age(seconds)} ago" if seconds >= 1 else "now"


def _fact(name: str, value: str) -> tuple[Span, ...]:
    return _GAP, (f"{name} ", "label"), (value, "value")


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
