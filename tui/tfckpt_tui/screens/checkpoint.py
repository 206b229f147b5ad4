"""One checkpoint: what it is, whether it is sound, its variables, what resuming brings back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_trainer.bundle.contents import Variable
from tfckpt_trainer.bundle.statistics import Statistics
from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.verifying import Verified
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import VerificationRecord
from tfckpt_tui.commands.inspecting import Inspection, inspect, statistics_of
from tfckpt_tui.commands.verifying import can_be_verified, remembered
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.verifier import Outcome
from tfckpt_tui.widgets.checkpoint_lines import (
    check_lines,
    fact_lines,
    record_lines,
    returning_lines,
    statistics_lines,
)
from tfckpt_tui.widgets.facts import Facts
from tfckpt_tui.widgets.keybar import KeyBar, KeyHint
from tfckpt_tui.widgets.listing import Listing
from tfckpt_tui.widgets.painting import Line, Span, line
from tfckpt_tui.widgets.variables import Variables

if TYPE_CHECKING:
    from tfckpt_tui.app import TfckptApp

_POLL_SECONDS = 0.2
_WIDE = 150


class CheckpointScreen(Screen[None]):
    """Everything known of one checkpoint."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", show=False),
        Binding("q", "close", "Back", show=False),
        Binding("enter", "look", "Statistics", show=False),
        Binding("slash", "search", "Search", show=False),
        Binding("v", "verify", "Verify", show=False),
        Binding("c", "cancel", "Cancel verifying", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
    ]
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

    @property
    def tfckpt(self) -> TfckptApp:
        """The app, by its own type."""
        return cast("TfckptApp", self.app)

    def compose(self) -> ComposeResult:
        """Makes facts, the tree, details, the search line and the keys."""
        yield Facts(boxed=False, id="facts")
        with Container(id="checkpoint-body"):
            yield Variables(id="variables")
            yield Facts(id="details")
        yield Input(placeholder="search", id="search")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begins to read; the screen is there at once."""
        self.query_one("#search").display = False
        self.query_one(KeyBar).show_hints(_HINTS)
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
        field = self.query_one("#search", Input)
        tree = self.query_one(Variables)
        if field.display or tree.needle:
            self._close_search(field, "")
        elif self._statistics is not None:
            self._statistics = None
            self._update()
        else:
            self.dismiss()

    def action_close(self) -> None:
        """Closes the screen."""
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

    def action_search(self) -> None:
        """Opens the search line."""
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    def action_verify(self) -> None:
        """Reads every byte, in the background."""
        if can_be_verified(self._checkpoint):
            self.tfckpt.verifier.ask(self._checkpoint.name)
            self._poll()
        else:
            self.notify(clean(self._checkpoint.problem), severity="warning", markup=False)

    def action_cancel(self) -> None:
        """Gives a verification up."""
        self.tfckpt.verifier.cancel()
        self._poll()

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        self.query_one(Variables).search(event.value)

    @on(Input.Submitted, "#search")
    def _keep_search(self, event: Input.Submitted) -> None:
        self._close_search(event.input, event.value)

    @on(KeyBar.Chosen)
    async def _press(self, event: KeyBar.Chosen) -> None:
        event.stop()
        await self.run_action(event.action)

    @on(Listing.Moved, "#variables")
    def _leave_statistics(self) -> None:
        if self._statistics is not None or self._asked is not None:
            self._statistics = self._asked = None
            self._update()

    # -- what comes back ---------------------------------------------------------------------

    def _take(self, found: Inspection) -> None:
        if self.is_mounted:
            self._found = found
            tree = self.query_one(Variables)
            tree.show_variables(found.variables, found.damage)
            if found.index is None:
                tree.show_failure()
            self._update()

    def _take_statistics(self, variable: Variable, found: Statistics | None) -> None:
        if self.is_mounted and self._asked is variable:
            self._asked = None
            self._statistics = variable, found
            self._update()

    def _fail(self, problem: str) -> None:
        self._problem, self._asked = problem, None
        self._update()

    def _look_for_verification(self) -> None:
        def take(found: Verified | None) -> None:
            if found is not None and self.is_mounted:
                self._known = found.record
                self._update()

        name = self._checkpoint.name
        what = f"verification of {clean(name)}"
        self.tfckpt.start_job(what, partial(remembered, self._run, name), take, self._fail)

    def _close_search(self, field: Input, keep: str) -> None:
        tree = self.query_one(Variables)
        field.value = keep
        tree.search(keep)
        field.display = False
        tree.focus()

    def _poll(self) -> None:
        reading = self.tfckpt.verifier.reading
        own = reading is not None and reading.name == self._checkpoint.name
        if own or self._was_reading:
            self._update()
        self._was_reading = own

    def _update(self) -> None:
        if not self.is_mounted:
            return
        reading = self.tfckpt.verifier.reading
        own = reading if reading is not None and reading.name == self._checkpoint.name else None
        facts = fact_lines(self._checkpoint, self._found, self._at)
        facts += check_lines(self._checkpoint, self._known, own, self._at)
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
        lines = returning_lines(self._found.returning) if self._found is not None else []
        if self._checkpoint.record is not None and self._checkpoint.record.workers:
            lines += [Line(), *record_lines(self._checkpoint.record)]
        return (("resuming from it brings back", "title"),), lines


_HINTS = (
    KeyHint("look", "enter", "statistics"),
    KeyHint("search", "/", "search"),
    KeyHint("verify", "v", "verify"),
    KeyHint("back", "esc", "back", is_last=True),
)
