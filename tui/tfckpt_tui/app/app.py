"""The terminal app: one flow of data from the monitor, one flow of commands to the run."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import Screen

from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.errors import ExitCode, TfckptError, in_words
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.messages import JobDone, JobFailed, SnapshotTaken, VerificationEnded
from tfckpt_tui.app.screens.dashboard import DashboardScreen
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.background_verifier import BackgroundVerifier, VerificationOutcome
from tfckpt_tui.monitor.run_monitor import Monitor, SnapshotSource
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.worker_history import WorkerHistory
from tfckpt_tui.settings.config import AppSection, Config, read_config
from tfckpt_tui.settings.recent_runs import last_selection, remember_selection

_SILENCE_SECONDS = 1.0
_SWITCH_SECONDS = 0.001
_FIRST_FRAME_SECONDS = 0.03
"""What the first frame takes to reach the terminal, before anything is read."""


def _actions_provider() -> type[Provider]:
    # Imported when the palette is opened first: the first frame need not wait for it.
    from tfckpt_tui.app.palette import ActionsProvider

    return ActionsProvider


def _checkpoints_provider() -> type[Provider]:
    from tfckpt_tui.app.palette import CheckpointsProvider

    return CheckpointsProvider


class TfckptApp(BaseApp[int]):
    """Watches and steers one run.

    Attributes:
        selection: The checkpoint under the cursor; None where that follows the newest.
    """

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
        select: str | None = None,
    ) -> None:
        """Makes the app.

        Args:
            run: The run directory.
            read_only: Whether every action that changes something is switched off.
            poll: Seconds between looks, where file events are not to be relied on.
            monitor: Gives the snapshots; by default it watches `run`.
            config: What the person set for all runs.
            select: The checkpoint on which the cursor begins; by default the newest.
        """
        super().__init__(config or Config())
        self.run_directory = run
        self.read_only = read_only
        self.snapshot: RunSnapshot | None = None
        self.selection = select
        self._monitor: SnapshotSource = Monitor(run, poll) if monitor is None else monitor
        self.verifier = BackgroundVerifier(run, self._verification_ended, read_only=read_only)
        self.worker_history = WorkerHistory()
        self._restorable_before: frozenset[str] | None = None
        self.set_keymap(self.config.keys)
        self._heard_until: float | None = None
        self._heard_at = time.monotonic()

    # -- life --------------------------------------------------------------------------------

    def set(self, name: str, value: Any) -> None:
        """Puts a setting of `[app]` in force; what is watched otherwise is from the next start."""
        changed = {**msgspec.to_builtins(self.config.app), name: value}
        app = msgspec.convert(changed, AppSection)
        self.config = msgspec.structs.replace(self.config, app=app)
        self.theme = self._wanted_theme()

    def get_default_screen(self) -> DashboardScreen:
        """Returns the screen that everything else opens from."""
        return DashboardScreen(self.run_directory, read_only=self.read_only)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Returns what the palette offers beside the actions."""
        del screen
        yield SystemCommand("Theme", "Choose other colours", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save a picture of the screen", self.deliver_screenshot)

    def on_mount(self) -> None:
        """Starts looking."""
        # A thread of Python's that is busy may keep the others waiting for so long.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.call_after_refresh(self.set_timer, _FIRST_FRAME_SECONDS, self._begin)
        self.set_interval(_SILENCE_SECONDS, self._show_silence)

    def _begin(self) -> None:
        gc.enable()
        self._monitor.start(self._take)

    def on_unmount(self) -> None:
        """Ends what goes on beside the screen."""
        self.close()

    def close(self) -> None:
        """Ends the monitor and the verifier; what they are busy with is a daemon's business."""
        self._monitor.stop()
        self.verifier.stop()

    # -- data --------------------------------------------------------------------------------

    def _take(self, snapshot: RunSnapshot) -> None:
        self.post_message(SnapshotTaken(snapshot))

    @on(SnapshotTaken)
    def _show(self, message: SnapshotTaken) -> None:
        if self.snapshot is None:
            # What was imported and built by now stays: no collection has to walk through it,
            # which takes a tenth of a second, in the middle of a key press.
            gc.freeze()
        self.snapshot = message.snapshot
        self._heard_at = time.monotonic()
        self._show_silence()
        self.worker_history.add(message.snapshot)
        self._ring(message.snapshot)
        for screen in self.screen_stack:
            show = getattr(screen, "show", None)
            # One more may come while the app closes and its widgets are gone already.
            if show is not None and screen.is_running and screen.children:
                show(message.snapshot)

        self._suggest_new(message.snapshot)

    def _show_silence(self) -> None:
        """Says on every screen how old its data is, where the run directory does not answer."""
        silent = time.monotonic() - self._heard_at
        seconds = int(silent) if silent > self._monitor.snapshot_timeout else 0
        for screen in self.screen_stack:
            for bar in screen.query(KeyBar):
                bar.show_silence(seconds)

    def _ring(self, snapshot: RunSnapshot) -> None:
        """Rings the bell for what is new in the journal and the person wants to hear of."""
        newest = max((entry.at for entry in snapshot.journal), default=0.0)
        before, self._heard_until = self._heard_until, newest
        if before is not None and any(
            entry.at > before and entry.kind in self.config.app.bell for entry in snapshot.journal
        ):
            self.bell()

    # -- verifying ---------------------------------------------------------------------------

    def _suggest_new(self, snapshot: RunSnapshot) -> None:
        """Has checkpoints verified that came since the app was opened, when nobody waits."""
        names = frozenset(c.name for c in snapshot.checkpoints if c.restorable)
        known, self._restorable_before = self._restorable_before, names
        if known is None:
            return
        for checkpoint in snapshot.checkpoints:
            is_new = checkpoint.name in names and checkpoint.name not in known
            if is_new and checkpoint.state is CheckpointState.COMPLETE:
                self.verifier.suggest(checkpoint.name)

    def _verification_ended(self, outcome: VerificationOutcome) -> None:
        self.post_message(VerificationEnded(outcome))

    @on(VerificationEnded)
    def _show_verification(self, message: VerificationEnded) -> None:
        for screen in self.screen_stack:
            take = getattr(screen, "verified", None)
            if take is not None and screen.is_running:
                take(message.outcome)
        self._monitor.refresh()

    # -- work in threads ---------------------------------------------------------------------

    def start_job(
        self,
        what: str,
        work: Callable[[], Any],
        then: Callable[[Any], None] = lambda result: None,
        otherwise: Callable[[str], None] | None = None,
    ) -> None:
        """Does `work` in a thread that never holds up quitting.

        Args:
            what: Names the action if it fails.
            work: Is called in the thread; may raise the errors that people can meet.
            then: Gets its result, in the app's own thread.
            otherwise: Gets the message of its failure, safe to show, in the app's own thread;
                without it the failure is shown until it is dismissed.
        """

        def run() -> None:
            try:
                result = work()
            except (TfckptError, OSError) as error:
                self.post_message(JobFailed(what, clean(in_words(error)), otherwise))
            else:
                self.post_message(JobDone(result, then))

        threading.Thread(target=run, name=f"job: {what}", daemon=True).start()

    @on(JobDone)
    def _job_done(self, message: JobDone) -> None:
        message.then(message.result)
        self._monitor.refresh()

    @on(JobFailed)
    def _job_failed(self, message: JobFailed) -> None:
        if message.otherwise is not None:
            message.otherwise(message.problem)
            return
        for screen in self.screen_stack:
            report = getattr(screen, "report_failure", None)
            if report is not None:
                report(message.what, message.problem)

    def action_explain_quit(self) -> None:
        """Says which key leaves the app: ctrl+c would look like it stopped the training."""
        self.notify("Press q to detach; training goes on.", markup=False)


def main(run: RunDirectory, *, read_only: bool = False, poll: float | None = None) -> int:
    """Opens the app on `run` and returns its exit status.

    Args:
        run: The run directory; it need not hold a run of ours.
        read_only: Whether every action that changes something is switched off.
        poll: Seconds between looks, where file events are not to be relied on.
    """
    config = read_config()
    while True:
        app = TfckptApp(
            run,
            read_only=read_only,
            poll=poll or config.app.poll,
            config=config,
            select=last_selection(run.root),
        )
        app.run()
        app.close()
        remember_selection(run.root, app.selection)
        if app.crash is None:
            return app.return_code or 0
        from tfckpt_tui.app.crash_app import CrashApp

        if not CrashApp(app.crash, config).run():
            return ExitCode.PROBLEM
