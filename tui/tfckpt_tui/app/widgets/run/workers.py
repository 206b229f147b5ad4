"""The table of workers: activity, step time, resources and age of the heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from tfckpt_trainer.rundir.heartbeats.health import MAKES_NO_STEPS, RunState, WorkerState
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose, column_of
from tfckpt_tui.app.widgets.base.icons import WORKER
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span, line, shorten
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.worker_columns import COLUMNS, WorkerView, json_values, phase_in_words
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.reports.run_facts import WorkerLine

_COLUMNS = tuple(
    column_of(column.key, column.cell) for column in COLUMNS if column.cell is not None
)
_SENTENCE = Column("detail", "", 24, rank=1, align="<", stretch=4)
"""Details where they matter more than measurements: while workers start, or keep all from acting.
"""

_MEASURED = frozenset(column.key for column in COLUMNS if column.is_measured)
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
            spans.append((_restarts(supervisor), "warn"))
            spans += [(" · ", "faint")] if snapshot.workers else []
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
        if self.snapshot is None or not self.snapshot.present:
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
        hidden = {
            column.key
            for column in COLUMNS
            if column.matters is not None and not any(map(column.matters, workers))
        }
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


def _restarts(supervisor: SupervisorStatus) -> str:
    """Returns how often all workers were restarted; a new checkpoint allows as many again."""
    most = units.count(supervisor.max_restarts, "time")
    if supervisor.restarts == supervisor.attempt:
        return f"restarted {supervisor.attempt} of {most}"
    all_of_them = f"restarted {units.count(supervisor.attempt, 'time')}"
    in_a_row = f", {supervisor.restarts} of {supervisor.max_restarts} in a row"
    return all_of_them + (in_a_row if supervisor.restarts > 1 else "")


def _trouble(worker: WorkerView) -> int:
    """Returns how much attention a worker needs; equal ones keep their order."""
    return 2 * _TROUBLE.get(worker.state, 0) + bool(worker.straggling)


def _cells(worker: WorkerView, at: float) -> dict[str, Sequence[Span]]:
    status, facts = worker.status, WorkerLine(*json_values(worker, at))
    stale = worker.age > _STALE * status.interval_seconds
    value = "muted" if stale or worker.is_past else "value"
    # Measured in steps that are over.
    measured = "muted" if worker.state in MAKES_NO_STEPS else value
    cells: dict[str, Sequence[Span]] = {}
    for column in COLUMNS:
        if column.cell is None:
            continue
        style = column.cell.style
        if style == "value":
            style = measured if column.is_measured else value
        cells[column.key] = ((clean(column.text(facts)), style),)
    ((loss, _),) = cells["loss"]
    return {
        **cells,
        "state": WORKER[worker.state].with_word(worker.state.value),
        "loss": ((loss, "bad" if loss == "NaN" else value),),
        "age": ((units.age(worker.age), "bad" if stale else "muted"),),
        "detail": ((worker.straggling, "warn"), (_detail(worker, at), "muted")),
    }


def _detail(worker: WorkerView, at: float) -> str:
    status = worker.status
    ending = status.ending.value if status.ending is not None else ""
    phase = phase_in_words(status, at) if worker.is_starting else ""
    said = " · ".join(part for part in (ending, phase, clean(status.detail)) if part)
    return f" · {said}" if said and worker.straggling else said
