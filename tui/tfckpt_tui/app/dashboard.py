"""The dashboard: shows the newest snapshot, and performs the action of each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.keys import format_key
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.states import state_for_fault
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.app.actions import views
from tfckpt_tui.app.actions.action import AppAction, Reason
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.base_app import NOT_NOW
from tfckpt_tui.app.dashboard_panes import DashboardPanes
from tfckpt_tui.app.protocols import RunApp, Selection, run_app_of, words_of
from tfckpt_tui.app.widgets.base.dashboard_layout import SMALLEST, is_too_small
from tfckpt_tui.app.widgets.base.keybar import KeyBar, KeyHint
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import checkpoint_path, copied_row
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.formats.text import clean, clean_message
from tfckpt_tui.monitor.background_verifier import VerificationOutcome
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot, differs_only_in_time
from tfckpt_tui.services.checkpoints.verify import can_be_verified
from tfckpt_tui.services.runs.failure_card import newest_loss

_VERIFICATION_POLL_SECONDS = 0.2
_AGE_ERROR_SECONDS, _OLD_AGE_ERROR_SECONDS = 1.0, 10.0
"""How old the ages on the screen may be, after recent and after old activity."""

_OLD_SECONDS = 300.0


def bindings_of(actions: Iterable[AppAction]) -> list[BindingType]:
    """Returns the key bindings of the actions that have a key."""
    return [
        Binding(
            action.key,
            f"perform('{action.name}')",
            action.label,
            id=action.name,
            tooltip=action.help,
            show=False,
            priority=action.precedes_panes,
        )
        for action in actions
        if action.key
    ]


def _only(checkpoint: Checkpoint) -> Selection:
    """Returns the selection of one checkpoint, which counts as marked too."""
    return Selection(checkpoint, (checkpoint,))


class DashboardScreen(Screen[None]):
    """Shows the newest snapshot and turns keys into actions.

    Attributes:
        ACTIONS: All actions but those that are added; `BINDINGS` has their keys.
        run_directory: The run directory.
        read_only: Whether actions that change the run are disabled.
        snapshot: The newest snapshot; None before the first one.
    """

    ACTIONS: ClassVar[Sequence[AppAction]] = ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(ACTIONS),
        Binding("f1", "perform('help')", show=False),
        Binding("escape", "dismiss_next", "Dismiss", show=False),
    ]
    AUTO_FOCUS = "#history"

    panes = getters.query_one(DashboardPanes)

    def __init__(
        self, run: RunDirectory, *, read_only: bool, added_actions: Sequence[AppAction] = ()
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            read_only: Whether actions that change the run are disabled.
            added_actions: The actions that the user configures, and those of other packages.
        """
        super().__init__()
        self._has_panes = False
        self._actions = tuple(self.ACTIONS)
        self.add_actions(added_actions)
        self.run_directory = run
        self.read_only = read_only
        self.snapshot: RunSnapshot | None = None
        self._shown_at = 0.0
        self._chosen: Selection | None = None
        self._verification_timer: Timer | None = None

    def add_actions(self, actions: Iterable[AppAction]) -> None:
        """Adds actions, with their keys."""
        actions = tuple(actions)
        self._actions += actions
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(bindings_of(actions))])
        # An app that quits removes the panes before it takes its last messages.
        if self._has_panes and is_open(self):
            self._update_keys()

    @property
    def run_app(self) -> RunApp:
        """The app."""
        return run_app_of(self)

    @property
    def selection(self) -> Selection:
        """The checkpoints that the next action applies to."""
        if self._chosen is not None:
            return self._chosen
        history = self.panes.history
        return Selection(
            history.selected,
            tuple(history.marked),
            history.selected_unsupported,
            history.marks_are_gone,
        )

    @property
    def loaded_snapshot(self) -> RunSnapshot:
        """The newest snapshot; actions that use it are unavailable before the first one."""
        assert self.snapshot is not None
        return self.snapshot

    def compose(self) -> ComposeResult:
        """Makes the panes."""
        yield DashboardPanes(read_only=self.read_only, charts=self.run_app.config.app.charts)

    def on_mount(self) -> None:
        """Shows the keys, and what was read while the panes were made."""
        self._has_panes = True
        self._list_as(self.run_app.listing)
        self._verification_timer = self.set_interval(
            _VERIFICATION_POLL_SECONDS, self._show_reading, pause=True
        )
        if self.run_app.snapshot is not None:
            self.show(self.run_app.snapshot)
        elif self.run_app.newest is not None:
            self.show_newest(self.run_app.newest)

    def on_screen_resume(self) -> None:
        """Shows a verification that was started on another screen."""
        if self.snapshot is not None:
            self._show_reading()

    # -- what the app tells it ---------------------------------------------------------------

    def show_newest(self, newest: NewestRows) -> None:
        """Lists the newest checkpoints until the first snapshot has all."""
        if self._has_panes and self.snapshot is None:
            self.panes.history.show_newest(newest)
            self.panes.fit()

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot; before there are panes, their mount shows it."""
        if not self._has_panes:
            return
        before, self.snapshot = self.snapshot, snapshot
        if before is not None and self._is_up_to_date(before, snapshot):
            return
        self._shown_at = snapshot.at
        self.panes.show(snapshot)
        self._update_keys()

    def update_progress(self) -> None:
        """Shows changed commands and failures."""
        if self.is_running and self.children and self._has_panes:
            self.panes.progress.repaint()
            self.panes.fit()

    def _report_failure(self, what: str, problem: str) -> None:
        """Shows a failure until the user dismisses it."""
        self.run_app.progress.report_failure(what, problem)
        self.run_app.update_progress()

    def show_verification(self, outcome: VerificationOutcome) -> None:
        """Shows the outcome of a verification; damage until the user dismisses it."""
        name = clean(outcome.name)
        self._show_reading()
        if outcome.found is None:
            self._report_failure(f"verify {name}", clean(outcome.problem))
            return
        record = outcome.found.record
        if record.fault is not None:
            more = len(record.findings) - 1
            press = f"press {self.run_app.key_of('inspect')} on it"
            rest = f" ({units.count(more, 'more finding')}: {press})" if more else ""
            state = state_for_fault(record.fault).value
            self._report_failure(f"{name} is {state}", f"{clean(record.fault.message)}{rest}")
        elif outcome.requested and self.is_current:
            how = f"{units.count(record.tensors, 'tensor')}, {units.size(record.bytes)}"
            self.tell(f"{name} is sound: {how} in {units.duration(record.seconds)}.")
            if outcome.problem:
                self.tell(f"The result was not cached: {outcome.problem}")

    def go_to(self, place: str | int) -> None:
        """Selects the checkpoint with this name, or the one nearest to this step."""
        history = self.panes.history
        if isinstance(place, int):
            history.go_to_step(place)
        else:
            history.select(place)
        history.focus()

    def tell(self, message: str) -> None:
        """Shows a message for a few seconds."""
        self.notify(clean_message(message), markup=False)

    # -- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves keys that precede panes to an input line that has the focus: they are typed."""
        if isinstance(self.focused, Input) and any(
            entry.precedes_panes and parameters == (entry.name,) for entry in self._actions
        ):
            return False
        return super().check_action(action, parameters)

    def action_perform(self, name: str) -> None:
        """Performs the action called `name`, or shows why it is unavailable."""
        action, reason = self._action(name), self.why_unavailable(name)
        needs_selection = self._chosen is None and bool(self._reason(action, Selection()))
        is_chosen = self._chosen is not None or bool(self.selection.marked)
        if not (reason or is_chosen) and (needs_selection or action.applies_to_marked):
            reason = self.panes.history.take_lost()
        if reason:
            title = f"{NOT_NOW}{action.label_for(self.snapshot, self.selection)}"
            self.notify(reason, title=title, severity="warning", markup=False)
        else:
            action.perform(self)
            if needs_selection:
                # What the user acted on stays selected, whatever is saved meanwhile.
                self.panes.history.hold_cursor()

    def why_unavailable(self, name: str) -> str:
        """Returns why the action called `name` is unavailable now; empty if it is available."""
        return words_of(self, self._reason(self._action(name), self.selection))

    def _reason(self, action: AppAction, selection: Selection) -> Reason:
        if action.changes_run and is_too_small(self.size):
            least = f"{SMALLEST.width}×{SMALLEST.height}"
            return f"This terminal does not show what that does. Make it {least} or larger."
        return action.why_unavailable(self.snapshot, selection, read_only=self.read_only)

    def perform_on(self, name: str, checkpoint: Checkpoint) -> None:
        """Performs an action on one checkpoint, whatever is selected and marked."""
        self._chosen = _only(checkpoint)
        try:
            self.action_perform(name)
        finally:
            self._chosen = None

    def can_perform_on(self, name: str, checkpoint: Checkpoint) -> bool:
        """Whether an action is available for this checkpoint."""
        return not self._reason(self._action(name), _only(checkpoint))

    def available_actions(self) -> list[AppAction]:
        """Returns the actions that can be performed now, in the order of the help."""
        selection = self.selection
        return [action for action in self._actions if not self._reason(action, selection)]

    def _action(self, name: str) -> AppAction:
        return next(action for action in self._actions if action.name == name)

    def action_dismiss_next(self) -> None:
        """Dismisses failures and verdicts; without them the filter; without one the marks.

        Without any, an app that was opened from the list of runs returns to it.
        """
        panes = self.panes
        progress = self.run_app.progress
        if progress.has_unread and not panes.is_filtering:
            progress.dismiss()
            self.run_app.update_progress()
        elif panes.is_filtering or panes.history.filter.tests:
            self._end_filter("")
        elif panes.history.marked or panes.history.marks_are_gone or not self.run_app.from_list:
            self.unmark_all()
        else:
            self.app.exit(0)

    @on(KeyBar.Chosen)
    def _perform_clicked(self, event: KeyBar.Chosen) -> None:
        self.action_perform(event.action)

    # -- actions on the list of checkpoints --------------------------------------------------

    def verify(self) -> None:
        """Verifies the selected or marked checkpoints, or cancels their verification.

        If a file of another format is selected, opens its screen, which verifies it.
        """
        if not self.selection.all:
            views.open_checkpoint(self, verifies=True)
            return
        verifier = self.run_app.verifier
        reading = verifier.reading
        names = [c.name for c in self.selection.all if can_be_verified(c)]
        if reading is not None and reading.name in names:
            verifier.cancel()
        else:
            for name in names:
                verifier.request(name)
        self._show_reading()

    def mark(self) -> None:
        """Marks or unmarks the selected checkpoint."""
        self.panes.history.toggle_mark()
        self._update_keys()

    def mark_all(self) -> None:
        """Marks or unmarks all checkpoints that are shown."""
        self.panes.history.toggle_all_marks()
        self._update_keys()

    def unmark_all(self) -> None:
        """Unmarks all checkpoints."""
        self.panes.history.unmark()
        self._update_keys()

    def open_failure(self) -> None:
        """Opens the log of the worker that the failure card names, or was lost last, then."""
        snapshot = self.loaded_snapshot
        earlier = newest_loss(snapshot.event_log)
        if snapshot.failure is not None:
            # The log of a run that failed ends there; times are recorded twice a second only.
            at = snapshot.failure.at if snapshot.state is not RunState.FAILED else None
            views.open_logs(self, self.panes.failure.worker, at)
        elif earlier is not None:
            at, loss = earlier
            views.open_logs(self, loss.worker, at)

    def sort_by_column(self, places: int) -> None:
        """Sorts by the column that is `places` further to the right."""
        self.panes.history.sort_next(places)

    def reverse_sort_order(self) -> None:
        """Reverses the sort order, or says that there is none."""
        if not self.panes.history.reverse_order():
            unsorted = "The checkpoints are listed by branch. Sort them by a column first."
            self.notify(unsorted, title=f"{NOT_NOW}reverse", severity="warning", markup=False)

    def copy_paths(self) -> None:
        """Copies the paths of the selected or marked checkpoints."""
        paths = [
            checkpoint_path(self.run_directory.root, checkpoint)
            for checkpoint in self.selection.all
        ]
        self.run_app.copy("\n".join(paths), few_of(paths, 1))

    def copy_rows(self) -> None:
        """Copies the rows of the selected or marked checkpoints."""
        rows = [
            copied_row(self.run_directory.root, checkpoint) for checkpoint in self.selection.all
        ]
        self.run_app.copy("\n".join(rows), units.count(len(rows), "tab-separated row"))

    @on(ListPane.Moved, "#history")
    def _note_selection(self) -> None:
        self._update_keys()

    # -- the filter --------------------------------------------------------------------------

    def _list_as(self, listing: ListOrder) -> None:
        """Lists the checkpoints as in an earlier session."""
        self.panes.history.restore_order(listing.order)
        if not self._filter_by(listing.filter):
            self.panes.filter.value = listing.filter

    def open_filter(self) -> None:
        """Opens the filter line."""
        self.panes.show_filter(is_open=True)

    def _end_filter(self, text: str) -> None:
        """Closes the filter line; the filter `text` stays."""
        self.panes.filter.value = text
        self._filter_by(text)
        self.panes.show_filter(is_open=False)

    @on(Input.Changed, "#filter")
    def _apply_filter(self, event: Input.Changed) -> None:
        problem = self._filter_by(event.value)
        event.input.set_class(bool(problem), "-wrong")

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        problem = self._filter_by(event.value)
        if problem:
            # Otherwise the part that was valid while it was typed stays.
            self._filter_by("")
            self.notify(problem, title="Filter", severity="warning", markup=False)
        else:
            self._end_filter(event.value)

    def _filter_by(self, text: str) -> str:
        """Filters the checkpoints; returns why the filter is invalid, or an empty string."""
        try:
            wanted = parse_filter(text)
        except UsageError as error:
            return clean(str(error))
        self.panes.history.filter_by(wanted)
        self._update_keys()
        return ""

    # -- updates -----------------------------------------------------------------------------

    def _is_up_to_date(self, before: RunSnapshot, snapshot: RunSnapshot) -> bool:
        """Whether only ages differ from what is shown, and by little."""
        if not differs_only_in_time(before, snapshot):
            return False
        is_old = snapshot.at - snapshot.active_at > _OLD_SECONDS
        error = _OLD_AGE_ERROR_SECONDS if is_old else _AGE_ERROR_SECONDS
        return 0 <= snapshot.at - self._shown_at < error

    def _show_reading(self) -> None:
        """Shows the progress of a verification; repeats while there is one."""
        verifier = self.run_app.verifier
        if self.panes.progress.show_reading(verifier.reading):
            self.panes.fit()
        if self._verification_timer is not None:
            if verifier.is_busy:
                self._verification_timer.resume()
            else:
                self._verification_timer.pause()

    def _label(self, action: AppAction) -> str:
        if action.name == "detach" and self.run_app.from_list:
            return "runs"
        return action.label_for(self.snapshot, self.selection)

    def _update_keys(self) -> None:
        run, selection = self.snapshot, self.selection
        available = self.available_actions()
        needed = [action for action in self._actions if action.is_needed(run, selection)]
        shown = [action for action in self._actions if action.is_in_footer(run, selection)]
        others = [action for action in shown if action not in needed]
        hints = [
            KeyHint(
                action.name,
                format_key(action.key_in(self.run_app.config)),
                self._label(action),
                is_last=action.at_footer_end,
            )
            for action in (*needed, *others)
            if action in available and action.key_in(self.run_app.config)
        ]
        self.panes.keys.show_hints(hints)
