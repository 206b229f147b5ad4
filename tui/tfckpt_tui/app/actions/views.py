"""Opens the screens and dialogs that only show something.

Screens are imported when they are first opened, so that the first frame does not wait for them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tfckpt_tui.app import dialogs, screens
from tfckpt_tui.app.actions.action import READ_ONLY, Reason, needs_trainer

if TYPE_CHECKING:
    from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
    from tfckpt_trainer.rundir.records.event import EventEntry
    from tfckpt_tui.app.actions.run_control import RunControl
    from tfckpt_tui.app.protocols import Dashboard
    from tfckpt_tui.monitor.snapshot import RunSnapshot


def run_control(dashboard: Dashboard) -> RunControl:
    """Returns the actions that change the run, and the dialogs that ask first."""
    from tfckpt_tui.app.actions.run_control import RunControl

    return RunControl(dashboard)


def open_checkpoint(dashboard: Dashboard, *, verifies: bool = False) -> None:
    """Opens the screen of the selected checkpoint, or file of another format.

    Args:
        dashboard: The dashboard.
        verifies: Whether the screen of a file verifies it at once.
    """
    from tfckpt_trainer.catalog.directory.other_formats import OtherFile

    selection, at = dashboard.selection, dashboard.loaded_snapshot.at
    file = selection.unsupported
    if isinstance(file, OtherFile):
        prune = None if dashboard.read_only else run_control(dashboard).prune_file
        screen = screens.tensor_pages.FileScreen(
            dashboard.run_directory, file, at, prune, verifies=verifies
        )
        dashboard.app.push_screen(screen)
        return
    selected = selection.selected
    assert selected is not None
    show_checkpoint(dashboard, selected)


def show_checkpoint(dashboard: Dashboard, checkpoint: Checkpoint) -> None:
    """Opens the screen of a checkpoint."""
    dashboard.app.push_screen(
        screens.checkpoint.CheckpointScreen(
            dashboard.run_directory, checkpoint, dashboard.loaded_snapshot, dashboard
        )
    )


def open_comparison(dashboard: Dashboard) -> None:
    """Opens the comparison of two checkpoints, and unmarks them."""
    from tfckpt_tui.services.checkpoints.choose import pair_to_compare

    selection = dashboard.selection
    pair = pair_to_compare(
        dashboard.loaded_snapshot.checkpoints, selection.marked, selection.selected
    )
    if isinstance(pair, str):
        dashboard.app.notify(pair, severity="warning", markup=False)
        return
    dashboard.unmark_all()
    dashboard.app.push_screen(screens.compare.CompareScreen(dashboard.run_directory, *pair))


def open_tensorboard(dashboard: Dashboard) -> None:
    """Opens the dialog that starts and stops TensorBoard."""
    dialog = dialogs.tensorboard.TensorBoardDialog(
        dashboard.run_directory,
        dashboard.loaded_snapshot,
        dashboard.selection.selected,
        dashboard.run_app.start_job,
        read_only=dashboard.read_only,
    )
    dashboard.app.push_screen(dialog)


def open_logs(dashboard: Dashboard, worker: int | None = None, at: float | None = None) -> None:
    """Opens the logs.

    Args:
        dashboard: The dashboard.
        worker: Shows the log of the worker with this index; by default those of all workers.
        at: Scrolls to what was printed then (seconds since the epoch); by default to the end.
    """
    dashboard.app.push_screen(
        screens.logs.LogsScreen(dashboard.run_directory, dashboard.snapshot, worker, at)
    )


def open_worker(dashboard: Dashboard) -> None:
    """Opens the screen of one worker, or of the processes that do not use this library."""
    snapshot = dashboard.loaded_snapshot
    if snapshot.has_other_trainer:
        stop = run_control(dashboard).stop_process
        refusal = READ_ONLY if dashboard.read_only else ""
        screen = screens.processes.ProcessesScreen(
            snapshot, stop, dashboard.action_perform, refusal
        )
        dashboard.app.push_screen(screen)
        return

    def open_log(worker: int) -> None:
        open_logs(dashboard, worker)

    dashboard.app.push_screen(screens.worker.WorkerScreen(snapshot, open_log))


def open_stacks(dashboard: Dashboard) -> None:
    """Opens what the threads of the workers do."""
    dashboard.app.push_screen(screens.stacks.StacksScreen(dashboard.run_directory))


def open_diagnostics(dashboard: Dashboard) -> None:
    """Opens the diagnostics of the directory."""

    def perform(name: str | None) -> None:
        if name is not None:
            dashboard.action_perform(name)

    dashboard.app.push_screen(
        screens.diagnostics.DiagnosticsScreen(dashboard.loaded_snapshot), perform
    )


def open_charts(dashboard: Dashboard) -> None:
    """Opens the charts of the run."""

    def open_event(entry: EventEntry) -> None:
        snapshot = dashboard.loaded_snapshot
        checkpoint = snapshot.checkpoint(entry.checkpoint) if entry.checkpoint else None
        if checkpoint is None:
            open_event_log(dashboard, entry)
        else:
            show_checkpoint(dashboard, checkpoint)

    choices = dashboard.run_app.chart_choices
    dashboard.app.push_screen(
        screens.charts.ChartsScreen(dashboard.loaded_snapshot, choices, open_event)
    )


def _why_no_command(dashboard: Dashboard, snapshot: RunSnapshot) -> Reason:
    """Returns why no command can be sent to the trainer, as sentences; empty if one can."""
    return READ_ONLY if dashboard.read_only else needs_trainer(snapshot, dashboard.selection)


def open_profile(dashboard: Dashboard) -> None:
    """Opens the traces."""
    screen = screens.profile.ProfileScreen(
        dashboard.run_directory,
        dashboard.loaded_snapshot,
        run_control(dashboard).profile,
        partial(open_tensorboard, dashboard),
        partial(_why_no_command, dashboard),
    )
    dashboard.app.push_screen(screen)


def open_own_actions(dashboard: Dashboard) -> None:
    """Opens the runs of the user's own actions."""
    app = dashboard.run_app

    def set_each_new(runs: bool) -> None:
        app.runs_each_new = runs

    screen = screens.action_runs.ActionRunsScreen(
        app.own_actions, app.config.actions, app.runs_each_new, set_each_new
    )
    dashboard.app.push_screen(screen)


def open_hyperparameters(dashboard: Dashboard) -> None:
    """Opens the hyperparameters."""
    change, why_not = run_control(dashboard).set_hyperparameter, partial(_why_no_command, dashboard)
    dashboard.app.push_screen(
        screens.hyperparameters.HyperparametersScreen(dashboard.loaded_snapshot, change, why_not)
    )


def open_guards(dashboard: Dashboard) -> None:
    """Opens the guards."""
    control = run_control(dashboard)
    refusal = READ_ONLY if dashboard.read_only else ""
    screen = screens.guards.GuardsScreen(
        dashboard.run_directory,
        dashboard.loaded_snapshot,
        control.add_guard,
        control.remove_guard,
        refusal,
    )
    dashboard.app.push_screen(screen)


def open_event_log(dashboard: Dashboard, chosen: EventEntry | None = None) -> None:
    """Opens the event log, at an event if one is given."""

    def open_logs_at(worker: int | None, at: float) -> None:
        open_logs(dashboard, worker, at)

    dashboard.app.push_screen(
        screens.event_log.EventLogScreen(dashboard.loaded_snapshot, open_logs_at, chosen)
    )


def open_trash(dashboard: Dashboard) -> None:
    """Opens the trash."""
    control = run_control(dashboard)
    refusal = READ_ONLY if dashboard.read_only else ""
    screen = screens.trash.TrashScreen(
        dashboard.loaded_snapshot, control.undo_prune, control.empty_trash, refusal
    )
    dashboard.app.push_screen(screen)


def open_settings(dashboard: Dashboard, section: str = "") -> None:
    """Opens the settings, or those of one section of the file."""
    from tfckpt_tui.settings.config import config_path

    themes = list(dashboard.app.available_themes)
    dashboard.app.push_screen(screens.settings.SettingsScreen(themes, config_path(), section))


def open_help(dashboard: Dashboard) -> None:
    """Opens the help of the dashboard."""
    lines = screens.help.help_of_actions(dashboard.run_app.config, dashboard.available_actions())
    dashboard.app.push_screen(screens.help.HelpScreen(lines))
