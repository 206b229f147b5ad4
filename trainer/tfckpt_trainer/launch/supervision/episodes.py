"""Tells when a run begins to be degraded or to stall, once for each time that it does."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfckpt_trainer.launch.supervision.restart_policy import Attempt
from tfckpt_trainer.rundir.heartbeats.health import STALLED_AFTER_CALLS
from tfckpt_trainer.rundir.records.event import EventKind

DEGRADED_SECONDS = 10.0
"""A worker that does not react for so long again is an event: many do for a moment."""

STALLED_SECONDS = 60.0
"""Shortest time without a step that is an event, if no worker is to blame."""


class Episodes:
    """Looks at one start of all workers for what users should know before anything ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_since: float | None = None
        self._told: EventKind | None = None

    def begun(self, attempt: Attempt) -> tuple[EventKind, str] | None:
        """Returns the kind of an episode that has just begun, and a sentence about it."""
        found = self._find(attempt)
        kind = found[0] if found is not None else None
        before, self._told = self._told, kind
        return found if kind is not before else None

    def _find(self, attempt: Attempt) -> tuple[EventKind, str] | None:
        if attempt.silent is None or attempt.exits:
            self._silent_since = None
        else:
            now = self._clock()
            self._silent_since = now if self._silent_since is None else self._silent_since
            if now - self._silent_since < DEGRADED_SECONDS:
                return None
            index, why = attempt.silent
            return EventKind.DEGRADED, f"Worker {index} {why}."
        limit = max(STALLED_SECONDS, STALLED_AFTER_CALLS * attempt.call_seconds)
        if attempt.stands_for <= limit or attempt.in_script:
            return None
        index, why = attempt.suspect or (0, "")
        cause = f" Worker {index} {why}." if why else " No worker reports a cause."
        return EventKind.STALLED, f"No worker made a step in {attempt.stands_for:.0f} s.{cause}"
