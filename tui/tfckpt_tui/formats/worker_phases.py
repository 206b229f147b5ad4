"""What a worker does between two signs of progress, in a few words."""

from __future__ import annotations

from tfckpt_trainer.catalog.scan.alerts import FIRST_START_SECONDS
from tfckpt_trainer.rundir.records.worker import Phase, WorkerStatus
from tfckpt_tui.formats import units

_STARTING = {
    Phase.IMPORT: "importing TensorFlow",
    Phase.PREPARE: "in the script, before its strategy",
    Phase.JOIN: "waiting for all workers",
    Phase.BUILD: "in the script, before its run",
    Phase.RESTORE: "restoring",
    Phase.INPUT: "waiting for its first input",
    Phase.STEP: "first step",
    Phase.SCRIPT: "in the script, before its first step",
}
_TRAINING = {
    Phase.INPUT: "waiting for input",
    Phase.STEP: "running a step",
    Phase.SCRIPT: "in the script, between two steps",
}


def phase_in_words(status: WorkerStatus, now: float) -> str:
    """Returns the phase of a worker and for how long it lasts; empty if unknown.

    Args:
        status: Its last heartbeat.
        now: Seconds since the epoch.
    """
    phases = _STARTING if status.is_starting else _TRAINING
    words = phases.get(status.phase) if status.phase is not None else None
    if words is None or status.phase_since is None:
        return ""
    seconds = max(0.0, now - status.phase_since)
    if status.phase is Phase.IMPORT and seconds > FIRST_START_SECONDS:
        # No import takes that long: the script may not use this library.
        words = "no sign of the script for"
    return f"{words} {units.duration(seconds)}"
