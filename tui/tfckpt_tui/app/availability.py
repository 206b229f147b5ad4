"""Which actions can be done now, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.rundir.health import HAS_ENDED, RunState
from tfckpt_tui.app.actions import Action
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.verify import can_be_verified


@dataclass(frozen=True)
class Chosen:
    """The checkpoints that an action is about.

    Attributes:
        selected: The one under the cursor.
        marked: The marked ones, in the order in which they were marked.
    """

    selected: Checkpoint | None = None
    marked: tuple[Checkpoint, ...] = ()

    @property
    def all(self) -> tuple[Checkpoint, ...]:
        """What an action for several is about: the marked ones, else the selected one."""
        if self.marked or self.selected is None:
            return self.marked
        return (self.selected,)


def why_not(
    action: Action,
    snapshot: RunSnapshot | None,
    chosen: Chosen,
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
    about = chosen.all if action.for_marked else chosen.selected
    if action.needs_checkpoint and not about:
        return "There is no checkpoint; this needs one."
    holds, words = _HINDRANCES.get(action.name, (None, ""))
    if holds is not None and holds(snapshot):
        return words
    return _why_not_these(action, snapshot, chosen) if chosen.selected is not None else ""


def _why_not_these(action: Action, snapshot: RunSnapshot, chosen: Chosen) -> str:
    """Returns why the chosen checkpoints are none for `action`; empty if they are."""
    if action.name == "verify" and not any(can_be_verified(c) for c in chosen.all):
        unfit = chosen.all[0]
        return f"{clean(unfit.name)} cannot be read now: {clean(unfit.problem)}"
    selected = chosen.selected
    if action.name != "export" or selected is None:
        return ""
    if not selected.restorable:
        name, state = clean(selected.name), selected.state.value
        return f"{name} is {state}; only what can be restored can be exported."
    if not (snapshot.info and snapshot.info.command):
        return "The run was not launched from here; `tfckpt-tui export RUN -- COMMAND` names it."
    return ""


def label(action: Action, snapshot: RunSnapshot | None, chosen: Chosen) -> str:
    """Returns what the key does now, in a word or two."""
    if action.name == "pause" and snapshot is not None and snapshot.state is RunState.PAUSED:
        return "resume"
    word = action.footer
    if action.name == "pin" and chosen.all and all(c.pinned for c in chosen.all):
        word = "unpin"
    return f"{word} marked" if action.for_marked and chosen.marked else word


_HINDRANCES: dict[str, tuple[Callable[[RunSnapshot], bool], str]] = {
    "launch": (
        lambda run: run.state not in HAS_ENDED,
        "It is running; stop it first.",
    ),
    "pause": (
        lambda run: run.state is RunState.STARTING,
        "The workers are not training yet.",
    ),
    "restore": (lambda run: not run.checkpoints, "There is no checkpoint."),
    "prune": (lambda run: not run.checkpoints, "There is no checkpoint."),
    "compare": (
        lambda run: len(run.checkpoints) < 2,
        "There is only one checkpoint; comparing needs two.",
    ),
    "worker": (lambda run: not run.workers, "No worker has written a heartbeat."),
    "charts": (lambda run: not run.points, "Nothing was measured yet."),
    "diagnostics": (
        lambda run: not run.diagnostics,
        "This directory has no diagnostics.",
    ),
    "undo": (lambda run: not run.trash, "The trash is empty; there is nothing to bring back."),
}
"""What keeps an action from being done, and how that is said."""

_ALWAYS = {"help", "detach", "logs", "settings", "palette"}
