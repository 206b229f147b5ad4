"""What guards would have done, as text."""

from __future__ import annotations

from tfckpt_trainer.guards.replay import Replay, ReplayedFiring
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean

STEPS_ARE_SKIPPED = "Recorded values are about a second apart; a guard sees every step."
"""What a replay cannot see, if steps lie between its points."""


def summary(replay: Replay) -> str:
    """Returns how often a guard would have fired, or why that is unknown; safe to show."""
    if replay.why_not:
        return clean(replay.why_not)
    points = units.count(replay.points, "point")
    span = f"{points} from step {replay.first_step:,} to {replay.last_step:,}"
    return f"it would have fired {units.count(len(replay.firings), 'time')} in {span}."


def firing_words(fired: ReplayedFiring) -> str:
    """Returns when a guard would have fired, why, and what it would have done; safe to show."""
    to = f" (to {fired.checkpoint})" if fired.checkpoint is not None else ""
    what = f"{fired.firing.evidence.what}: {', '.join(fired.actions)}{to}"
    return clean(f"{units.local_time(fired.at)}  step {fired.firing.step:,}  {what}")
