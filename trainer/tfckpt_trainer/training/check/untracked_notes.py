"""Says at the start of a run which state of the script was not passed to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.training.check.digests import saved_state
from tfckpt_trainer.training.check.untracked import describe_untracked, find_untracked
from tfckpt_trainer.training.checkpoint.state import TrainingState

SHOWN_UNTRACKED = 5
"""How many objects that were not passed are described one by one."""

_states: list[weakref.ref[TrainingState]] = []
"""The states of all runs of this process."""


def remember_state(state: TrainingState) -> None:
    """Takes note of the state of a run of this process, also if the run is refused then."""
    _states.append(weakref.ref(state))


def note_untracked(note: Callable[[str], None]) -> None:
    """Notes each object with state that no run of this process holds; see `remember_state`.

    Args:
        note: Takes one sentence or two about an object.
    """
    try:
        # State of an earlier run of this process is not missing in this one.
        states = [one for one in (known() for known in _states) if one is not None]
        found = find_untracked(thing for one in states for _, thing in saved_state(one))
    except Exception as error:
        # It calls properties of the script's objects; training does not depend on it.
        note(f"State that was not passed cannot be listed: {describe_error(error)}")
        return
    missing = [untracked for untracked in found if not untracked.by_keras]
    for untracked in missing[:SHOWN_UNTRACKED]:
        note(describe_untracked(untracked))
    if len(missing) > SHOWN_UNTRACKED:
        more = ", ".join(str(untracked) for untracked in missing[SHOWN_UNTRACKED:][:20])
        note(f"Not saved either, for the same reason: {more}.")
