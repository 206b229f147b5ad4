"""The processes that train without this library, and the lines that their script needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page, action_binding
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.styled_text import StyledLine, line, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.process_columns import COLUMNS, HostProcess, process_facts
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.steering_lines import steering_lines

_LABEL_WIDTH = 11


class ProcessList(ListPane[HostProcess]):
    """Lists the processes."""

    title = "processes without tfckpt_trainer"
    declared = COLUMNS

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.at = snapshot.at
        self.show_rows(snapshot.processes)

    def row_key(self, row: int) -> str:
        """Returns what tells a process from a later one with its number."""
        return f"{self.rows[row].pid} {self.rows[row].after_boot}"

    def why_empty(self) -> str:
        """Returns why there are none."""
        return "no process of this user writes here now"


class ProcessesScreen(Page):
    """Lists the processes, and shows the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        action_binding("stop", "end", "stop", "Ends the selected process by SIGTERM; asks first."),
        action_binding("stacks", "stacks", "stacks", "Asks py-spy at which line each process is."),
        action_binding("logs", "logs", "logs", "Reads the files to which the processes print."),
        action_binding("copy", "copy", "copy lines", "Copies the lines that the script needs."),
        Binding("worker", "close", "Back", show=False, id="worker"),
    ]
    caption = "processes"
    AUTO_FOCUS = "#process-list"

    def __init__(
        self,
        snapshot: RunSnapshot,
        stop: Callable[[HostProcess], None],
        perform: Callable[[str], None],
        refusal: str,
    ) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            stop: Ends a process, after asking.
            perform: Performs an action of the dashboard.
            refusal: Why no process can be ended; empty if one can.
        """
        super().__init__()
        self._snapshot = snapshot
        self._stop = stop
        self._perform = perform
        self._refusal = refusal

    def compose(self) -> ComposeResult:
        """Makes the list, the selected process and the keys."""
        yield ProcessList(id="process-list")
        yield TextPane(id="process")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(ProcessList).show(snapshot)
        self._update()

    def action_end(self) -> None:
        """Ends the selected process, after asking."""
        if self._refusal:
            self.notify(self._refusal, severity="warning", markup=False)
        elif self._selected is not None:
            self._stop(self._selected)

    def action_stacks(self) -> None:
        """Shows what the threads of the processes do."""
        self._perform("stacks")

    def action_logs(self) -> None:
        """Opens what the processes print."""
        self._perform("logs")

    def action_copy(self) -> None:
        """Copies the lines that the script needs."""
        lines = steering_lines(self._snapshot.root)
        copy_text(self, "\n".join(lines), units.count(len(lines), "line"))

    @property
    def _selected(self) -> HostProcess | None:
        return self.query_one(ProcessList).selected

    @on(ListPane.Moved, "#process-list")
    def _update(self) -> None:
        pane, selected = self.query_one("#process", TextPane), self._selected
        width = max(20, pane.inner_size[0] or self.size.width - 4)
        title = () if selected is None else ((selected.name, "title"),)
        pane.show_lines([*self._lines(selected, width)], title)

    def on_resize(self) -> None:
        """Cuts long paths anew."""
        self._update()

    def _lines(self, selected: HostProcess | None, width: int) -> Iterator[StyledLine]:
        for label, text in process_facts(selected) if selected is not None else ():
            shown = shorten_middle(text, width - _LABEL_WIDTH)
            yield line((f"{label:<{_LABEL_WIDTH}}", "label"), (shown, "value"))
        yield line()
        yield line(("save, restore and set need two lines in the script:", "label"))
        for text in steering_lines(self._snapshot.root):
            yield line((text, "muted" if text.startswith("#") else "value"))
