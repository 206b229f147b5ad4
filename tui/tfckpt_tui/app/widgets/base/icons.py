"""The icon, style and meaning of each state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.rundir.heartbeats.health import RunState, WorkerState
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.services.runs.account import RunAccount


class Icon(msgspec.Struct, frozen=True):
    """The icon of a state.

    Attributes:
        glyph: A character that is one cell wide in every terminal.
        style: Name of its style.
        meaning: Explanation on the help screen.
    """

    glyph: str
    style: str
    meaning: str

    def with_word(self, word: str) -> tuple[Span, Span]:
        """Returns the glyph and `word` in the style of the state."""
        return (f"{self.glyph} ", self.style), (word, self.style)


RUN: Mapping[RunState, Icon] = {
    RunState.QUEUED: Icon("◷", "calm", "its batch job waits in the queue of the cluster"),
    RunState.STARTING: Icon("◌", "busy", "workers are starting"),
    RunState.TRAINING: Icon("●", "good", "all workers are training"),
    RunState.PAUSED: Icon("‖", "warn", "all workers are paused"),
    RunState.DEGRADED: Icon("▲", "bad", "some workers are lost, stalled or exited"),
    RunState.RESTARTING: Icon("↻", "busy", "the supervisor is restarting the workers"),
    RunState.STOPPED: Icon("■", "muted", "stopped by a user or by the cluster"),
    RunState.FINISHED: Icon("✓", "good", "reached the last step"),
    RunState.FAILED: Icon("✗", "bad", "ended with an error"),
    RunState.REFUSED: Icon("✗", "bad", "Slurm did not accept its newest batch job"),
    RunState.UNANSWERED: Icon("?", "bad", "Slurm did not answer; it may have accepted a batch job"),
    RunState.UNATTENDED: Icon("○", "muted", "checkpoints only; no trainer has reported here"),
    RunState.UNKNOWN: Icon("?", "bad", "the run directory does not answer"),
}

WORKER: Mapping[WorkerState, Icon] = {
    WorkerState.STARTING: Icon("◌", "busy", "importing, building the model, joining the cluster"),
    WorkerState.TRAINING: Icon("●", "good", "training"),
    WorkerState.SAVING: Icon("▼", "busy", "writing a checkpoint"),
    WorkerState.RESTORING: Icon("▲", "busy", "restoring a checkpoint"),
    WorkerState.PAUSED: Icon("‖", "warn", "paused until resume"),
    WorkerState.WAITING: Icon("◔", "busy", "waiting for other workers"),
    WorkerState.SERVING: Icon("◇", "calm", "computing or holding variables for the chief"),
    WorkerState.STALLED: Icon("◐", "bad", "no step for far longer than usual"),
    WorkerState.LOST: Icon("✗", "bad", "no heartbeat, or its process has ended"),
    WorkerState.EXITED: Icon("■", "muted", "exited; the reason is beside it"),
}


def run_icon(account: RunAccount) -> Icon:
    """Returns the icon of what a run does."""
    if account.has_other_trainer:
        return RUN[RunState.TRAINING]
    return RUN[account.state] if account.interlude is None else WORKER[account.interlude]


CHECKPOINT: Mapping[CheckpointState, Icon] = {
    CheckpointState.WRITING: Icon("◌", "busy", "being written; not committed yet"),
    CheckpointState.COMPLETE: Icon("●", "calm", "all files present; can be restored"),
    CheckpointState.VERIFIED: Icon("✓", "good", "complete, and all checksums match"),
    CheckpointState.INEXACT: Icon("◑", "warn", "can be restored, but not exactly"),
    CheckpointState.INCOMPLETE: Icon("◐", "bad", "a file is missing or too short"),
    CheckpointState.CORRUPT: Icon("✗", "bad", "its contents do not match its checksums"),
    CheckpointState.UNREADABLE: Icon("∅", "warn", "a file cannot be read"),
    CheckpointState.UNSUPPORTED: Icon("∅", "warn", "sound, in a form that is not read here"),
    CheckpointState.ORPHANED: Icon("?", "warn", "left by a save that was killed"),
    CheckpointState.TRASHED: Icon("♻", "muted", "in the trash; undo restores it"),
}

COMMAND: Mapping[CommandState, Icon] = {
    CommandState.REQUESTED: Icon("◌", "busy", "waiting for the trainer"),
    CommandState.SEEN: Icon("◔", "busy", "received by the trainer"),
    CommandState.AGREED: Icon("◑", "busy", "all workers agreed on the step"),
    CommandState.WORKING: Icon("◕", "busy", "in progress"),
    CommandState.DONE: Icon("✓", "good", "done and confirmed"),
    CommandState.REFUSED: Icon("✗", "bad", "refused; nothing changed"),
    CommandState.FAILED: Icon("✗", "bad", "failed"),
    CommandState.EXPIRED: Icon("✗", "bad", "no trainer received it in time; it will not run later"),
}

EVENT_ICONS: Mapping[EventKind, Icon] = {
    EventKind.START: Icon("▶", "calm", "training started or resumed"),
    EventKind.SAVE: Icon("◆", "good", "a checkpoint was saved"),
    EventKind.RESTORE: Icon("↩", "accent", "training restored a checkpoint in place"),
    EventKind.PRUNE: Icon("−", "warn", "checkpoints were moved to the trash"),
    EventKind.UNDO: Icon("+", "good", "checkpoints came back from the trash"),
    EventKind.EMPTY: Icon("×", "warn", "the trash was emptied"),
    EventKind.SET: Icon("Δ", "accent", "hyperparameters were changed"),
    EventKind.GUARD: Icon("!", "warn", "a guard fired"),
    EventKind.PAUSE: Icon("‖", "warn", "training was paused"),
    EventKind.RESUME: Icon("▶", "good", "training was resumed"),
    EventKind.STOP: Icon("■", "muted", "the run was stopped"),
    EventKind.FINISH: Icon("✓", "good", "the run reached its last step"),
    EventKind.REFUSED: Icon("✗", "bad", "a command was refused"),
    EventKind.FAILED: Icon("✗", "bad", "something failed"),
    EventKind.EXPIRED: Icon("✗", "warn", "a command expired"),
    EventKind.NOT_FINITE: Icon("✗", "bad", "a metric became NaN or infinite"),
    EventKind.WORKER_LOST: Icon("✗", "bad", "a worker ended or sent no heartbeat"),
    EventKind.DEGRADED: Icon("◐", "warn", "a worker does not react"),
    EventKind.STALLED: Icon("◌", "warn", "no worker makes a step"),
    EventKind.RESTART: Icon("↻", "busy", "the workers were restarted"),
    EventKind.SUBMIT: Icon("◷", "calm", "a batch job was submitted"),
    EventKind.REQUEUE: Icon("↻", "busy", "the batch job waits in the queue again"),
    EventKind.PREEMPT: Icon("↧", "warn", "the scheduler preempted the batch job"),
    EventKind.PIN: Icon("★", "pin", "a checkpoint was pinned"),
    EventKind.UNPIN: Icon("☆", "muted", "a checkpoint was unpinned"),
    EventKind.NOTE: Icon("·", "calm", "a note from the training script"),
    EventKind.EXPORT: Icon("⇪", "good", "a model was exported from a checkpoint"),
}

PIN = "★"
"""Icon of pinned checkpoints."""

MARK = "▶"
"""Icon of marked checkpoints."""
