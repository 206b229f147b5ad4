"""Pages with a tree of tensors: the base of all, and that of a file of another format."""

from __future__ import annotations

import shlex
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from tfckpt_trainer.bundle.analysis.statistics import Statistics
from tfckpt_trainer.bundle.exchange.verify_file import FileResult, verify_array_file
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.screens.page import Page, action_binding
from tfckpt_tui.app.widgets.base.columns import Column
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.search_input import SearchInput, search_binding
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, padded
from tfckpt_tui.app.widgets.checkpoints.checkpoint_lines import (
    fact_spans,
    statistics_lines,
    unverified_line,
)
from tfckpt_tui.app.widgets.checkpoints.variables import COLUMNS, FILE_COLUMNS, Variables
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.variable_tree import Tensor
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.checkpoints.tensor_files import (
    file_statistics,
    not_finite_words,
    tensors_in,
)

_TAKEN_BY = {
    "compare": "compare RUN CKPT {}",
    "extract": "extract RUN {} --to npz",
    "convert": "convert RUN NEW RUN/{} --like RUN CKPT",
}
"""Commands that the app has no keys for."""


def file_fact_lines(
    file: OtherFile,
    tensors: int | None,
    verdict: FileResult | None,
    at: float,
    *,
    verifies: bool,
    verify_key: str,
) -> list[StyledLine]:
    """Returns name, format, age and size, then the number of tensors, then the verification.

    Args:
        file: The file.
        tensors: How many it has; None if that is not known.
        verdict: What verifying it found; None if it was not verified.
        at: Now, in seconds since the epoch.
        verifies: Whether it is verified just now.
        verify_key: The key that verifies it.
    """
    epoch = () if file.epoch is None else fact_spans("epoch", f"{file.epoch:,}")
    step = () if file.step is None else fact_spans("step", f"{file.step:,}")
    age = units.age(max(0.0, at - file.saved_at))
    count = () if tensors is None else fact_spans("tensors", f"{tensors:,}")
    return [
        line(
            (clean(file.name), "title"),
            ("  ", ""),
            (file.format.name, "value"),
            *epoch,
            *step,
            *fact_spans("size", units.size(file.size)),
            *count,
            *fact_spans("saved", f"{age} ago, {units.local_time(file.saved_at)}"),
        ),
        _verification_line(verdict, verify_key, verifies=verifies),
    ]


def command_lines(file: OtherFile) -> list[StyledLine]:
    """Returns what loads a file, and commands that take it."""
    name = clean(shlex.quote(file.name))
    commands = [
        line((padded(verb, 11), "label"), (f"tfckpt-tui {words.format(name)}", "value"))
        for verb, words in _TAKEN_BY.items()
    ]
    loader = line(
        (padded("loaded by", 11), "label"), (file.format.reader.replace("`", ""), "value")
    )
    return [loader, *commands]


def _verification_line(
    verdict: FileResult | None, verify_key: str, *, verifies: bool
) -> StyledLine:
    if verifies:
        return line(("reading every byte…", "muted"))
    if verdict is None:
        return unverified_line(verify_key)
    if verdict.problem:
        return line((f"✗ {verdict.state}", "bad"))
    spans = [(f"✓ {verdict.state}: ", "good"), (verdict.reason, "muted")]
    if verdict.not_finite:
        spans.append((f"; {clean(not_finite_words(verdict))}", "bad"))
    return line(*spans)


StatisticsWork = Callable[[], Statistics | None]
"""Reads a tensor, in a thread; None if its elements are not numbers."""

LOOK = Binding(
    "enter",
    "look",
    "statistics",
    tooltip="Opens a group, or shows statistics and a histogram of a variable.",
)
SEARCH = search_binding("search", "Shows only variables whose path contains the text.")

_WIDE = 200
"""From here on, the list of variables is not narrower beside the details than above them."""


class TensorPage(Page):
    """Facts, a tree of tensors, and details, which the statistics of a tensor replace."""

    AUTO_FOCUS = "#variables"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    """The columns of the tree."""

    def __init__(self, name: str) -> None:
        """Makes the page of the checkpoint or the file with this name."""
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
        self._stored_in = name
        self._problem = ""
        self._statistics: tuple[Tensor, Statistics | None] | None = None
        self._asked: Tensor | None = None

    @abstractmethod
    def fact_lines(self) -> list[StyledLine]:
        """Returns the lines above the tree."""

    @abstractmethod
    def statistics_of(self, tensor: Tensor) -> StatisticsWork | None:
        """Returns what reads a tensor; None if that is not possible yet."""

    @abstractmethod
    def details(self) -> tuple[Span, list[StyledLine]]:
        """Returns title and lines of the details, while no statistics are shown."""

    @property
    def variables(self) -> Variables:
        """The tree of tensors."""
        return self.query_one(Variables)

    def compose(self) -> ComposeResult:
        """Makes facts, the tree, details, the search line and the keys."""
        yield TextPane(boxed=False, id="facts")
        with Container(id="page-body"):
            yield Variables(self.columns, id="variables")
            yield TextPane(id="details")
        yield SearchInput("part of a variable's path", focus_after="#variables")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows what is known already."""
        # `is_open` is true only after this handler.
        self.call_later(self._update)

    def end_current(self) -> bool:
        """Ends the search, or hides the statistics; returns whether it did."""
        if super().end_current():
            return True
        if self._statistics is None:
            return False
        self._statistics = None
        self._update()
        return True

    def action_look(self) -> None:
        """Opens the selected group, or reads the selected tensor and shows its statistics."""
        tensor = self.variables.selected_variable
        if self.variables.toggle() or tensor is None:
            return
        work = self.statistics_of(tensor)
        if work is None:
            return
        self._asked = tensor
        what = f"statistics of {clean(tensor.path)} in {clean(self._stored_in)}"
        self.run_app.start_job(what, work, partial(self._show_statistics, tensor), self._fail)
        self._update()

    @on(SearchInput.Searched)
    def _search(self, event: SearchInput.Searched) -> None:
        self.variables.search(event.text)

    @on(ListPane.Moved, "#variables")
    def _hide_statistics(self) -> None:
        if self._statistics is not None or self._asked is not None:
            self._statistics = self._asked = None
            self._update()

    def _show_statistics(self, tensor: Tensor, statistics: Statistics | None) -> None:
        if is_open(self) and self._asked is tensor:
            self._asked = None
            self._statistics = tensor, statistics
            self._update()

    def _fail(self, problem: str) -> None:
        self._problem, self._asked = problem, None
        self._update()

    def _update(self) -> None:
        if not is_open(self):
            return
        facts = [*self.fact_lines(), *self._problem_lines()]
        head = self.query_one("#facts", TextPane)
        head.styles.height = min(len(facts), 3 + self.size.height // 6)
        head.show_lines(facts)
        title, lines = self._shown_details()
        self.query_one("#details", TextPane).show_lines(lines, (title,))

    def _problem_lines(self) -> list[StyledLine]:
        parts = textwrap.wrap(self._problem, max(1, self.size.width - 4))
        return [
            line(("  " if number else "✗ ", "bad"), (part, "bad"))
            for number, part in enumerate(parts)
        ]

    def _shown_details(self) -> tuple[Span, list[StyledLine]]:
        if self._asked is not None:
            return (clean(self._asked.path), "title"), [line(("reading…", "muted"))]
        if self._statistics is not None:
            tensor, statistics = self._statistics
            width = self.query_one("#details", TextPane).inner_size[0]
            return (clean(tensor.path), "title"), statistics_lines(tensor.dtype, statistics, width)
        return self.details()


class FileScreen(TensorPage):
    """Everything about one file of another format, such as those of Keras."""

    BINDINGS: ClassVar[list[BindingType]] = [
        LOOK,
        SEARCH,
        action_binding(
            "verify",
            "verify",
            "verify",
            "Reads every byte, and compares the checksums that the file has.",
        ),
        action_binding("prune", "prune", "prune", "Moves this file to the trash; asks."),
        Binding("tab", "app.focus_next", "Next pane", show=False),
    ]
    caption = "a file of another format"
    columns = FILE_COLUMNS

    def __init__(
        self,
        run: RunDirectory,
        file: OtherFile,
        at: float,
        prune: Callable[[OtherFile], None] | None = None,
        *,
        verifies: bool = False,
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            file: What it shows.
            at: The time of the snapshot, in seconds since the epoch.
            prune: Prunes a file, after confirmation; None in an app that only reads.
            verifies: Whether it verifies the file at once.
        """
        super().__init__(file.name)
        self._run = run
        self._file = file
        self._at = at
        self._prune = prune
        self._count: int | None = None
        self._verdict: FileResult | None = None
        self._verifies_at_once = verifies
        self._verifies = False
        self._is_gone = False

    def on_mount(self) -> None:
        """Starts to read in a thread."""
        self._read()
        if self._verifies_at_once:
            self.action_verify()

    def show(self, snapshot: RunSnapshot) -> None:
        """Reads the file again if it changed; shows that it no longer exists."""
        self._at = snapshot.at
        file = next(
            (other for other in snapshot.other_files if other.name == self._file.name), None
        )
        was_gone, self._is_gone = self._is_gone, file is None
        if file is None:
            self._problem = "This file no longer exists: it was pruned, or deleted by its program."
        elif was_gone or file != self._file:
            self._file, self._verdict, self._statistics = file, None, None
            self._read()
        self._update()

    def shown_bindings(self) -> list[Binding]:
        """Returns the bindings that do something here; an app that only reads prunes nothing."""
        is_read_only = self._prune is None
        return [
            binding
            for binding in super().shown_bindings()
            if not (is_read_only and binding.id == "prune")
        ]

    def action_prune(self) -> None:
        """Asks whether to move the file to the trash."""
        if self._prune is not None:
            self._prune(self._file)

    def action_verify(self) -> None:
        """Reads all of the file, and shows what was found."""
        if self._verifies:
            return
        self._verifies = True
        work = partial(verify_array_file, self._run.root / self._file.name)
        what = f"verify {clean(self._file.name)}"
        then = partial(self._show_verdict, self._file)
        self.run_app.start_job(what, work, then, partial(self._fail_to_verify, self._file))
        self._update()

    def _read(self) -> None:
        file = self._file
        work = partial(tensors_in, self._run, file)
        what = f"inspect {clean(file.name)}"
        then = partial(self._show_tensors, file)
        self.run_app.start_job(what, work, then, partial(self._fail_to_read, file))

    # -- results of jobs; those about a file that has changed since are out of date -----------

    def _show_tensors(self, file: OtherFile, tensors: Sequence[Tensor]) -> None:
        if is_open(self) and file is self._file:
            self._problem, self._count = "", len(tensors)
            self.variables.show_variables(tensors)
            self._update()

    def _fail_to_read(self, file: OtherFile, problem: str) -> None:
        if is_open(self) and file is self._file:
            self._count = None
            self.variables.show_variables(())
            self.variables.show_failure("the file")
            self._fail(problem)

    def _show_verdict(self, file: OtherFile, verdict: FileResult) -> None:
        self._verifies = False
        if file is self._file:
            self._verdict, self._problem = verdict, clean(verdict.problem)
        self._update()

    def _fail_to_verify(self, file: OtherFile, problem: str) -> None:
        self._verifies = False
        self._fail(problem if file is self._file else "")

    # -- what it shows -----------------------------------------------------------------------

    def fact_lines(self) -> list[StyledLine]:
        """Returns the facts about the file, and its verification."""
        return file_fact_lines(
            self._file,
            self._count,
            self._verdict,
            self._at,
            verifies=self._verifies,
            verify_key=self.run_app.key_of("verify"),
        )

    def statistics_of(self, tensor: Tensor) -> StatisticsWork:
        """Returns what reads a tensor."""
        return partial(file_statistics, self._run, self._file, tensor.name)

    def details(self) -> tuple[Span, list[StyledLine]]:
        """Returns what loads the file, and commands that take it."""
        return ("commands", "title"), command_lines(self._file)
