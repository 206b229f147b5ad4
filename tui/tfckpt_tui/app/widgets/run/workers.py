"""The table of workers: activity, step time, resources and age of the heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

from tfckpt_trainer.rundir.heartbeats.health import MAKES_NO_STEPS, RunState, WorkerState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.icons import WORKER
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span, line, shorten
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.worker_phases import phase_in_words
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.account import WorkerView

_COLUMNS = (
    Column("index", "worker", 6),
    Column("job", "job", 6, align="<"),
    Column("state", "state", 11, align="<"),
    Column("host", "host", 10, rank=7, align="<", stretch=1),
    Column("pid", "pid", 7, rank=12),
    Column("step", "step", 9),
    Column("time", "step time", 9, rank=1),
    Column("p95", "p95", 7, rank=4),
    Column("input", "input wait", 10, rank=6),
    Column("loss", "loss", 8, rank=2),
    Column("cpu", "cpu", 5, rank=3),
    Column("memory", "memory", 8, rank=4),
    Column("gpu", "gpu", 5, rank=5),
    Column("gpu-memory", "gpu memory", 14, rank=8),
    Column("age", "heard", 6),
    Column("detail", "", 16, rank=11, align="<", stretch=4),
)
_SENTENCE = Column("detail", "", 24, rank=1, align="<", stretch=4)
"""Details where they matter more than measurements: while workers start, or keep all from acting.
"""

_MEASURED = frozenset({"time", "p95", "input", "loss"})
_TROUBLE = {WorkerState.LOST: 3, WorkerState.STALLED: 2, WorkerState.EXITED: 1}
_STALE = 3.0
_ENDED = {
    RunState.QUEUED,
    RunState.STOPPED,
    RunState.FINISHED,
    RunState.REFUSED,
    RunState.UNANSWERED,
}


class Workers(ListPane[WorkerView]):
    """The table of workers."""

    has_cursor = False
    title = "workers"
    columns = _COLUMNS

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot; workers in trouble come first if not all fit."""
        self.snapshot = snapshot
        workers: Sequence[WorkerView] = snapshot.workers
        if len(workers) > self.visible_rows():
            workers = sorted(workers, key=_trouble, reverse=True)
        self.show_rows(workers)

    def note(self) -> Sequence[Span]:
        """Returns the number of live workers, and of restarts."""
        snapshot = self.snapshot
        if snapshot is None:
            return ()
        spans: list[Span] = []
        supervisor = snapshot.supervisor
        if supervisor is not None and supervisor.attempt:
            most = units.count(supervisor.max_restarts, "time")
            times = f"restarted {supervisor.attempt} of {most}"
            spans += [(times, "warn"), *([(" · ", "faint")] if snapshot.workers else [])]
        gone = {WorkerState.LOST, WorkerState.EXITED}
        live = sum(worker.state not in gone for worker in snapshot.workers)
        total = len(snapshot.workers)
        if total and snapshot.state in _ENDED:
            spans.append((units.count(total, "worker"), "label"))
        elif total:
            spans.append((f"{live} of {total} live", "value" if live == total else "bad"))
        return spans

    def heading(self) -> Sequence[Span]:
        """Returns the title, and what slows a worker where no column has room for it."""
        slow = next((worker for worker in self.rows if worker.straggling), None)
        shown = self.column_layout(self.inner_size[0]).width_of("detail")
        if slow is None or self._hangs or shown >= cell_len(slow.straggling):
            return super().heading()
        words = f"worker {slow.status.index} {slow.straggling}"
        # Besides the corners, the title's own word, and a space on each side of both texts.
        room = max(0, self.size.width - 20 - line(*self.note()).width)
        return (*super().heading(), ("  ! ", "warn"), (shorten(words, room), "warn"))

    def row_key(self, row: int) -> str:
        """Returns the index of the worker."""
        return str(self.rows[row].status.index)

    def why_empty(self) -> str:
        """Returns why there are no workers."""
        if self.snapshot is None:
            return ""
        if self.snapshot.tracked:
            return "no worker has written a heartbeat yet"
        return "not trained with tfckpt-tui; checkpoints can be inspected and pruned"

    def cells(self, row: WorkerView, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns one worker."""
        del layout
        return _cells(row, self._at)

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that matter now, as many as fit."""
        return choose(self._columns(), width)

    @property
    def _at(self) -> float:
        return self.snapshot.at if self.snapshot is not None else 0.0

    @property
    def _hangs(self) -> bool:
        """Whether a worker keeps all from acting."""
        return self.snapshot is not None and bool(self.snapshot.hang)

    def _columns(self) -> list[Column]:
        workers = self.snapshot.workers if self.snapshot else ()
        has_gpu = any(worker.status.gpus for worker in workers)
        hidden = set() if has_gpu else {"gpu", "gpu-memory"}
        if all(worker.status.job == "worker" for worker in workers):
            hidden.add("job")
        if not any(_detail(worker, self._at) or worker.straggling for worker in workers):
            hidden.add("detail")
        columns = [column for column in self.columns if column.key not in hidden]
        if self._hangs and any(worker.straggling for worker in workers):
            columns[-1] = _SENTENCE
        if not any(worker.status.is_starting for worker in workers):
            return columns
        return [column for column in columns if column.key not in {*_MEASURED, "detail"}] + [
            _SENTENCE
        ]


def _trouble(worker: WorkerView) -> int:
    """Returns how much attention a worker needs; equal ones keep their order."""
    return 2 * _TROUBLE.get(worker.state, 0) + bool(worker.straggling)


def _cells(worker: WorkerView, at: float) -> dict[str, Sequence[Span]]:
    status, sign = worker.status, WORKER[worker.state]
    stale = worker.age > _STALE * status.interval_seconds
    is_past = worker.is_past
    value = "muted" if stale or is_past else "value"
    # Measured in steps that are over.
    measured = "muted" if worker.state in MAKES_NO_STEPS else value
    serves = status.activity is Activity.SERVING
    used = sum(gpu.memory_used for gpu in status.gpus)
    total = sum(gpu.memory_total for gpu in status.gpus)
    uses = [gpu.use_percent for gpu in status.gpus if gpu.use_percent is not None]
    busiest = max(uses, default=None)
    return {
        "index": ((str(status.index), "strong"),),
        "job": ((clean(status.job), value),),
        "state": sign.with_word(worker.state.value),
        "host": ((clean(status.host), value),),
        "pid": ((str(status.pid), "muted"),),
        "step": ((f"{status.step:,}" if status.has_position and not serves else "–", value),),
        "time": ((_or_dash(status.step_seconds, units.step_time), measured),),
        "p95": ((_or_dash(status.step_seconds_p95, units.step_time), measured),),
        "input": ((_or_dash(status.input_wait_seconds, units.step_time), measured),),
        "loss": ((_loss(worker), "bad" if _loss(worker) == "NaN" else value),),
        "cpu": ((_or_dash(None if is_past else status.cpu_percent, _percent), value),),
        "memory": ((_or_dash(None if is_past else status.memory_bytes, units.size), value),),
        "gpu": ((_or_dash(busiest, _percent), value),),
        "gpu-memory": ((f"{units.size(used)} of {units.size(total)}", value),),
        "age": ((units.age(worker.age), "bad" if stale else "muted"),),
        "detail": ((worker.straggling, "warn"), (_detail(worker, at), "muted")),
    }


def _detail(worker: WorkerView, at: float) -> str:
    status = worker.status
    ending = status.ending.value if status.ending is not None else ""
    phase = phase_in_words(status, at) if worker.is_starting else ""
    said = " · ".join(part for part in (ending, phase, clean(status.detail)) if part)
    return f" · {said}" if said and worker.straggling else said


def _loss(worker: WorkerView) -> str:
    status = worker.status
    if status.loss is None and "loss" not in status.metrics:
        return "–"
    return units.metric(status.loss)


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _or_dash(value: float | None, show: Callable[[float], str]) -> str:
    return "–" if value is None else show(value)
