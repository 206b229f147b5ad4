"""The terminal app of one run: shows snapshots of the monitor, and runs jobs in threads."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from threading import Thread
from typing import Any, ClassVar

import msgspec
from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.message import Message
from textual.screen import Screen

from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.errors import ExitCode, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app import dialogs, screens
from tfckpt_tui.app.actions.action import AppAction
from tfckpt_tui.app.actions.extensions import PackageActions, actions_of_packages, own_actions
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.job_app import JobApp
from tfckpt_tui.app.protocols import ShowsFailures, ShowsSnapshots, ShowsVerifications
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.charting.choices import ChartChoices, kept_choices
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.formats.text import clean_message
from tfckpt_tui.monitor.background_verifier import BackgroundVerifier, VerificationOutcome
from tfckpt_tui.monitor.own_actions import ActionQueue, ActionRun
from tfckpt_tui.monitor.run_monitor import Monitor, SnapshotSource
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.monitor.worker_history import WorkerHistory
from tfckpt_tui.services.processes.own_actions import wants
from tfckpt_tui.services.runs.recent_runs import LastLook, last_look, remember_look
from tfckpt_tui.settings.config import AppSection, Config, read_config

_SILENCE_SECONDS = 1.0
_SIGNALLED = 128
"""Exit codes above it say which signal ended the app."""

_SWITCH_SECONDS = 0.001
_FIRST_FRAME_SECONDS = 0.03
"""How long the first frame takes to reach the terminal."""

_SETTLED_SECONDS = 0.5
"""How long after its first snapshot the app has nothing else to do."""


def _actions_provider() -> type[Provider]:
    # Imported when the palette is first opened: the first frame does not wait for it.
    from tfckpt_tui.app.palette import ActionsProvider

    return ActionsProvider


def _checkpoints_provider() -> type[Provider]:
    from tfckpt_tui.app.palette import CheckpointsProvider

    return CheckpointsProvider


class SnapshotTaken(Message):
    """The monitor took a snapshot; only the newest one matters."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Returns whether this snapshot replaces one that is still in the queue."""
        return isinstance(message, SnapshotTaken)


class NewestFound(Message):
    """The monitor read the newest checkpoints, before its first snapshot."""

    def __init__(self, newest: NewestRows) -> None:
        super().__init__()
        self.newest = newest


class ActionEnded(Message):
    """A run of an own action ended."""

    def __init__(self, run: ActionRun) -> None:
        super().__init__()
        self.run = run


class PackageActionsFound(Message):
    """The actions of other packages were imported."""

    def __init__(self, found: PackageActions) -> None:
        super().__init__()
        self.found = found


class VerificationEnded(Message):
    """The verification of a checkpoint ended."""

    def __init__(self, outcome: VerificationOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class TfckptApp(JobApp[int]):
    """Shows one run, and changes it on request.

    Attributes:
        dashboard_type: The class of the main screen.
        run_directory: The run directory.
        read_only: Whether actions that change the run are disabled.
        newest: The newest checkpoints, if they are shown before the first snapshot.
        snapshot: The newest snapshot; None before the first one.
        listing: How the user listed the checkpoints.
        verifier: Verifies checkpoints in the background.
        own_actions: Runs the user's own actions in the background.
        runs_each_new: Whether own actions with `each_new` are run for new checkpoints.
        worker_history: Measurements of all workers since the app was opened.
        chart_choices: How the user looked at charts last.
        from_list: Whether the app returns to the list of runs from which it was opened.
    """

    dashboard_type: ClassVar[type[DashboardScreen]] = DashboardScreen

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "explain_quit", "Quit", show=False, system=True),
    ]
    NOTIFICATION_TIMEOUT = 6
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        *App.COMMANDS,
        _actions_provider,
        _checkpoints_provider,
    }

    def __init__(
        self,
        run: RunDirectory,
        *,
        read_only: bool = False,
        poll: float | None = None,
        monitor: SnapshotSource | None = None,
        config: Config | None = None,
        listing: ListOrder | None = None,
        charts: ChartChoices | None = None,
        from_list: bool = False,
    ) -> None:
        """Makes the app.

        Args:
            run: The run directory.
            read_only: Whether actions that change the run are disabled.
            poll: Seconds between scans of the directory, instead of waiting for file events.
            monitor: Provides the snapshots; by default it watches `run`.
            config: The configuration of the user.
            listing: How the user listed the checkpoints last.
            charts: How the user looked at charts last.
            from_list: Whether it returns to the list of runs from which it was opened.
        """
        super().__init__(config or Config())
        self.run_directory = run
        self.read_only = read_only
        self.newest: NewestRows | None = None
        self.snapshot: RunSnapshot | None = None
        self.listing = listing or ListOrder()
        self._monitor: SnapshotSource = Monitor(run, poll) if monitor is None else monitor
        self._added_actions = own_actions(self.config.actions)
        self.own_actions = ActionQueue(run, self._post_action, read_only=read_only)
        self.runs_each_new = True
        self.verifier = BackgroundVerifier(
            run,
            self._post_verification,
            read_only=read_only,
            describe=partial(describe_error, key_of=self.key_of),
        )
        self.worker_history = WorkerHistory()
        self.chart_choices = charts or ChartChoices()
        self.from_list = from_list
        self._restorable_before: frozenset[str] | None = None
        self._newest_event_at: float | None = None
        self._snapshot_at = time.monotonic()

    # -- start and end -------------------------------------------------------------------------

    @property
    def actions(self) -> Sequence[AppAction]:
        """All actions of the dashboard."""
        return (*self.dashboard_type.ACTIONS, *self._added_actions)

    def change_setting(self, name: str, value: Any) -> None:
        """Applies a setting of `[app]`; `poll` takes effect at the next start."""
        changed = {**msgspec.to_builtins(self.config.app), name: value}
        app = msgspec.convert(changed, AppSection)
        self.config = msgspec.structs.replace(self.config, app=app)
        self.theme = app.theme

    def get_default_screen(self) -> DashboardScreen:
        """Returns the main screen."""
        return self.dashboard_type(
            self.run_directory, read_only=self.read_only, added_actions=self._added_actions
        )

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Returns the entries of the palette that are not actions of the dashboard."""
        del screen
        yield SystemCommand("Theme", "Change colours", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save a screenshot", self.deliver_screenshot)

    def on_mount(self) -> None:
        """Starts to watch the run."""
        # The longest time that a busy thread may keep the others waiting.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._monitor.start(self._post_snapshot, self._post_newest, self.size.height)
        self.call_after_refresh(self.set_timer, _FIRST_FRAME_SECONDS, gc.enable)
        self.set_interval(_SILENCE_SECONDS, self._show_staleness)

    def on_unmount(self) -> None:
        """Stops the background threads."""
        self.close()

    def close(self) -> None:
        """Stops the monitor and the verifier, and ends own actions."""
        self._monitor.stop()
        self.verifier.stop()
        self.own_actions.stop()

    def _import_pages(self) -> None:
        """Imports all pages and dialogs, also those of other packages: a first key would be late.

        This runs in a thread.
        """
        # If one is gone, the key that needs it says so.
        with suppress(ImportError):
            import_module("tfckpt_tui.app.actions.run_control")
            for package in (dialogs, screens):
                for module in iter_modules(package.__path__, f"{package.__name__}."):
                    import_module(module.name)
        self.post_message(PackageActionsFound(actions_of_packages(self.actions, self.config.keys)))

    @on(PackageActionsFound)
    def _take_package_actions(self, message: PackageActionsFound) -> None:
        found = message.found
        self._added_actions += found.actions
        for screen in self.screen_stack:
            if isinstance(screen, DashboardScreen):
                screen.add_actions(found.actions)
        for problem in found.problems:
            self.notify(clean_message(problem), severity="warning", markup=False)

    # -- snapshots -----------------------------------------------------------------------------

    def _post_newest(self, newest: NewestRows) -> None:
        self.post_message(NewestFound(newest))

    @on(NewestFound)
    def _show_newest(self, message: NewestFound) -> None:
        """Shows the newest checkpoints, then has the others read."""
        self.newest = message.newest
        for screen in self.screen_stack:
            if isinstance(screen, DashboardScreen) and screen.is_running and screen.children:
                screen.show_newest(message.newest)
        self.call_after_refresh(self._monitor.refresh)

    def _post_snapshot(self, snapshot: RunSnapshot) -> None:
        self.post_message(SnapshotTaken(snapshot))

    @on(SnapshotTaken)
    def _show(self, message: SnapshotTaken) -> None:
        if self.snapshot is None:
            # Everything so far stays alive. Scanning it would delay a key press by 0.1 s.
            gc.freeze()
            self.set_timer(_SETTLED_SECONDS, Thread(target=self._import_pages, daemon=True).start)
        self.snapshot = self.progress.snapshot = message.snapshot
        self._snapshot_at = time.monotonic()
        self._show_staleness()
        self.worker_history.add(message.snapshot)
        self._ring_bell(message.snapshot)
        for screen in self.screen_stack:
            # While the app closes, a screen may have no widgets any more.
            if isinstance(screen, ShowsSnapshots) and screen.is_running and screen.children:
                screen.show(message.snapshot)
        self.update_progress()
        self._act_on_new(message.snapshot)

    def update_progress(self) -> None:
        """Shows changed commands and failures on all screens."""
        super().update_progress()
        for screen in self.screen_stack:
            if isinstance(screen, DashboardScreen):
                screen.update_progress()

    def _show_staleness(self) -> None:
        """Shows on every screen how old its data is if the run directory does not respond."""
        silent = time.monotonic() - self._snapshot_at
        seconds = int(silent) if silent > self._monitor.snapshot_timeout else 0
        for screen in self.screen_stack:
            for bar in screen.query(KeyBar):
                bar.show_silence(seconds)

    def _ring_bell(self, snapshot: RunSnapshot) -> None:
        """Rings the bell for new events of the configured kinds, and notifies of the newest."""
        newest = max((entry.at for entry in snapshot.event_log), default=0.0)
        before, self._newest_event_at = self._newest_event_at, newest
        rung = (
            []
            if before is None
            else [
                entry
                for entry in snapshot.event_log
                if entry.at > before and entry.kind in self.config.app.bell
            ]
        )
        if rung:
            self.bell()
            last = max(rung, key=lambda entry: entry.at)
            self.notify_terminal(f"{self.run_directory.root.name}: {last.message}")

    # -- verification --------------------------------------------------------------------------

    def _act_on_new(self, snapshot: RunSnapshot) -> None:
        """Verifies checkpoints that appeared since the last snapshot, and runs own actions."""
        names = frozenset(c.name for c in snapshot.checkpoints if c.restorable)
        before, self._restorable_before = self._restorable_before, names
        if before is None:
            return
        for checkpoint in snapshot.checkpoints:
            if checkpoint.name not in names or checkpoint.name in before:
                continue
            if checkpoint.state is CheckpointState.COMPLETE:
                self.verifier.add_when_idle(checkpoint.name)
            for name, section in self.config.actions.items():
                if section.each_new and self.runs_each_new and wants(name, checkpoint):
                    self.own_actions.add(name, section, (checkpoint,), requested=False)

    def _post_action(self, run: ActionRun) -> None:
        self.post_message(ActionEnded(run))

    @on(ActionEnded)
    def _show_action(self, message: ActionEnded) -> None:
        """Shows how an own action ended: a failure until the user dismisses it."""
        run, outcome = message.run, message.run.outcome
        if outcome is None or outcome.was_cancelled:
            return
        what = clean_message(" ".join((run.action, *run.names)))
        if outcome.problem:
            self.job_failed(what, clean_message(outcome.problem))
        elif run.requested:
            self.notify(f"{what}: {clean_message(outcome.words)}.", markup=False)
        self._monitor.refresh()

    def _post_verification(self, outcome: VerificationOutcome) -> None:
        self.post_message(VerificationEnded(outcome))

    @on(VerificationEnded)
    def _show_verification(self, message: VerificationEnded) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ShowsVerifications) and screen.is_running:
                screen.show_verification(message.outcome)
        self._monitor.refresh()

    # -- jobs in threads -----------------------------------------------------------------------

    def job_ended(self) -> None:
        """Reads the run again, which the job may have changed."""
        self._monitor.refresh()

    def job_failed(self, what: str, problem: str) -> None:
        """Shows the failure on the screens too that show failed actions."""
        super().job_failed(what, problem)
        for screen in self.screen_stack:
            if isinstance(screen, ShowsFailures):
                screen.report_failure(what, problem)

    def action_explain_quit(self) -> None:
        """Shows the key that closes the app; users expect ctrl+c to stop the training."""
        self.notify(f"Press {self.key_of('detach')} to detach. Training continues.", markup=False)


def main(
    run: RunDirectory,
    *,
    read_only: bool = False,
    poll: float | None = None,
    from_list: bool = False,
) -> int:
    """Opens the app on `run` and returns its exit status.

    Args:
        run: The run directory, or any directory of TensorFlow checkpoints.
        read_only: Whether actions that change the run are disabled.
        poll: Seconds between scans of the directory, instead of waiting for file events.
        from_list: Whether the app returns to the list of runs from which it was opened.
    """
    config = read_config(DEFAULT_KEYS)
    while True:
        last = last_look(run.root)
        app = TfckptApp(
            run,
            read_only=read_only,
            poll=poll or config.app.poll,
            config=config,
            listing=last.listing,
            charts=kept_choices(last.charts),
            from_list=from_list,
        )
        app.run()
        app.close()
        remember_look(run.root, LastLook(app.listing, app.chart_choices.to_keep()))
        if app.crash is None or (app.return_code or 0) > _SIGNALLED:
            return app.return_code or 0
        from tfckpt_tui.app.crash_app import CrashApp

        if not CrashApp(app.crash, config).run():
            return ExitCode.PROBLEM
