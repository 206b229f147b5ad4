"""One checkpoint: facts, verification, variables, and what resuming from it restores."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_tui.app import screens
from tfckpt_tui.app.protocols import ActsOnCheckpoints
from tfckpt_tui.app.screens.page import action_binding
from tfckpt_tui.app.screens.tensor_pages import LOOK, SEARCH, StatisticsWork, TensorPage
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.app.widgets.checkpoints.checkpoint_lines import (
    change_lines,
    check_lines,
    fact_lines,
    record_lines,
    resumed_lines,
)
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.variable_tree import Tensor, tensors_of_checkpoint
from tfckpt_tui.monitor.background_verifier import VerificationOutcome, VerificationProgress
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.checkpoints.inspect import Inspection, inspect, statistics_of
from tfckpt_tui.services.checkpoints.verify import cached_result, can_be_verified

_GONE = "This checkpoint no longer exists: it was pruned, or deleted by its trainer."
_POLL_SECONDS = 0.2

_ACTIONS_HERE = {
    "restore": "Restores this checkpoint on all workers.",
    "prune": "Moves this checkpoint to the trash.",
    "pin": "Protects this checkpoint from every prune; again to unpin it.",
    "export": "Writes this checkpoint as a model file.",
}
"""Actions of the dashboard that apply to the checkpoint of the page."""


class CheckpointScreen(TensorPage):
    """Everything about one checkpoint."""

    BINDINGS: ClassVar[list[BindingType]] = [
        LOOK,
        action_binding(
            "charts",
            "track",
            "chart",
            "Charts norm, update ratio and mean of the variable over all checkpoints.",
        ),
        SEARCH,
        action_binding(
            "verify",
            "verify",
            "verify",
            "Compares every byte with its checksum, in the background; again to cancel.",
        ),
        *(
            action_binding(action, f"perform('{action}')", action, tooltip)
            for action, tooltip in _ACTIONS_HERE.items()
        ),
        Binding("tab", "app.focus_next", "Next pane", show=False),
    ]
    caption = "a checkpoint"

    def __init__(
        self,
        run: RunDirectory,
        checkpoint: Checkpoint,
        snapshot: RunSnapshot,
        actions: ActsOnCheckpoints,
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            checkpoint: What it shows.
            snapshot: Of the run.
            actions: Performs the actions of the dashboard.
        """
        super().__init__(checkpoint.name)
        self._actions = actions
        self._run = run
        self._checkpoint = checkpoint
        self._snapshot = snapshot
        self._inspection: Inspection | None = None
        self._verification: VerificationRecord | None = None
        self._was_reading = False

    def on_mount(self) -> None:
        """Starts to read in a thread."""
        name = self._checkpoint.name
        work = partial(inspect, self._run, self._checkpoint)
        self.run_app.start_job(f"inspect {clean(name)}", work, self._show_inspection, self._fail)
        self._read_cached_verification()
        self.set_interval(_POLL_SECONDS, self._poll)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows the newer state of the checkpoint, or that it no longer exists."""
        self._snapshot = snapshot
        checkpoint = snapshot.checkpoint(self._checkpoint.name)
        if checkpoint is None:
            self._problem = _GONE
        else:
            self._checkpoint = checkpoint
            if self._problem == _GONE:
                # An undo has brought it back.
                self._problem = ""
        self.update_keys()
        self._update()

    def show_verification(self, outcome: VerificationOutcome) -> None:
        """Shows the outcome of a verification."""
        if outcome.name == self._checkpoint.name:
            if outcome.found is not None:
                self._verification = outcome.found.record
            else:
                self._problem = clean(outcome.problem)
            self._update()

    # -- keys --------------------------------------------------------------------------------

    def shown_bindings(self) -> list[Binding]:
        """Returns the bindings that do something for this checkpoint now."""
        return [binding for binding in super().shown_bindings() if self._is_available(binding.id)]

    def _is_available(self, name: str | None) -> bool:
        is_action = name in _ACTIONS_HERE
        return not is_action or self._actions.can_perform_on(str(name), self._checkpoint)

    def action_perform(self, name: str) -> None:
        """Performs an action of the dashboard on this checkpoint."""
        self._actions.perform_on(name, self._checkpoint)

    def action_track(self) -> None:
        """Opens the chart of the selected variable over all checkpoints."""
        selected = self.variables.selected_variable
        variable = self._variable(selected) if selected is not None else None
        if self._inspection is None:
            problem = "The checkpoint is still being read."
        elif variable is None:
            problem = "Select a variable first; groups have no values."
        elif not is_numeric(variable.entry):
            path, dtype = clean(variable.path), variable.entry.dtype
            problem = f"{path} is {dtype}. Only numeric tensors have a chart."
        else:
            of = self._checkpoint
            self.app.push_screen(screens.track.TrackScreen(self._run, self._snapshot, of, variable))
            return
        self.notify(problem, severity="warning", markup=False)

    def action_verify(self) -> None:
        """Starts the verification, or cancels it."""
        if self._reading is not None:
            self.run_app.verifier.cancel()
        elif can_be_verified(self._checkpoint):
            self.run_app.verifier.request(self._checkpoint.name)
        else:
            self.notify(clean(self._checkpoint.problem), severity="warning", markup=False)
        self._poll()

    # -- results of jobs ---------------------------------------------------------------------

    def _show_inspection(self, inspection: Inspection) -> None:
        if is_open(self):
            self._inspection = inspection
            self.variables.show_variables(
                tensors_of_checkpoint(inspection.variables), inspection.damage
            )
            if inspection.index is None:
                self.variables.show_failure("the index")
            self._update()

    def _variable(self, tensor: Tensor) -> Variable | None:
        variables = self._inspection.variables if self._inspection is not None else ()
        return next(
            (variable for variable in variables if variable.entry.name == tensor.name), None
        )

    def _read_cached_verification(self) -> None:
        def take(result: Verified | None) -> None:
            if result is not None and is_open(self):
                self._verification = result.record
                self._update()

        name = self._checkpoint.name
        what = f"verification of {clean(name)}"
        self.run_app.start_job(what, partial(cached_result, self._run, name), take, self._fail)

    @property
    def _reading(self) -> VerificationProgress | None:
        """The running verification of this checkpoint, if any."""
        reading = self.run_app.verifier.reading
        return reading if reading is not None and reading.name == self._checkpoint.name else None

    def _poll(self) -> None:
        is_reading = self._reading is not None
        if is_reading or self._was_reading:
            self._update()
        self._was_reading = is_reading

    # -- what it shows -----------------------------------------------------------------------

    def fact_lines(self) -> list[StyledLine]:
        """Returns the facts about the checkpoint, and its verification."""
        facts = fact_lines(self._checkpoint, self._inspection, self._snapshot.at)
        key = self.run_app.key_of("verify")
        return facts + check_lines(
            self._checkpoint, self._verification, self._reading, self._snapshot.at, key
        )

    def statistics_of(self, tensor: Tensor) -> StatisticsWork | None:
        """Returns what reads a variable; None before the checkpoint is read."""
        variable, inspection = self._variable(tensor), self._inspection
        if variable is None or inspection is None:
            return None
        return partial(statistics_of, self._run, inspection, variable)

    def details(self) -> tuple[Span, list[StyledLine]]:
        """Returns what a restore brings back, and what the record has besides."""
        lines = resumed_lines(self._inspection.resumed) if self._inspection is not None else []
        record = self._checkpoint.record
        changes = change_lines(record) if record is not None else []
        if changes:
            lines += [StyledLine(), line(("changes", "title")), *changes]
        if record is not None and record.workers:
            lines += [StyledLine(), *record_lines(record)]
        return ("resuming from it brings back", "title"), lines
