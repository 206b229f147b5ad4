"""The main screen: the dashboard, and what each key does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.states import state_by
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.commandbox import CommandBox
from tfckpt_trainer.rundir.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import Command, CommandKind, ExportFormat
from tfckpt_tui import humane
from tfckpt_tui.availability import label, why_not
from tfckpt_tui.commands import exporting, pruning
from tfckpt_tui.commands.asking import ask
from tfckpt_tui.commands.choosing import two_to_compare
from tfckpt_tui.commands.table import ACTIONS, action
from tfckpt_tui.config import default_rules
from tfckpt_tui.filtering import parse_filter
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.verifier import Outcome
from tfckpt_tui.widgets.dashboard import Dashboard
from tfckpt_tui.widgets.keybar import KeyBar, KeyHint
from tfckpt_tui.widgets.listing import Listing

if TYPE_CHECKING:
    from tfckpt_trainer.catalog.foreign import Foreign
    from tfckpt_tui.app import TfckptApp

THROUGH = "terminal app"
"""How the journal names the way by which something was asked for."""

_READING_SECONDS = 0.2
_FOLLOWED_SECONDS = 3600.0
_KEPT_AT_THE_END = {"help", "detach"}


class DashboardScreen(Screen[None]):
    """Shows the newest snapshot and turns keys into actions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(a.key, f"perform('{a.name}')", a.footer, id=a.name, tooltip=a.help, show=False)
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
            "save": self._save,
            "restore": self._restore,
            "prune": self._prune,
            "undo": self._undo,
            "pin": self._pin,
            "inspect": self._inspect,
            "verify": self._verify,
            "mark": self._mark,
            "compare": self._compare,
            "export": self._export,
            "pause": self._pause,
            "stop": self._stop,
            "tensorboard": self._tensorboard,
            "logs": self._logs,
            "remarks": self._remarks,
            "worker": self._worker,
            "events": self._events,
            "trash": self._trash,
            "filter": self._open_filter,
            "sort": lambda: self.dashboard.history.sort_next(1),
            "sort-back": lambda: self.dashboard.history.sort_next(-1),
            "turn-order": self._turn_order,
            "copy": self._copy_path,
            "palette": self._open_palette,
            "help": self._help,
            "detach": self._leave,
        }
        self.snapshot: RunSnapshot | None = None

    @property
    def tfckpt(self) -> TfckptApp:
        """The app, by its own type."""
        return cast("TfckptApp", self.app)

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint that the next action is about."""
        return self.dashboard.history.selected

    def compose(self) -> ComposeResult:
        """Makes the dashboard."""
        yield Dashboard(read_only=self._read_only)

    def on_mount(self) -> None:
        """Shows the keys before anything is known of the run."""
        self._update_keys()
        self.set_interval(_READING_SECONDS, self._show_reading)

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a new snapshot."""
        self.snapshot = snapshot
        self.dashboard.show(snapshot)
        self._update_keys()

    def report_failure(self, what: str, problem: str) -> None:
        """Keeps a failure in sight until it is dismissed."""
        self.dashboard.progress.report_failure(what, problem)
        self.dashboard.fit()

    def verified(self, outcome: Outcome) -> None:
        """Tells what a verification found: damage until it is dismissed, the rest in passing."""
        name = clean(outcome.name)
        if outcome.found is None:
            self.report_failure(f"verify {name}", clean(outcome.problem))
            return
        record = outcome.found.record
        if record.fault is not None:
            more = len(record.findings) - 1
            rest = f" ({humane.count(more, 'more finding')}: press enter on it)" if more else ""
            state = state_by(record.fault).value
            self.report_failure(f"{name} is {state}", f"{clean(record.fault.message)}{rest}")
        elif outcome.asked and self.is_current:
            how = f"{humane.count(record.tensors, 'tensor')}, {humane.size(record.bytes)}"
            self._tell(f"{name} is sound: {how} in {humane.duration(record.seconds)}.")
            if outcome.problem:
                self._tell(f"The result is not remembered: {outcome.problem}")

    def action_perform(self, name: str) -> None:
        """Does the action called `name`, or says why it cannot be done now."""
        wanted = action(name)
        reason = why_not(wanted, self.snapshot, self.selected, read_only=self._read_only)
        if reason:
            title = f"Not now: {label(wanted, self.snapshot, self.selected)}"
            self.notify(reason, title=title, severity="warning", markup=False)
        else:
            self._do[name]()

    def action_leave_off(self) -> None:
        """Ends what is being typed, takes away the failures that were read, or the filter."""
        dashboard = self.dashboard
        if dashboard.progress.has_failures and not dashboard.is_filtering:
            dashboard.progress.dismiss_failures()
            dashboard.fit()
        else:
            self._end_filter("")

    @on(KeyBar.Chosen)
    def _press(self, event: KeyBar.Chosen) -> None:
        self.action_perform(event.action)

    @on(Listing.Moved)
    def _select(self) -> None:
        self._update_keys()

    # -- what the keys do --------------------------------------------------------------------

    def _save(self) -> None:
        self._ask(CommandKind.SAVE, {})

    def _restore(self) -> None:
        from tfckpt_tui.screens.restore import RestoreDialog

        def answered(name: str | None) -> None:
            if name is not None:
                self._ask(CommandKind.RESTORE, {"name": name})

        self.app.push_screen(RestoreDialog(self._known, self.selected), answered)

    def _prune(self) -> None:
        from tfckpt_tui.screens.prune import PruneDialog

        def answered(names: tuple[str, ...] | None) -> None:
            if names:
                look = partial(pruning.foreign_trainer, self._run)
                self.tfckpt.start_job("prune", look, partial(self._ask_twice, names))

        rules = default_rules(self._known.info, self.tfckpt.config)
        self.app.push_screen(PruneDialog(self._known, rules), answered)

    def _ask_twice(self, names: tuple[str, ...], foreign: Foreign | None) -> None:
        """Prunes, after a second question where a trainer of somebody else's may live."""
        from tfckpt_tui.screens.beside import BesideTrainerDialog

        if foreign is None:
            self._prune_or_undo(CommandKind.PRUNE, names)
            return
        free = tuple(name for name in names if name not in foreign.in_use)

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._prune_or_undo(CommandKind.PRUNE, free, beside_trainer=True)

        self.app.push_screen(BesideTrainerDialog(self._known, foreign, len(free)), answered)

    def _undo(self) -> None:
        from tfckpt_tui.screens.undo import UndoDialog

        def answered(trash: str | None) -> None:
            if trash is not None:
                self._prune_or_undo(CommandKind.UNDO, trash)

        self.app.push_screen(UndoDialog(self._known), answered)

    def _pin(self) -> None:
        selected = self.selected
        if selected is not None:
            name, pinned = selected.name, not selected.pinned

            def work() -> str:
                pruning.set_pin(self._run, name, pinned=pinned, through=THROUGH)
                return f"{name} is {'pinned' if pinned else 'no longer pinned'}."

            self.tfckpt.start_job("pin", work, self._tell)

    def _inspect(self) -> None:
        from tfckpt_tui.screens.checkpoint import CheckpointScreen

        assert self.selected is not None
        self.app.push_screen(CheckpointScreen(self._run, self.selected, self._known))

    def _verify(self) -> None:
        assert self.selected is not None
        verifier = self.tfckpt.verifier
        reading = verifier.reading
        if reading is not None and reading.name == self.selected.name:
            verifier.cancel()
        else:
            verifier.ask(self.selected.name)
        self._show_reading()

    def _mark(self) -> None:
        self.dashboard.history.turn_mark()

    def _compare(self) -> None:
        from tfckpt_tui.screens.compare import CompareScreen

        history = self.dashboard.history
        pair = two_to_compare(self._known.checkpoints, history.marked, history.selected)
        if isinstance(pair, str):
            self.notify(pair, severity="warning", markup=False)
            return
        history.unmark()
        self.app.push_screen(CompareScreen(self._run, *pair))

    def _export(self) -> None:
        from tfckpt_tui.screens.export import ExportDialog

        assert self.selected is not None
        name = self.selected.name

        def answered(form: ExportFormat | None) -> None:
            if form is not None:
                self._tell(f"{name} is being exported …")
                work = partial(exporting.export_checkpoint, self._run, name, form, through=THROUGH)
                self.tfckpt.start_job(
                    "export", work, lambda done: self._tell(exporting.describe(done))
                )

        self.app.push_screen(ExportDialog(self._known, name), answered)

    def _show_reading(self) -> None:
        if self.dashboard.progress.show_reading(self.tfckpt.verifier.reading):
            self.dashboard.fit()

    def _pause(self) -> None:
        paused = self._known.state is RunState.PAUSED
        self._ask(CommandKind.RESUME if paused else CommandKind.PAUSE, {})

    def _stop(self) -> None:
        from tfckpt_tui.screens.stop import StopDialog

        def answered(save: bool | None) -> None:
            if save is not None:
                self._ask(CommandKind.STOP, {"save": save})

        self.app.push_screen(StopDialog(self._known), answered)

    def _tensorboard(self) -> None:
        from tfckpt_tui.screens.tensorboard import TensorBoardDialog

        dialog = TensorBoardDialog(
            self._run, self._known, self.tfckpt.start_job, read_only=self._read_only
        )
        self.app.push_screen(dialog)

    def _logs(self) -> None:
        self._open_log(0)

    def _open_log(self, worker: int) -> None:
        from tfckpt_tui.screens.logs import LogsScreen

        self.app.push_screen(LogsScreen(self.snapshot, self.tfckpt.read_log, worker))

    def _worker(self) -> None:
        from tfckpt_tui.screens.worker import WorkerScreen

        self.app.push_screen(WorkerScreen(self._known, self._open_log))

    def _remarks(self) -> None:
        from tfckpt_tui.screens.remarks import RemarksScreen

        self.app.push_screen(RemarksScreen(self._known))

    def _events(self) -> None:
        from tfckpt_tui.screens.events import EventsScreen

        self.app.push_screen(EventsScreen(self._known))

    def _trash(self) -> None:
        from tfckpt_tui.screens.trash import TrashScreen

        bring_back = partial(self._prune_or_undo, CommandKind.UNDO)
        screen = TrashScreen(self._known, bring_back, self._empty_trash, read_only=self._read_only)
        self.app.push_screen(screen)

    def _empty_trash(self) -> None:
        def work() -> str:
            emptied = pruning.empty(self._run, through=THROUGH)
            return f"{humane.count(len(emptied.names), 'checkpoint')} deleted for good."

        self.tfckpt.start_job("empty trash", work, self._tell)

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

    def _copy_path(self) -> None:
        assert self.selected is not None
        path = str(self._run.root / self.selected.name)
        self.app.copy_to_clipboard(path)
        self._tell(f"Copied: {path}")

    def _open_palette(self) -> None:
        self.app.action_command_palette()

    def go_to(self, place: str | int) -> None:
        """Puts the cursor on the checkpoint of a name, or on the one nearest to a step."""
        history = self.dashboard.history
        if isinstance(place, int):
            history.go_to_step(place)
        else:
            history.select(place)
        history.focus()

    def _help(self) -> None:
        from tfckpt_tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.tfckpt.config))

    def _leave(self) -> None:
        self.app.exit(0)

    @property
    def _known(self) -> RunSnapshot:
        assert self.snapshot is not None
        return self.snapshot

    # -- what becomes of it ------------------------------------------------------------------

    def _ask(self, kind: CommandKind, arguments: dict[str, object]) -> None:
        """Asks the trainer; the snapshots show what becomes of it."""

        def submit() -> Command:
            return ask(self._run, kind, arguments, through=THROUGH, wait=False)

        self.tfckpt.start_job(kind.value, submit, self._follow)

    def _follow(self, command: Command) -> None:
        """Makes sure that a command which nobody takes is withdrawn in its time."""
        box = CommandBox(self._run)
        self.tfckpt.start_job(
            command.kind.value, lambda: box.wait(command, timeout=_FOLLOWED_SECONDS)
        )

    def _prune_or_undo(
        self, kind: CommandKind, chosen: tuple[str, ...] | str, *, beside_trainer: bool = False
    ) -> None:
        """Lets the trainer do it where one lives, and does it under its lock where none does."""
        if self._known.trainer_answers:
            key = "names" if kind is CommandKind.PRUNE else "trash"
            value = list(chosen) if isinstance(chosen, tuple) else chosen
            self._ask(kind, {key: value})
            return

        def work() -> str:
            if isinstance(chosen, tuple):
                done = pruning.prune(
                    self._run, chosen, through=THROUGH, beside_trainer=beside_trainer
                )
                return f"{humane.count(len(done.names), 'checkpoint')} moved to the trash."
            done = pruning.undo(self._run, chosen, through=THROUGH)
            return f"{humane.count(len(done.names), 'checkpoint')} came back from the trash."

        self.tfckpt.start_job(kind.value, work, self._tell)

    def _tell(self, words: str) -> None:
        self.notify(clean(words), markup=False)

    def _update_keys(self) -> None:
        selected = self.selected
        hints = [
            KeyHint(
                known.name,
                format_key(self.tfckpt.config.key_of(known)),
                label(known, self.snapshot, selected),
                is_last=known.name in _KEPT_AT_THE_END,
            )
            for known in ACTIONS
            if known.in_footer
            and not why_not(known, self.snapshot, selected, read_only=self._read_only)
        ]
        self.dashboard.keys.show_hints(hints)
