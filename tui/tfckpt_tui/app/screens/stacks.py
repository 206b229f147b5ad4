"""At which line of Python each worker is, asked now."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from textwrap import wrap
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.reports.stacks import StacksReport, WorkerStacksFacts
from tfckpt_tui.services.runs.stacks import innermost_frames, read_stacks

_ANSWER_SECONDS = 10.0


class StacksScreen(Page):
    """Asks all workers what their threads do, and shows the answers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "ask", "ask again", tooltip="Asks all workers again."),
        Binding(
            "a",
            "threads",
            "all threads",
            tooltip="Shows all threads with all frames, or only where the main thread is.",
        ),
        Binding("S", "close", "Back", show=False),
    ]
    caption = "the stacks"

    def __init__(self, run: RunDirectory) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
        """
        super().__init__()
        self._run = run
        self._report: StacksReport | None = None
        self._problem = ""
        self._is_asking = False
        self._shows_all = False

    def compose(self) -> ComposeResult:
        """Makes the text and the keys."""
        yield TextPane(id="stacks")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Asks for the first time."""
        self.query_one(TextPane).focus()
        self.action_ask()

    def action_ask(self) -> None:
        """Asks all workers, in a thread."""
        if self._is_asking:
            return
        self._is_asking = True
        work = partial(read_stacks, self._run, _ANSWER_SECONDS)
        self.run_app.start_job("stacks", work, self._take, self._fail)
        self._update()

    def action_threads(self) -> None:
        """Shows all threads, or only the main one of each worker."""
        self._shows_all = not self._shows_all
        self._update()

    def _take(self, report: StacksReport) -> None:
        self._is_asking, self._report, self._problem = False, report, ""
        self._update()

    def _fail(self, problem: str) -> None:
        self._is_asking, self._problem = False, problem
        self._update()

    def _update(self) -> None:
        if not is_open(self):
            return
        words: list[Span] = []
        if self._is_asking:
            words = [("asking the workers …", "busy")]
        elif self._report is not None:
            answered = sum(not worker.problem for worker in self._report.workers)
            of = f"{answered} of {units.count(len(self._report.workers), 'worker')} answered"
            words = [(of, "label")]
        pane = self.query_one(TextPane)
        width = max(20, pane.inner_size[0] or self.size.width - 4)
        pane.show_lines(list(self._lines(width)), (("stacks", "title"),), words)

    def on_resize(self) -> None:
        """Cuts long paths anew."""
        self._update()

    def _lines(self, width: int) -> Iterator[StyledLine]:
        yield from (line((part, "bad")) for part in wrap(self._problem, width))
        for worker in self._report.workers if self._report is not None else ():
            yield from _lines_of(worker, width, shows_all=self._shows_all)


def _lines_of(worker: WorkerStacksFacts, width: int, *, shows_all: bool) -> Iterator[StyledLine]:
    name, host = worker.name, f" on {worker.host}  "
    where = next((thread.script_line for thread in worker.threads if thread.is_main), "")
    first, *more = wrap(worker.problem, width - cell_len(name + host)) or [""]
    style = "warn" if worker.problem else "accent"
    said = first or _shortened(where, width - cell_len(name + host))
    yield line((name, "strong"), (host, "label"), (said, style))
    yield from (line((f"    {part}", style)) for part in more)
    for thread in worker.threads:
        if not (shows_all or thread.is_main):
            continue
        if shows_all:
            yield line((f"  {thread.name}", "value"))
        frames, left_out = innermost_frames(thread, shows_all=shows_all)
        if left_out:
            yield line((f"    … {left_out} more", "muted"))
        for frame in frames:
            yield line((f"    {shorten_middle(frame, width - 4)}", "muted"))


def _shortened(where: str, room: int) -> str:
    """Returns a line of the script, such as `/home/a/train.py:7: step(batch)`, with its number."""
    place, colon, source = where.partition(": ")
    short = shorten_middle(place, room)
    left = room - cell_len(short + colon)
    return f"{short}{colon}{shorten(source, left)}" if source and left > 0 else short
