"""Which actions can be done now, and why the others cannot."""

from __future__ import annotations

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.rundir.health import RunState
from tfckpt_tui.commands.table import Action
from tfckpt_tui.commands.verifying import can_be_verified
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean


def why_not(
    action: Action,
    snapshot: RunSnapshot | None,
    selected: Checkpoint | None,
    *,
    read_only: bool,
) -> str:
    """Returns why `action` cannot be done now, as a sentence; empty if it can."""
    if read_only and action.changes:
        return "The app was opened with --read-only."
    if snapshot is None:
        return "The run directory is still being read." if action.name not in _ALWAYS else ""
    if action.needs_trainer and not snapshot.trainer_answers:
        return "No trainer answers; this needs a live one."
    if action.name == "pause" and snapshot.state is RunState.STARTING:
        return "The workers are not training yet."
    if action.name in {"restore", "prune"} and not snapshot.checkpoints:
        return "There is no checkpoint."
    if action.needs_checkpoint and selected is None:
        return "There is no checkpoint; this needs one."
    if action.name == "compare" and len(snapshot.checkpoints) < 2:
        return "There is only one checkpoint; comparing needs two."
    if action.name == "worker" and not snapshot.workers:
        return "No worker has written a heartbeat."
    if action.name == "remarks" and not snapshot.remarks:
        return "Nothing is odd in this directory."
    if action.name == "undo" and not snapshot.trash:
        return "The trash is empty; there is nothing to bring back."
    return _why_not_this_one(action, snapshot, selected) if selected is not None else ""


def _why_not_this_one(action: Action, snapshot: RunSnapshot, selected: Checkpoint) -> str:
    """Returns why the selected checkpoint is not one for `action`; empty if it is."""
    name = clean(selected.name)
    if action.name == "verify" and not can_be_verified(selected):
        return f"{name} cannot be read now: {clean(selected.problem)}"
    if action.name == "export" and not selected.restorable:
        return f"{name} is {selected.state.value}; only what can be restored can be exported."
    if action.name == "export" and not (snapshot.info and snapshot.info.command):
        return "The run was not launched from here; `tfckpt-tui export RUN -- COMMAND` names it."
    return ""


def label(action: Action, snapshot: RunSnapshot | None, selected: Checkpoint | None) -> str:
    """Returns what the key does now, in a word or two."""
    if action.name == "pause" and snapshot is not None and snapshot.state is RunState.PAUSED:
        return "resume"
    if action.name == "pin" and selected is not None and selected.pinned:
        return "unpin"
    return action.footer


_ALWAYS = {"help", "detach", "logs"}
