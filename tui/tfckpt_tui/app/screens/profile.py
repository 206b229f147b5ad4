"""The traces of the run: a list, and the slowest operations of the selected one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app.protocols import words_of
from tfckpt_tui.app.screens.page import Page, action_binding
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.reports.profile import OperationFacts
from tfckpt_tui.services.runs.traces import COLUMNS, Trace, find_traces, read_operations

_OPERATIONS = (
    Column("share", "share", 6),
    Column("time", "a step", 8),
    Column("calls", "calls", 6, rank=2),
    Column("place", "on", 5, rank=1, align="<"),
    Column("kind", "type", 20, rank=1, align="<", stretch=1),
    Column("name", "operation", 24, align="<", stretch=4),
)

_NONE = (
    "No step was traced yet. A trace tells which operations took most of the time of a step, on "
    "each worker."
)
_TRACE = "Press n to trace the next steps; it asks how many, and on which workers."


class TraceList(ListPane[Trace]):
    """Shows the traces, newest first, and what tracing cost."""

    title = "traces"
    declared = COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._busy = "reading …"

    def show_traces(self, traces: Sequence[Trace], at: float, busy: str) -> None:
        """Shows traces.

        Args:
            traces: The traces.
            at: The time now (seconds since the epoch).
            busy: What goes on; empty if nothing does.
        """
        self.at, self._busy = at, busy
        self.show_rows(traces)

    def note(self) -> Sequence[Span]:
        """Returns what goes on."""
        return ((self._busy, "busy"),) if self._busy else ()

    def row_key(self, row: int) -> str:
        """Returns the file."""
        return str(self.rows[row].path)


class OperationList(ListPane[OperationFacts]):
    """Shows the slowest operations of one trace, or why there are none."""

    columns = _OPERATIONS
    has_cursor = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._path = ""
        self._steps: int | None = None
        self._words: Sequence[Span] = ()

    def show_operations(
        self, operations: Sequence[OperationFacts], path: str, steps: int | None
    ) -> None:
        """Shows operations.

        Args:
            operations: The longest first.
            path: Of the trace; safe to show.
            steps: How many steps it has; None if that is unknown.
        """
        self._path, self._steps, self._words = path, steps, ()
        self.show_rows(operations)

    def show_words(self, path: str, *words: Span) -> None:
        """Shows texts instead of operations; they are safe to show."""
        self._path, self._words = path, words
        self.show_rows(())

    def heading(self) -> Sequence[Span]:
        """Returns the title, if a trace is selected."""
        return (("slowest operations", "title"),) if self._path else ()

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the path, and the headings."""
        path = [line((shorten_middle(self._path, width), "muted"))] if self._path else []
        return [*path, *super().head_lines(width)]

    def empty_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the texts."""
        parts = ((part, style) for text, style in self._words for part in wrap(text, width))
        return [line(part) for part in parts]

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit, without those that are unknown or the same everywhere."""
        shown = {"time": self._steps, "place": len({one.place for one in self.rows}) > 1}
        return choose([c for c in _OPERATIONS if shown.get(c.key, True)], width)

    def cells(self, row: OperationFacts, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one operation."""
        # The beginning of a name says in which layer, and the end what it is.
        name = shorten_middle(row.name, layout.width_of("name"))
        return {
            "share": ((f"{row.share:.1%}", "value"),),
            "time": ((units.step_time(row.seconds / (self._steps or 1)), "strong"),),
            "calls": ((f"{row.calls:,}", "muted"),),
            "place": ((row.place, "muted"),),
            "kind": ((row.kind, "value"),),
            "name": ((name, "muted"),),
        }


class ProfileScreen(Page):
    """Shows the traces of the run and their slowest operations, and traces more steps."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "n",
            "trace",
            "new trace",
            tooltip="Asks how many steps to trace, and on which workers. Training goes on.",
        ),
        action_binding(
            "tensorboard",
            "tensorboard",
            "TensorBoard",
            "Starts TensorBoard, or shows where it is. Its profile plugin shows the traces: "
            "pip install tensorboard-plugin-profile.",
        ),
        Binding("P", "close", "Back", show=False),
    ]
    caption = "the profile"
    AUTO_FOCUS = "#trace-list"

    def __init__(
        self,
        run: RunDirectory,
        snapshot: RunSnapshot,
        trace: Callable[[], None],
        open_tensorboard: Callable[[], None],
        why_not: Callable[[RunSnapshot], str | Advice],
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            snapshot: Of the run.
            trace: Traces steps, after asking.
            open_tensorboard: Opens the dialog of TensorBoard.
            why_not: Returns why no steps can be traced, as sentences; empty if they can.
        """
        super().__init__()
        self._run = run
        self._snapshot = snapshot
        self._trace = trace
        self._open_tensorboard = open_tensorboard
        self._why_not = why_not
        self._traces: tuple[Trace, ...] | None = None
        self._problem = ""
        self._operations: dict[Path, tuple[OperationFacts, ...] | str] = {}
        self._reading: Path | None = None
        self._answered: frozenset[str] | None = None

    def compose(self) -> ComposeResult:
        """Makes the list, the operations and the keys."""
        yield TraceList(id="trace-list")
        yield OperationList(id="operations")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Reads the traces."""
        self.call_later(self.show, self._snapshot)

    def shown_bindings(self) -> list[Binding]:
        """Returns the keys, without the one that traces if that is impossible now."""
        can_trace = not self._why_not(self._snapshot)
        return [b for b in super().shown_bindings() if b.action != "trace" or can_trace]

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says of a run without traces."""
        if self._traces is None or self._traces or self._problem or self._busy():
            return None
        why_not = self._why_not(self._snapshot)
        return EmptyPage(
            purpose=_NONE,
            advice=(why_not or _TRACE,),
            keeps=("trace", "tensorboard"),
        )

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot; reads the traces again if a command has ended since."""
        self._snapshot = snapshot
        commands = (one for one in snapshot.finished if one.kind is CommandKind.PROFILE)
        answered = frozenset(command.id for command in commands)
        if answered != self._answered:
            self._answered = answered
            work = partial(find_traces, self._run)
            self.run_app.start_job("profile", work, self._take, self._fail)
        self._update()

    def action_trace(self) -> None:
        """Traces steps, after asking."""
        why_not = self._why_not(self._snapshot)
        if why_not:
            self.notify(words_of(self, why_not), severity="warning", markup=False)
        else:
            self._trace()

    def action_tensorboard(self) -> None:
        """Opens the dialog of TensorBoard."""
        self._open_tensorboard()

    def _take(self, found: tuple[Trace, ...]) -> None:
        newest_before = self._traces[0].path if self._traces else None
        self._traces, self._problem = found, ""
        self._update()
        if is_open(self) and found and newest_before not in {None, found[0].path}:
            self.query_one(TraceList).move_to(0)

    def _fail(self, problem: str) -> None:
        self._traces, self._problem = self._traces or (), problem
        self._update()

    @on(ListPane.Moved, "#trace-list")
    def _update(self) -> None:
        if not is_open(self):
            return
        traces, snapshot = self._traces or (), self._snapshot
        self.query_one(TraceList).show_traces(traces, snapshot.at, self._busy())
        self._show_operations(self.query_one(TraceList).selected)
        self.update_keys()

    def _show_operations(self, trace: Trace | None) -> None:
        pane = self.query_one(OperationList)
        if trace is None:
            pane.show_words("", (self._problem, "bad"))
            return
        self._read(trace.path)
        below, root = trace.path, self._run.root
        path = clean(str(below.relative_to(root) if below.is_relative_to(root) else below))
        read = self._operations.get(trace.path)
        if read is None:
            pane.show_words(path, ("reading …", "busy"))
        elif isinstance(read, str):
            pane.show_words(path, (read, "bad"))
        else:
            steps = trace.recorded.steps if trace.recorded is not None else None
            pane.show_operations(read, path, steps)

    def _busy(self) -> str:
        if self._traces is None:
            return "reading …"
        commands = (*self._snapshot.pending, *self._snapshot.working)
        is_tracing = any(command.kind is CommandKind.PROFILE for command in commands)
        return "tracing …" if is_tracing else ""

    def _read(self, path: Path) -> None:
        """Reads the operations of a trace, in a thread: a large one takes seconds."""
        if path in self._operations or self._reading is not None:
            return
        self._reading = path

        def take(result: tuple[OperationFacts, ...] | str) -> None:
            self._operations[path], self._reading = result, None
            self._update()

        self.run_app.start_job("profile", partial(read_operations, path), take, take)
