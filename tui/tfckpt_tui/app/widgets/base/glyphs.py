"""What each state looks like and means: a glyph and a word, with a colour as the third sign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.rundir.health import RunState, WorkerState
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_tui.app.widgets.base.painting import Span


@dataclass(frozen=True)
class Sign:
    """How a state is shown.

    Attributes:
        glyph: One cell wide in every terminal.
        style: Name of its style.
        meaning: For the help screen.
    """

    glyph: str
    style: str
    meaning: str

    def with_word(self, word: str) -> tuple[Span, Span]:
        """Returns the glyph and `word` in the colour of the state."""
        return (f"{self.glyph} ", self.style), (word, self.style)


RUN: Mapping[RunState, Sign] = {
    RunState.STARTING: Sign("◌", "busy", "the workers come up"),
    RunState.TRAINING: Sign("●", "good", "all workers take steps"),
    RunState.PAUSED: Sign("‖", "warn", "all workers wait for resume"),
    RunState.DEGRADED: Sign("▲", "bad", "a worker is lost, stalled or gone, others are there"),
    RunState.RESTARTING: Sign("↻", "busy", "the supervisor starts the workers again"),
    RunState.STOPPED: Sign("■", "muted", "a person or the cluster ended it"),
    RunState.FINISHED: Sign("✓", "good", "it reached its last step"),
    RunState.FAILED: Sign("✗", "bad", "it ended with an error"),
    RunState.UNATTENDED: Sign("○", "muted", "files only; no trainer of ours was seen"),
}

WORKER: Mapping[WorkerState, Sign] = {
    WorkerState.STARTING: Sign("◌", "busy", "importing, building the model, joining the others"),
    WorkerState.TRAINING: Sign("●", "good", "takes steps"),
    WorkerState.SAVING: Sign("▼", "busy", "writes a checkpoint"),
    WorkerState.RESTORING: Sign("▲", "busy", "goes back to a checkpoint"),
    WorkerState.PAUSED: Sign("‖", "warn", "waits for resume"),
    WorkerState.WAITING: Sign("◔", "busy", "waits for other workers"),
    WorkerState.SERVING: Sign("◇", "calm", "computes or keeps variables for the chief"),
    WorkerState.STALLED: Sign("◐", "bad", "no step for far longer than its usual"),
    WorkerState.LOST: Sign("✗", "bad", "no heartbeat, or its process is gone"),
    WorkerState.EXITED: Sign("■", "muted", "left by itself; the reason stands beside it"),
}

CHECKPOINT: Mapping[CheckpointState, Sign] = {
    CheckpointState.WRITING: Sign("◌", "busy", "being written; not yet a checkpoint"),
    CheckpointState.COMPLETE: Sign("●", "calm", "all files there; can be restored"),
    CheckpointState.VERIFIED: Sign("✓", "good", "complete, and its checksums were compared"),
    CheckpointState.INCOMPLETE: Sign("◐", "bad", "a file is missing or too short"),
    CheckpointState.CORRUPT: Sign("✗", "bad", "its bytes are not what was written"),
    CheckpointState.UNREADABLE: Sign("∅", "warn", "the system does not let its index be read"),
    CheckpointState.ORPHANED: Sign("?", "warn", "left behind by a killed save"),
    CheckpointState.TRASHED: Sign("♻", "muted", "moved away by a prune; undo brings it back"),
}

COMMAND: Mapping[CommandState, Sign] = {
    CommandState.REQUESTED: Sign("◌", "busy", "waits to be taken by the trainer"),
    CommandState.SEEN: Sign("◔", "busy", "the trainer took it"),
    CommandState.AGREED: Sign("◑", "busy", "all workers agreed on the step at which they act"),
    CommandState.WORKING: Sign("◕", "busy", "being carried out"),
    CommandState.DONE: Sign("✓", "good", "carried out, with its evidence"),
    CommandState.REFUSED: Sign("✗", "bad", "not carried out; nothing was touched"),
    CommandState.FAILED: Sign("✗", "bad", "tried and failed"),
    CommandState.EXPIRED: Sign("✗", "bad", "nobody took it in time; it will not be done later"),
}

JOURNAL: Mapping[JournalKind, Sign] = {
    JournalKind.START: Sign("▶", "calm", "training began or went on"),
    JournalKind.SAVE: Sign("◆", "good", "a checkpoint was saved"),
    JournalKind.RESTORE: Sign("↩", "accent", "training went back in place"),
    JournalKind.PRUNE: Sign("−", "warn", "checkpoints were moved to the trash"),
    JournalKind.UNDO: Sign("+", "good", "checkpoints came back from the trash"),
    JournalKind.EMPTY: Sign("×", "warn", "what was in the trash was deleted for good"),
    JournalKind.PAUSE: Sign("‖", "warn", "training was paused"),
    JournalKind.RESUME: Sign("▶", "good", "training went on"),
    JournalKind.STOP: Sign("■", "muted", "the run was stopped"),
    JournalKind.FINISH: Sign("✓", "good", "the run reached its last step"),
    JournalKind.REFUSED: Sign("✗", "bad", "a command was refused"),
    JournalKind.FAILED: Sign("✗", "bad", "something failed"),
    JournalKind.EXPIRED: Sign("✗", "warn", "a command was not taken in time"),
    JournalKind.WORKER_LOST: Sign("✗", "bad", "a worker died or went silent"),
    JournalKind.RESTART: Sign("↻", "busy", "the workers were started again"),
    JournalKind.PIN: Sign("★", "pin", "a checkpoint was pinned"),
    JournalKind.UNPIN: Sign("☆", "muted", "a pin was taken off"),
    JournalKind.NOTE: Sign("·", "calm", "the training script said something"),
    JournalKind.EXPORT: Sign("⇪", "good", "a model file was made of a checkpoint"),
}

PIN = "★"
"""Beside a pinned checkpoint."""

MARK = "▶"
"""Beside a marked checkpoint."""
