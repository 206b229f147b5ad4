"""Says at the start of a run which state of the script was not passed to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.training.check.digests import saved_state
from tfckpt_trainer.training.check.untracked import describe_untracked, find_untracked
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.state.variables import components, is_variable, raw_variable

SHOWN_UNTRACKED = 5
"""How many objects that were not passed are described one by one."""

_states: weakref.WeakValueDictionary[int, TrainingState] = weakref.WeakValueDictionary()
"""The states of the runs of this process."""

_held: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""What they held. A model often outlives its run, as a variable of a notebook for example."""


def remember_state(state: TrainingState) -> None:
    """Takes note of what a run holds, for later runs of this process.

    Call it when the run is created, because it may be refused then, and when it ends.
    """
    _states[id(state)] = state
    # It calls properties of the script's objects; neither training nor its end depends on it.
    with suppress(Exception):
        for _, thing in saved_state(state):
            # A compiled step may keep the parts of a variable alive, and nothing the whole.
            parts = (raw_variable(thing), *components(thing)) if is_variable(thing) else ()
            _held.update((id(held), held) for held in (thing, *parts))


def note_untracked(note: Callable[[str], None]) -> None:
    """Notes each object with state that no run of this process held; see `remember_state`.

    Args:
        note: Takes one sentence or two about an object.
    """
    try:
        # State of another run of this process is not missing in this one.
        held = [thing for state in list(_states.values()) for _, thing in saved_state(state)]
        objects = find_untracked([*held, *_held.values()])
    except Exception as error:
        # It calls properties of the script's objects; training does not depend on it.
        note(f"State that was not passed cannot be listed: {describe_error(error)}")
        return
    missing = [untracked for untracked in objects if not untracked.by_keras]
    for untracked in missing[:SHOWN_UNTRACKED]:
        note(describe_untracked(untracked))
    if len(missing) > SHOWN_UNTRACKED:
        more = ", ".join(str(untracked) for untracked in missing[SHOWN_UNTRACKED:][:20])
        note(f"Not saved either, for the same reason: {more}.")
