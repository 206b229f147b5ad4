"""One checkpoint: what it is, whether it is sound, its variables, what resuming brings back."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.analysis.statistics import Statistics
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_tui.app.screens.opened import is_open
from tfckpt_tui.app.screens.page import Page, search_binding
from tfckpt_tui.app.widgets.base.facts import Facts
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.listing import Listing
from tfckpt_tui.app.widgets.base.painting import Line, Span, line
from tfckpt_tui.app.widgets.base.search_line import SearchLine
from tfckpt_tui.app.widgets.checkpoints.checkpoint_lines import (
    check_lines,
    fact_lines,
    record_lines,
    resumed_lines,
    statistics_lines,
)
from tfckpt_tui.app.widgets.checkpoints.variables import Variables
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.background_verifier import Outcome, Reading
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.inspect import Inspection, inspect, statistics_of
from tfckpt_tui.services.verify import can_be_verified, remembered

_POLL_SECONDS = 0.2
_WIDE = 150


class CheckpointScreen(Page):
    """Everything known of one checkpoint."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "look",
            "statistics",
            tooltip="Opens a group; of a variable, its figures and its histogram.",
        ),
        search_binding("search", "Only variables with a text in their path."),
        Binding(
            "v",
            "verify",
            "verify",
            tooltip="Reads every byte, in the background; pressed again, it gives up.",
        ),
        Binding("tab", "app.focus_next", "Next pane", show=False),
    ]
    caption = "a checkpoint"
    AUTO_FOCUS = "#variables"

    def __init__(self, run: RunDirectory, checkpoint: Checkpoint, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
        self._run = run
        self._checkpoint = checkpoint
        self._at = snapshot.at
        self._found: Inspection | None = None
        self._known: VerificationRecord | None = None
        self._problem = ""
        self._statistics: tuple[Variable, Statistics | None] | None = None
        self._asked: Variable | None = None
        self._was_reading = False

    def compose(self) -> ComposeResult:
        """Makes facts, the tree, details, the search line and the keys."""
        yield Facts(boxed=False, id="facts")
        with Container(id="checkpoint-body"):
            yield Variables(id="variables")
            yield Facts(id="details")
        yield SearchLine("a part of a variable's path", focus_after="#variables")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begins to read; the screen is there at once."""
        name = self._checkpoint.name
        work = partial(inspect, self._run, self._checkpoint)
        self.tfckpt.start_job(f"inspect {clean(name)}", work, self._take, self._fail)
        self._look_for_verification()
        self.set_interval(_POLL_SECONDS, self._poll)
        # Not before Textual takes the screen for mounted.
        self.call_later(self._update)

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot: the state may be another one, or the checkpoint gone."""
        self._at = snapshot.at
        checkpoint = snapshot.checkpoint(self._checkpoint.name)
        if checkpoint is None:
            self._problem = "It is not there any more: pruned, or rotated away by its trainer."
        else:
            self._checkpoint = checkpoint
        self._update()

    def verified(self, outcome: Outcome) -> None:
        """Takes the outcome of a verification."""
        if outcome.name == self._checkpoint.name:
            if outcome.found is not None:
                self._known = outcome.found.record
            else:
                self._problem = clean(outcome.problem)
            self._update()

    # -- what the keys do --------------------------------------------------------------------

    def action_back(self) -> None:
        """Ends a search or the look at one variable, or closes the screen."""
        if self.query_one(SearchLine).leave():
            return
        if self._statistics is not None:
            self._statistics = None
            self._update()
        else:
            self.dismiss()

    def action_look(self) -> None:
        """Opens a group, or reads the variable under the cursor and shows its figures."""
        tree = self.query_one(Variables)
        variable, found = tree.selected, self._found
        if tree.toggle() or variable is None or found is None:
            return
        self._asked = variable
        what = f"statistics of {clean(variable.path)} in {clean(self._checkpoint.name)}"
        work = partial(statistics_of, self._run, found, variable)
        then = partial(self._take_statistics, variable)
        self.tfckpt.start_job(what, work, then, self._fail)
        self._update()

    def action_verify(self) -> None:
        """Reads every byte, in the background, or gives that up."""
        if self._reading is not None:
            self.tfckpt.verifier.cancel()
        elif can_be_verified(self._checkpoint):
            self.tfckpt.verifier.ask(self._checkpoint.name)
        else:
            self.notify(clean(self._checkpoint.problem), severity="warning", markup=False)
        self._poll()

    @on(SearchLine.Searched)
    def _search(self, event: SearchLine.Searched) -> None:
        self.query_one(Variables).search(event.text)

    @on(Listing.Moved, "#variables")
    def _leave_statistics(self) -> None:
        if self._statistics is not None or self._asked is not None:
            self._statistics = self._asked = None
            self._update()

    # -- what comes back ---------------------------------------------------------------------

    def _take(self, found: Inspection) -> None:
        if is_open(self):
            self._found = found
            tree = self.query_one(Variables)
            tree.show_variables(found.variables, found.damage)
            if found.index is None:
                tree.show_failure()
            self._update()

    def _take_statistics(self, variable: Variable, found: Statistics | None) -> None:
        if is_open(self) and self._asked is variable:
            self._asked = None
            self._statistics = variable, found
            self._update()

    def _fail(self, problem: str) -> None:
        self._problem, self._asked = problem, None
        self._update()

    def _look_for_verification(self) -> None:
        def take(found: Verified | None) -> None:
            if found is not None and is_open(self):
                self._known = found.record
                self._update()

        name = self._checkpoint.name
        what = f"verification of {clean(name)}"
        self.tfckpt.start_job(what, partial(remembered, self._run, name), take, self._fail)

    @property
    def _reading(self) -> Reading | None:
        """The verification of this checkpoint that is under way."""
        reading = self.tfckpt.verifier.reading
        return reading if reading is not None and reading.name == self._checkpoint.name else None

    def _poll(self) -> None:
        is_reading = self._reading is not None
        if is_reading or self._was_reading:
            self._update()
        self._was_reading = is_reading

    def _update(self) -> None:
        if not is_open(self):
            return
        facts = fact_lines(self._checkpoint, self._found, self._at)
        facts += check_lines(self._checkpoint, self._known, self._reading, self._at)
        if self._problem:
            facts.append(line(("✗ ", "bad"), (self._problem, "bad")))
        head = self.query_one("#facts", Facts)
        head.styles.height = min(len(facts), 3 + self.size.height // 6)
        head.show_lines(facts)
        title, lines = self._details()
        self.query_one("#details", Facts).show_lines(lines, title)

    def _details(self) -> tuple[tuple[Span, ...], list[Line]]:
        if self._asked is not None:
            path = clean(self._asked.path)
            return ((path, "title"),), [line(("reading…", "muted"))]
        if self._statistics is not None:
            variable, found = self._statistics
            width = self.query_one("#details", Facts).inner_size[0]
            return ((clean(variable.path), "title"),), statistics_lines(variable, found, width)
        lines = resumed_lines(self._found.resumed) if self._found is not None else []
        if self._checkpoint.record is not None and self._checkpoint.record.workers:
            lines += [Line(), *record_lines(self._checkpoint.record)]
        return (("resuming from it brings back", "title"),), lines
