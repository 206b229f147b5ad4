"""The main screen: the dashboard, and what each key does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tfckpt_trainer.catalog.scan.states import state_by
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.actions import ACTIONS, action
from tfckpt_tui.app.availability import Chosen, label, why_not
from tfckpt_tui.app.widgets.base.keybar import KeyBar, KeyHint
from tfckpt_tui.app.widgets.base.listing import Listing
from tfckpt_tui.app.widgets.run.dashboard import Dashboard
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.formats.copying import path_of, row_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.background_verifier import Outcome
from tfckpt_tui.monitor.snapshot import RunSnapshot, is_same_but_for_time
from tfckpt_tui.services.choose import pair_to_compare
from tfckpt_tui.services.verify import can_be_verified
from tfckpt_tui.settings.config import config_path

if TYPE_CHECKING:
    from tfckpt_tui.app.app import TfckptApp
    from tfckpt_tui.app.screens.dashboard_actions import Steering

_READING_SECONDS = 0.2
_PAUSE, _OLD_PAUSE = 1.0, 10.0
"""How old the ages on the screen may be: where something happened just now, or long ago."""

_OLD_SECONDS = 300.0
_KEPT_AT_THE_END = {"help", "detach"}


class DashboardScreen(Screen[None]):
    """Shows the newest snapshot and turns keys into actions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                a.key,
                f"perform('{a.name}')",
                a.footer,
                id=a.name,
                tooltip=a.help,
                show=False,
                # What is typed right behind it goes into the line already.
                priority=a.name == "filter",
            )
            for a in ACTIONS
            if a.key
        ),
        Binding("f1", "perform('help')", show=False),
        Binding("escape", "leave_off", "Dismiss", show=False),
    ]
    AUTO_FOCUS = "#history"

    dashboard = getters.query_one(Dashboard)

    def __init__(self, run: RunDirectory, *, read_only: bool) -> None:
        super().__init__()
        self._run = run
        self._read_only = read_only
        self._do: dict[str, Callable[[], None]] = {
            "inspect": self._inspect,
            "verify": self._verify,
            "mark": self._mark,
            "mark-all": self._mark_all,
            "compare": self._compare,
            "tensorboard": self._tensorboard,
            "logs": self._logs,
            "diagnostics": self._diagnostics,
            "worker": self._worker,
            "charts": self._charts,
            "events": self._events,
            "trash": self._trash,
            "filter": self._open_filter,
            "sort": lambda: self.dashboard.history.sort_next(1),
            "sort-back": lambda: self.dashboard.history.sort_next(-1),
            "turn-order": self._turn_order,
            "copy": self._copy_paths,
            "copy-row": self._copy_rows,
            "palette": self._open_palette,
            "settings": self._settings,
            "help": self._help,
            "detach": self._leave,
        }
        self.snapshot: RunSnapshot | None = None
        self._shown_at = 0.0
        self._reading_timer: Timer | None = None

    @property
    def tfckpt(self) -> TfckptApp:
        """The app, by its own type."""
        return cast("TfckptApp", self.app)

    @cached_property
    def _steering(self) -> Steering:
        # Imported when something is changed first: the first frame need not wait for it.
        from tfckpt_tui.app.screens.dashboard_actions import Steering

        return Steering(self, self._run)

    @property
    def chosen(self) -> Chosen:
        """The checkpoints that the next action is about."""
        history = self.dashboard.history
        return Chosen(history.selected, tuple(history.marked))

    def compose(self) -> ComposeResult:
        """Makes the dashboard."""
        yield Dashboard(read_only=self._read_only)

    def on_mount(self) -> None:
        """Shows the keys before anything is known of the run."""
        self._update_keys()
        self._reading_timer = self.set_interval(_READING_SECONDS, self._show_reading, pause=True)

    def on_screen_resume(self) -> None:
        """Looks what goes on that was begun on another screen."""
        if self.snapshot is not None:
            self._show_reading()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a new snapshot."""
        before, self.snapshot = self.snapshot, snapshot
        if before is not None and self._is_as_good(before, snapshot):
            return
        self._shown_at = snapshot.at
        self.dashboard.show(snapshot)
        if before is None and self.tfckpt.selection is not None:
            self.dashboard.history.select(self.tfckpt.selection)
        self._update_keys()

    def _is_as_good(self, before: RunSnapshot, snapshot: RunSnapshot) -> bool:
        """Whether what is shown can stay: nothing happened, and only ages grew a little."""
        if not is_same_but_for_time(before, snapshot):
            return False
        is_old = snapshot.at - snapshot.active_at > _OLD_SECONDS
        return 0 <= snapshot.at - self._shown_at < (_OLD_PAUSE if is_old else _PAUSE)

    def report_failure(self, what: str, problem: str) -> None:
        """Keeps a failure in sight until it is dismissed."""
        self.dashboard.progress.report_failure(what, problem)
        self.dashboard.fit()

    def verified(self, outcome: Outcome) -> None:
        """Tells what a verification found: damage until it is dismissed, the rest in passing."""
        name = clean(outcome.name)
        self._show_reading()
        if outcome.found is None:
            self.report_failure(f"verify {name}", clean(outcome.problem))
            return
        record = outcome.found.record
        if record.fault is not None:
            more = len(record.findings) - 1
            rest = f" ({units.count(more, 'more finding')}: press enter on it)" if more else ""
            state = state_by(record.fault).value
            self.report_failure(f"{name} is {state}", f"{clean(record.fault.message)}{rest}")
        elif outcome.asked and self.is_current:
            how = f"{units.count(record.tensors, 'tensor')}, {units.size(record.bytes)}"
            self.tell(f"{name} is sound: {how} in {units.duration(record.seconds)}.")
            if outcome.problem:
                self.tell(f"The result is not remembered: {outcome.problem}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the key that opens the filter to its line while that is open."""
        if parameters == ("filter",) and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_perform(self, name: str) -> None:
        """Does the action called `name`, or says why it cannot be done now."""
        wanted = action(name)
        reason = why_not(wanted, self.snapshot, self.chosen, read_only=self._read_only)
        if reason:
            title = f"Not now: {label(wanted, self.snapshot, self.chosen)}"
            self.notify(reason, title=title, severity="warning", markup=False)
        else:
            act = self._do.get(name) or self._steering.actions[name]
            act()

    def action_leave_off(self) -> None:
        """Ends what is typed, takes away the failures that were read, the filter, or marks."""
        dashboard = self.dashboard
        if dashboard.progress.has_failures and not dashboard.is_filtering:
            dashboard.progress.dismiss_failures()
            dashboard.fit()
        elif dashboard.is_filtering or dashboard.history.filter.tests:
            self._end_filter("")
        else:
            self._unmark()

    @on(KeyBar.Chosen)
    def _press(self, event: KeyBar.Chosen) -> None:
        self.action_perform(event.action)

    @on(Listing.Moved, "#history")
    def _select(self) -> None:
        selected = self.chosen.selected
        follows = selected is None or not self.dashboard.history.has_moved
        self.tfckpt.selection = None if follows or selected is None else selected.name
        self._update_keys()

    # -- what the keys do --------------------------------------------------------------------

    def _inspect(self) -> None:
        from tfckpt_tui.app.screens.checkpoint import CheckpointScreen

        selected = self.chosen.selected
        assert selected is not None
        self.app.push_screen(CheckpointScreen(self._run, selected, self.known))

    def _verify(self) -> None:
        verifier = self.tfckpt.verifier
        reading = verifier.reading
        names = [c.name for c in self.chosen.all if can_be_verified(c)]
        if reading is not None and reading.name in names:
            verifier.cancel()
        else:
            for name in names:
                verifier.ask(name)
        self._show_reading()

    def _mark(self) -> None:
        self.dashboard.history.turn_mark()
        self._update_keys()

    def _mark_all(self) -> None:
        self.dashboard.history.turn_all_marks()
        self._update_keys()

    def _compare(self) -> None:
        from tfckpt_tui.app.screens.compare import CompareScreen

        history = self.dashboard.history
        pair = pair_to_compare(self.known.checkpoints, history.marked, history.selected)
        if isinstance(pair, str):
            self.notify(pair, severity="warning", markup=False)
            return
        self._unmark()
        self.app.push_screen(CompareScreen(self._run, *pair))

    def _unmark(self) -> None:
        self.dashboard.history.unmark()
        self._update_keys()

    def _show_reading(self) -> None:
        """Shows how far a verification is; looks again soon, as long as there is one."""
        verifier = self.tfckpt.verifier
        if self.dashboard.progress.show_reading(verifier.reading):
            self.dashboard.fit()
        if self._reading_timer is not None:
            if verifier.is_busy:
                self._reading_timer.resume()
            else:
                self._reading_timer.pause()

    def _tensorboard(self) -> None:
        from tfckpt_tui.app.dialogs.tensorboard import TensorBoardDialog

        dialog = TensorBoardDialog(
            self._run,
            self.known,
            self.chosen.selected,
            self.tfckpt.start_job,
            read_only=self._read_only,
        )
        self.app.push_screen(dialog)

    def _logs(self) -> None:
        self._open_logs()

    def _open_logs(self, worker: int | None = None, at: float | None = None) -> None:
        from tfckpt_tui.app.screens.logs import LogsScreen

        self.app.push_screen(LogsScreen(self._run, self.snapshot, worker, at))

    def _worker(self) -> None:
        from tfckpt_tui.app.screens.worker import WorkerScreen

        self.app.push_screen(WorkerScreen(self.known, self._open_logs))

    def _diagnostics(self) -> None:
        from tfckpt_tui.app.screens.diagnostics import DiagnosticsScreen

        self.app.push_screen(DiagnosticsScreen(self.known))

    def _charts(self) -> None:
        from tfckpt_tui.app.screens.charts import ChartsScreen

        self.app.push_screen(ChartsScreen(self.known))

    def _events(self) -> None:
        from tfckpt_tui.app.screens.journal import EventsScreen

        self.app.push_screen(EventsScreen(self.known, self._open_logs))

    def _trash(self) -> None:
        from tfckpt_tui.app.screens.trash import TrashScreen

        steering = self._steering
        screen = TrashScreen(
            self.known, steering.bring_back, steering.empty_trash, read_only=self._read_only
        )
        self.app.push_screen(screen)

    def _open_filter(self) -> None:
        self.dashboard.show_filter(is_open=True)

    def _end_filter(self, keep: str) -> None:
        """Closes the line of the filter; what it says goes on being shown."""
        self.dashboard.filter.value = keep
        self._filter_by(keep)
        self.dashboard.show_filter(is_open=False)

    @on(Input.Changed, "#filter")
    def _type_filter(self, event: Input.Changed) -> None:
        problem = self._filter_by(event.value)
        event.input.set_class(bool(problem), "-wrong")

    @on(Input.Submitted, "#filter")
    def _keep_filter(self, event: Input.Submitted) -> None:
        problem = self._filter_by(event.value)
        if problem:
            self.notify(problem, title="Filter", severity="warning", markup=False)
        else:
            self._end_filter(event.value)

    def _filter_by(self, text: str) -> str:
        """Shows what fulfils a filter; returns why it makes no sense, if so."""
        try:
            wanted = parse_filter(text)
        except UsageError as error:
            return clean(str(error))
        self.dashboard.history.filter_by(wanted)
        self._update_keys()
        return ""

    def _turn_order(self) -> None:
        self.dashboard.history.turn_order()

    def _copy_paths(self) -> None:
        paths = [path_of(self._run.root, checkpoint) for checkpoint in self.chosen.all]
        self.app.copy_to_clipboard("\n".join(paths))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        self.tell(f"Copied: {paths[0]}{more}")

    def _copy_rows(self) -> None:
        rows = [row_of(self._run.root, checkpoint) for checkpoint in self.chosen.all]
        self.app.copy_to_clipboard("\n".join(rows))
        self.tell(f"Copied {units.count(len(rows), 'row')}, with tabs between the fields.")

    def _open_palette(self) -> None:
        self.app.action_command_palette()

    def _settings(self) -> None:
        from tfckpt_tui.app.screens.settings import SettingsScreen

        self.app.push_screen(SettingsScreen(list(self.app.available_themes), config_path()))

    def go_to(self, place: str | int) -> None:
        """Puts the cursor on the checkpoint of a name, or on the one nearest to a step."""
        history = self.dashboard.history
        if isinstance(place, int):
            history.go_to_step(place)
        else:
            history.select(place)
        history.focus()

    def _help(self) -> None:
        from tfckpt_tui.app.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.tfckpt.config))

    def _leave(self) -> None:
        self.app.exit(0)

    @property
    def known(self) -> RunSnapshot:
        """The newest snapshot; no action is done before there is one."""
        assert self.snapshot is not None
        return self.snapshot

    def tell(self, words: str) -> None:
        """Says in passing what was done."""
        self.notify(clean(words), markup=False)

    def _update_keys(self) -> None:
        chosen = self.chosen
        hints = [
            KeyHint(
                known.name,
                format_key(self.tfckpt.config.key_of(known)),
                label(known, self.snapshot, chosen),
                is_last=known.name in _KEPT_AT_THE_END,
            )
            for known in ACTIONS
            if known.in_footer
            and not why_not(known, self.snapshot, chosen, read_only=self._read_only)
        ]
        self.dashboard.keys.show_hints(hints)
