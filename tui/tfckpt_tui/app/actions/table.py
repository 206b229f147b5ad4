"""All actions of the dashboard, in the order of the footer and the help.

Keys, footer, palette, help and documentation come from this table.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app.actions import views
from tfckpt_tui.app.actions.action import (
    AppAction,
    Reason,
    can_launch_again,
    has_ended,
    needs_trainer,
    press,
    require,
)
from tfckpt_tui.formats.checkpoint_columns import copied_names
from tfckpt_tui.formats.checkpoint_filter import filter_help
from tfckpt_tui.formats.text import clean

if TYPE_CHECKING:
    from tfckpt_tui.app.protocols import Selection
    from tfckpt_tui.monitor.snapshot import RunSnapshot


def _marks_exist(run: RunSnapshot, selection: Selection) -> Reason:
    del run
    return "The marked checkpoints are gone: esc unmarks." if selection.marks_are_gone else ""


def _can_verify(run: RunSnapshot, selection: Selection) -> Reason:
    # Imports NumPy, which `tfckpt-tui config` does without.
    from tfckpt_tui.services.checkpoints.verify import can_be_verified

    if not selection.all:
        return _inspectable(run, selection)
    if any(can_be_verified(checkpoint) for checkpoint in selection.all):
        return ""
    first = selection.all[0]
    return f"{clean(first.name)} cannot be read now: {clean(first.problem)}"


def _can_export(run: RunSnapshot, selection: Selection) -> str:
    selected = selection.selected
    if selected is not None and not selected.restorable:
        name, state = clean(selected.name), selected.state.value
        return f"{name} is {state}. Only restorable checkpoints can be exported."
    if not (run.info and run.info.launched):
        name = clean(selected.name) if selected is not None else "CKPT"
        command = shlex.join(("tfckpt-tui", "export", run.path, name, "--", "COMMAND"))
        return (
            "This run was not launched by tfckpt-tui, so its training command is unknown. Give it: "
            f"`{command}`."
        )
    return ""


def _can_stop(run: RunSnapshot, selection: Selection) -> Reason:
    if _has_waiting_job(run, selection):
        return ""
    if _is_job_unknown(run):
        return Advice.of(
            "Slurm cannot be asked about the batch job. Press {stop} to try to cancel it.",
            stop=press("force-stop"),
        )
    if has_ended(run, selection):
        return _needs_processes(run, selection)
    if run.has_other_trainer:
        return ""
    # A supervisor carries out a stop while no trainer can, such as during a start.
    supervised = run.supervisor is not None and run.supervisor.state in _SUPERVISES
    return "" if supervised else _STOPPABLE(run, selection)


def _has_processes(run: RunSnapshot, selection: Selection) -> Reason:
    if run.workers or run.has_other_trainer:
        return ""
    found = "No worker has written a heartbeat."
    if not can_launch_again(run, selection):
        return found
    return Advice.of("Press {launch} to launch training.", launch=press("launch")).after(found)


def _has_lost_worker(run: RunSnapshot) -> bool:
    """Whether the supervisor noted the loss of a worker."""
    # `tfckpt-tui config` reads the keys, and starts quickly without this.
    from tfckpt_tui.services.runs.failure_card import newest_loss

    return newest_loss(run.event_log) is not None


def _has_waiting_job(run: RunSnapshot, selection: Selection) -> bool:
    del selection
    # A trainer that answers is stopped, whatever waits.
    return run.job is not None and run.job.is_waiting and not run.trainer_answers


def _is_job_unknown(run: RunSnapshot) -> bool:
    """Whether the batch job may wait or run, because Slurm cannot be asked about it."""
    job = run.job
    if job is None or not job.silence or run.trainer_answers:
        return False
    goes_on = job.record.started_at is None or EventKind.REQUEUE in job.told
    return goes_on or run.state not in {RunState.STOPPED, RunState.FINISHED}


def _can_force_stop(run: RunSnapshot, selection: Selection) -> Reason:
    if run.has_other_trainer:
        return _OTHER_TRAINER
    return "" if _is_job_unknown(run) else _needs_processes(run, selection)


def _can_restore(run: RunSnapshot, selection: Selection) -> Reason:
    if run.trainer_answers:
        return ""
    if run.has_other_trainer:
        return needs_trainer(run, selection)
    if _has_waiting_job(run, selection):
        return _JOB_WAITS
    return _STOPPABLE(run, selection) if run.state not in HAS_ENDED else ""


def _needs_processes(run: RunSnapshot, selection: Selection) -> str:
    del selection
    if run.state not in HAS_ENDED:
        return ""
    what = "The run has ended." if run.tracked else "No run was launched in this directory."
    return f"{what} There is nothing to stop."


def _answers_no_command(run: RunSnapshot, selection: Selection) -> bool:
    del selection
    return run.state not in HAS_ENDED and not run.trainer_answers


def _why_unselected(run: RunSnapshot, selection: Selection, *, is_made: bool) -> Reason:
    if is_made:
        return ""
    if selection.unsupported is not None:
        # Imported here: `tfckpt-tui config` reads the keys, and starts quickly without this.
        from tfckpt_trainer.catalog.directory.other_formats import OtherFile

        name = clean(selection.unsupported.name)
        if isinstance(selection.unsupported, OtherFile):
            form = selection.unsupported.format
            loads = f"{form.name}: {form.reader} loads it."
            what = f"{name} is no checkpoint of TensorFlow, but {loads}"
            if not selection.unsupported.is_readable:
                return what
            return Advice.of(
                "{what} Press {inspect} to see its tensors.", what=what, inspect=press("inspect")
            )
        return Advice.of(
            "{name} is in TensorFlow's V1 format, which is not supported. Press {diagnostics} to "
            "read how to convert it.",
            name=name,
            diagnostics=press("diagnostics"),
        )
    if run.checkpoints:
        return "No checkpoint matches the filter. Press esc to show all."
    return "There is no checkpoint yet."


def _selected(run: RunSnapshot, selection: Selection) -> Reason:
    return _why_unselected(run, selection, is_made=selection.selected is not None)


def _inspectable(run: RunSnapshot, selection: Selection) -> Reason:
    from tfckpt_trainer.catalog.directory.other_formats import OtherFile

    other = selection.unsupported
    return "" if isinstance(other, OtherFile) and other.is_readable else _selected(run, selection)


def selected_or_marked(run: RunSnapshot, selection: Selection) -> Reason:
    """Requires a selected checkpoint, or marked ones."""
    return _marks_exist(run, selection) or _why_unselected(
        run, selection, is_made=bool(selection.all)
    )


def _shown(run: RunSnapshot, selection: Selection) -> Reason:
    is_made = selection.selected is not None or bool(run.checkpoints and selection.unsupported)
    return _why_unselected(run, selection, is_made=is_made)


_SUPERVISES = {SupervisorState.STARTING, SupervisorState.RUNNING, SupervisorState.RESTARTING}

_JOB_WAITS = Advice.of(
    "The batch job of the run waits in the queue. Press {stop} to cancel it first.",
    stop=press("stop"),
)
_OTHER_TRAINER = Advice.of(
    "A process runs here without tfckpt_trainer. Press {stop} to end it.", stop=press("stop")
)
_TRAINS = require(
    lambda run, selection: run.state not in {RunState.STARTING, RunState.RESTARTING},
    "The workers are not training yet.",
)
_STOPPABLE = require(
    lambda run, selection: run.trainer_answers,
    Advice.of(
        "No trainer answers. Press {stop} to end the processes of the run.",
        stop=press("force-stop"),
    ),
)
_CHECKPOINTS = require(
    lambda run, selection: bool(run.checkpoints),
    "There is no checkpoint yet.",
)

ACTIONS = (
    AppAction(
        name="save",
        key="s",
        label="save",
        title="Save a checkpoint now",
        help="All workers save at the same step, and training continues. The checkpoint counts "
        "once it is verified and flushed to disk.",
        perform=lambda dashboard: views.run_control(dashboard).save(),
        command="save",
        requires=(needs_trainer,),
        changes_run=True,
        in_footer=True,
    ),
    AppAction(
        name="restore",
        key="r",
        label="restore",
        title="Restore a checkpoint",
        help="All workers restore the selected checkpoint, or one that you type, without a "
        "restart. If the run has ended, launches it again from that checkpoint. Later checkpoints "
        "stay. Going back to an older step starts a new branch.",
        perform=lambda dashboard: views.run_control(dashboard).restore(),
        command="restore",
        requires=(_can_restore, _CHECKPOINTS),
        changes_run=True,
        in_footer=True,
    ),
    AppAction(
        name="prune",
        key="p",
        label="prune",
        title="Free disk space by a retention policy",
        help="Shows what the policy deletes, why, and how many bytes that frees; then asks. If "
        "checkpoints are marked, prunes those of them that may be pruned. Pruned checkpoints move "
        "to the trash.",
        perform=lambda dashboard: views.run_control(dashboard).prune(),
        command="prune",
        requires=(_CHECKPOINTS, _marks_exist),
        changes_run=True,
        applies_to_marked=True,
        in_footer=True,
    ),
    AppAction(
        name="undo",
        key="u",
        label="undo",
        title="Undo the last prune",
        help="Moves its checkpoints back from the trash.",
        perform=lambda dashboard: views.run_control(dashboard).undo(),
        command="undo",
        requires=(lambda run, selection: run.nothing_to_undo,),
        changes_run=True,
        in_footer=True,
    ),
    AppAction(
        name="pin",
        key="asterisk",
        label="pin",
        title="Pin or unpin the selected checkpoint",
        help="A pinned checkpoint is never pruned. If checkpoints are marked, pins all of them, or "
        "unpins them if all are pinned.",
        perform=lambda dashboard: views.run_control(dashboard).pin(),
        command="pin",
        requires=(selected_or_marked,),
        changes_run=True,
        applies_to_marked=True,
        in_footer=True,
        other_label=(
            "unpin",
            lambda run, selection: bool(selection.all) and all(c.pinned for c in selection.all),
        ),
    ),
    AppAction(
        name="inspect",
        key="enter",
        label="inspect",
        title="Inspect the selected checkpoint",
        help="Shows its variables with statistics, its record, whether it is damaged, and what "
        "resuming from it restores. Of a Keras or safetensors file, shows the variables.",
        perform=views.open_checkpoint,
        command="inspect",
        requires=(_inspectable,),
        in_footer=True,
    ),
    AppAction(
        name="verify",
        key="v",
        label="verify",
        title="Verify the selected checkpoint",
        help="Compares every byte with its checksum, in the background. If checkpoints are marked, "
        "verifies all of them. Press the key again to cancel. New checkpoints are verified "
        "automatically. Opens a Keras or safetensors file to verify it.",
        perform=lambda dashboard: dashboard.verify(),
        command="verify",
        requires=(_marks_exist, _can_verify),
        applies_to_marked=True,
        in_footer=True,
    ),
    AppAction(
        name="mark",
        key="space",
        label="mark",
        title="Mark or unmark the selected checkpoint",
        help="Marked checkpoints are verified, pinned, pruned and copied together. Two marked "
        "checkpoints can be compared. Esc unmarks all.",
        perform=lambda dashboard: dashboard.mark(),
        requires=(_selected,),
    ),
    AppAction(
        name="mark-all",
        key="M",
        label="mark all",
        title="Mark all checkpoints that are shown",
        help="Marks all checkpoints that match the filter. Press the key again to unmark all.",
        perform=lambda dashboard: dashboard.mark_all(),
        requires=(_selected,),
    ),
    AppAction(
        name="compare",
        key="d",
        label="compare",
        title="Compare two checkpoints",
        help="Shows which tensors changed, and by how much. Compares two marked checkpoints, the "
        "marked and the selected one, or the selected one and the one before it.",
        perform=views.open_comparison,
        command="compare",
        requires=(
            _selected,
            require(
                lambda run, selection: len(run.checkpoints) >= 2,
                "There is only one checkpoint. Comparing needs two.",
            ),
        ),
        in_footer=True,
    ),
    AppAction(
        name="export",
        key="e",
        label="export",
        title="Export the selected checkpoint as a model file",
        help="Writes a Keras file, a SavedModel or the weights only. Another process tests the "
        "file before it appears. Training continues.",
        perform=lambda dashboard: views.run_control(dashboard).export(),
        command="export",
        requires=(_selected, _can_export),
        changes_run=True,
        in_footer=True,
    ),
    AppAction(
        name="check",
        key="K",
        label="check",
        title="Check that training resumes exactly",
        help="The run saves, trains a few steps, restores in place, and trains them again. "
        "Compares all bits, and names the first difference. Says how long that takes, and asks.",
        perform=lambda dashboard: views.run_control(dashboard).check(),
        command="check",
        requires=(needs_trainer, _TRAINS),
        changes_run=True,
    ),
    AppAction(
        name="pause",
        key="z",
        label="pause",
        title="Pause or resume training",
        help="All workers pause after the same step, and resume together.",
        perform=lambda dashboard: views.run_control(dashboard).pause(),
        command="pause",
        requires=(needs_trainer, _TRAINS),
        changes_run=True,
        in_footer=True,
        other_label=("resume", lambda run, selection: run.state is RunState.PAUSED),
    ),
    AppAction(
        name="stop",
        key="x",
        label="stop",
        title="Stop the run",
        help="Ends training on all workers, with a last save or without. Cancels the batch job of "
        "a run that waits in the queue. Ends a process that does not use tfckpt_trainer, without "
        "a save. Asks first.",
        perform=lambda dashboard: views.run_control(dashboard).stop(),
        command="stop",
        requires=(_can_stop,),
        changes_run=True,
        in_footer=True,
        other_label=("cancel", _has_waiting_job),
        needed_when=_has_waiting_job,
    ),
    AppAction(
        name="force-stop",
        key="X",
        label="force stop",
        title="End the processes of a run that hangs",
        help="Names the processes that are alive, and asks. They have a minute to save and exit, "
        "then they are killed. It also ends scripts that do not use tfckpt_trainer.",
        perform=lambda dashboard: views.run_control(dashboard).force_stop(),
        command="stop",
        requires=(_can_force_stop,),
        changes_run=True,
        needed_when=_answers_no_command,
    ),
    AppAction(
        name="launch",
        key="L",
        label="launch",
        title="Launch training here, or launch it again",
        help="Opens a form with the command, the number of workers and the options of the last "
        "launch; on a cluster, submits the batch job again. Training continues from the newest "
        "restorable checkpoint.",
        perform=lambda dashboard: views.run_control(dashboard).launch(),
        command="launch",
        requires=(
            require(
                lambda run, selection: run.state is not RunState.QUEUED,
                _JOB_WAITS,
            ),
            require(lambda run, selection: not run.has_other_trainer, _OTHER_TRAINER),
            require(
                lambda run, selection: run.state in HAS_ENDED,
                Advice.of("The run is active. Press {stop} to stop it first.", stop=press("stop")),
            ),
        ),
        changes_run=True,
        in_footer=True,
        needed_when=can_launch_again,
    ),
    AppAction(
        name="tensorboard",
        key="t",
        label="tensorboard",
        title="Open TensorBoard on this run",
        help="Starts TensorBoard on the loopback address. Shows its address and, over SSH, the "
        "command that forwards its port.",
        perform=views.open_tensorboard,
        command="tensorboard",
        in_footer=True,
    ),
    AppAction(
        name="logs",
        key="l",
        label="logs",
        title="Read the logs of the workers",
        help="Shows the logs of all workers and of the supervisor, and follows new lines.",
        perform=views.open_logs,
        command="logs",
        before_first_snapshot=True,
        in_footer=True,
    ),
    AppAction(
        name="failure",
        key="f",
        label="failure",
        title="Open the log where the run failed",
        help="Shows what the worker that failed first, or holds up the others, printed at that "
        "time; after a restart, the one that failed last. With the focus on the card, enter does "
        "the same, n chooses another worker, and y copies the card.",
        perform=lambda dashboard: dashboard.open_failure(),
        requires=(
            require(
                lambda run, selection: run.failure is not None or _has_lost_worker(run),
                "No worker failed or hangs.",
            ),
        ),
    ),
    AppAction(
        name="stacks",
        key="S",
        label="stacks",
        title="Ask at which line each worker is",
        help="For a run that hangs: shows the line of the script and the innermost frames of each "
        "worker. Training goes on meanwhile. Asks py-spy for those of a process that does not use "
        "tfckpt_trainer.",
        perform=views.open_stacks,
        command="stacks",
        requires=(
            require(
                lambda run, selection: (
                    run.has_other_trainer or any(not worker.is_past for worker in run.workers)
                ),
                "No worker runs.",
            ),
        ),
        changes_run=True,
    ),
    AppAction(
        name="diagnostics",
        key="o",
        label="diagnostics",
        title="Show alerts and diagnostics",
        help="Lists alerts of the run, such as saves that fail, files that cannot be read, and "
        "problems of the directory, such as files left by a killed save. Shows the consequences, "
        "and what to do.",
        perform=views.open_diagnostics,
        command="ls",
        in_footer=True,
        footer_when=lambda run, selection: bool(run.alerts or run.problems or run.diagnostics),
    ),
    AppAction(
        name="worker",
        key="w",
        label="worker",
        title="Show one worker",
        help="Shows what it does or waits for, its step time compared with the fastest worker and "
        "with its own best, its resources, and charts since the app was opened. The arrows switch "
        "to other workers. Without workers, shows the processes that do not use tfckpt_trainer.",
        perform=views.open_worker,
        command="status",
        requires=(_has_processes,),
        needed_when=lambda run, selection: run.has_other_trainer,
        other_label=("process", lambda run, selection: run.has_other_trainer),
    ),
    AppAction(
        name="charts",
        key="c",
        label="charts",
        title="Show charts of all metrics",
        help="Charts all metrics, throughput and step time in pages. A cursor shows the values at "
        "a step in all charts. Zooms, smooths, filters, joins metrics in one chart, and opens "
        "the checkpoints and events at the marks.",
        perform=views.open_charts,
    ),
    AppAction(
        name="profile",
        key="P",
        label="profile",
        title="Show what a step spends its time on",
        help="Lists the traces of TensorFlow's profiler, what tracing cost, and the ten slowest "
        "operations of each. n traces the next steps while the run trains.",
        perform=views.open_profile,
        command="profile",
    ),
    AppAction(
        name="own-actions",
        key="A",
        label="actions",
        title="Show your own actions and what they print",
        help="Lists the commands of your configuration that were run since the app was opened, and "
        "follows their output. x cancels one. They end with the app.",
        perform=views.open_own_actions,
        command="act",
        before_first_snapshot=True,
    ),
    AppAction(
        name="hyperparameters",
        key="H",
        label="hyperparameters",
        title="Show hyperparameters, and change them",
        help="Lists values that can change while the run trains, such as the learning rate: what "
        "they can be, who changed them last, and planned changes. Enter changes one on all "
        "workers after the same step. Without a trainer, shows those of the next start.",
        perform=views.open_hyperparameters,
        command="set",
    ),
    AppAction(
        name="guards",
        key="G",
        label="guards",
        title="Show guards, add and remove them",
        help="Lists the rules that act while the run trains, how often each fired, and what it "
        "would have done so far. a adds one, after a replay over the recorded history.",
        perform=views.open_guards,
        command="guards",
        precedes_panes=True,
    ),
    AppAction(
        name="events",
        key="J",
        label="events",
        title="Read the event log of the run",
        help="Lists all events, newest first; a filter searches them. Shows the selected event in "
        "full and, for a lost worker, the last lines of its log.",
        perform=views.open_event_log,
        command="journal",
        in_footer=True,
    ),
    AppAction(
        name="trash",
        key="T",
        label="trash",
        title="Show the trash",
        help="Lists the prunes that can be undone. u undoes one, E deletes everything permanently.",
        perform=views.open_trash,
        command="trash",
    ),
    AppAction(
        name="filter",
        key="slash",
        label="filter",
        title="Filter the checkpoints",
        help=f"Shows the checkpoints that match all words. {filter_help()} Enter keeps the filter, "
        "esc clears it.",
        perform=lambda dashboard: dashboard.open_filter(),
        precedes_panes=True,
    ),
    AppAction(
        name="sort",
        key="greater_than_sign",
        label="sort",
        title="Sort by the next column",
        help="After the last column, the checkpoints are listed by branch again.",
        perform=lambda dashboard: dashboard.sort_by_column(1),
        requires=(_shown,),
    ),
    AppAction(
        name="sort-back",
        key="less_than_sign",
        label="sort back",
        title="Sort by the previous column",
        help="Goes through the columns in the other direction.",
        perform=lambda dashboard: dashboard.sort_by_column(-1),
        requires=(_shown,),
    ),
    AppAction(
        name="turn-order",
        key="equals_sign",
        label="reverse",
        title="Reverse the sort order",
        help="Switches between largest first and smallest first.",
        perform=lambda dashboard: dashboard.reverse_sort_order(),
        requires=(_shown,),
    ),
    AppAction(
        name="columns",
        key="C",
        label="columns",
        title="Choose the columns of the checkpoints",
        help="Shows a column always, never, or where it fits. Columns that differ come first.",
        perform=lambda dashboard: views.open_settings(dashboard, "app.columns"),
    ),
    AppAction(
        name="copy",
        key="y",
        label="copy",
        title="Copy the path of the selected checkpoint",
        help="Copies to the clipboard of your terminal, if it allows that (OSC 52), also through "
        "SSH. Where tmux runs on another machine than the app, it needs `set -g set-clipboard on`.",
        perform=lambda dashboard: dashboard.copy_paths(),
        requires=(selected_or_marked,),
        applies_to_marked=True,
    ),
    AppAction(
        name="copy-row",
        key="Y",
        label="copy row",
        title="Copy the row of the selected checkpoint",
        help=f"Copies {copied_names()}, separated by tabs for a spreadsheet.",
        perform=lambda dashboard: dashboard.copy_rows(),
        requires=(selected_or_marked,),
        applies_to_marked=True,
    ),
    AppAction(
        name="palette",
        key="colon",
        label="palette",
        title="Search actions, checkpoints and steps",
        help="Finds an action or a checkpoint by a part of its name, or the checkpoint nearest to "
        "a step. ctrl+p opens the same palette.",
        perform=lambda dashboard: dashboard.app.action_command_palette(),
        before_first_snapshot=True,
    ),
    AppAction(
        name="settings",
        key="comma",
        label="settings",
        title="Change colours, columns, bell and polling",
        help="The arrows change a setting. The configuration file keeps it.",
        perform=views.open_settings,
        command="config",
        before_first_snapshot=True,
    ),
    AppAction(
        name="help",
        key="question_mark",
        label="help",
        title="Show the keys and what the states mean",
        help="Lists the keys that work now, and explains states and colours.",
        perform=views.open_help,
        before_first_snapshot=True,
        in_footer=True,
        at_footer_end=True,
    ),
    AppAction(
        name="detach",
        key="q",
        label="detach",
        title="Detach; training continues",
        help="Closes the app. `tfckpt-tui attach RUN` opens it again.",
        perform=lambda dashboard: dashboard.app.exit(0),
        before_first_snapshot=True,
        in_footer=True,
        at_footer_end=True,
    ),
)

DEFAULT_KEYS = {action.name: action.key for action in ACTIONS}
"""The key of each action by its name."""
