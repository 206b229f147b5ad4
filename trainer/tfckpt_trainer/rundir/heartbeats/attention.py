"""Whether somebody looks at a run: on a network disk, heartbeats are frequent only then.

Who looks touches the directory of new commands, and a command changes it too. So one call of a
worker sees both, and it needs no file of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.directory_changes import NETWORK_SECONDS, PolledDirectory
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system

INTERVAL_SECONDS = 1.0
"""Interval between heartbeats on a local disk, and while somebody looks."""

IDLE_SECONDS = 10.0
"""The same on a network disk while nobody looks."""

IDLE_LOST_SECONDS = 15.0
"""Age at which such a heartbeat is too old: as late as one of each second after five."""

MEMBER_SECONDS = 240.0
"""The same of one of many workers whose short steps the chief makes too, and tells of."""

MEMBER_LOST_SECONDS = 245.0
"""Age at which such a heartbeat is too old, if the chief tells of no step."""

MEMBER_LOOK_SECONDS = 120.0
"""Interval at which such a worker asks whether somebody looks."""

LOOKED_AT_SECONDS = 30.0
"""For so long after a look or a command somebody looks. So does who starts a worker."""

AGAIN_SECONDS = 15.0
"""Interval at which a reader says that it still looks."""

_looked: dict[Path, float] = {}


class Pace(NamedTuple):
    """How often a process writes heartbeats.

    Attributes:
        interval_seconds: The interval at which they are due.
        lost_after_seconds: The age at which one is too old; None for five intervals.
    """

    interval_seconds: float
    lost_after_seconds: float | None


FREQUENT = Pace(INTERVAL_SECONDS, None)
IDLE = Pace(IDLE_SECONDS, IDLE_LOST_SECONDS)
MEMBER = Pace(MEMBER_SECONDS, MEMBER_LOST_SECONDS)


def look_at(run: RunDirectory, clock: Callable[[], float] = time.monotonic) -> None:
    """Has the processes of a run on a network disk write a heartbeat each second for a while.

    Who may not write there sees their heartbeats of each `IDLE_SECONDS`.

    Args:
        run: The run directory.
        clock: Returns seconds; never goes back.
    """
    now = clock()
    if now - _looked.get(run.root, float("-inf")) < AGAIN_SECONDS:
        return
    _looked[run.root] = now
    if is_network_file_system(run.root):
        with suppress(OSError):
            disk().set_time(run.inbox)


class Attention:
    """Tells a process that writes heartbeats whether somebody looks."""

    def __init__(self, run: RunDirectory, *, asks: bool) -> None:
        """Begins, as looked at.

        Args:
            run: The run directory.
            asks: Whether it asks the disk; otherwise who waits for commands calls `notice`.
        """
        self._is_network = is_network_file_system(run.root)
        self._inbox = PolledDirectory(run.inbox, NETWORK_SECONDS) if asks else None
        self._noticed_at = time.monotonic()

    @property
    def is_given(self) -> bool:
        """Whether somebody looks; always on a local disk."""
        return not self._is_network or time.monotonic() - self._noticed_at < LOOKED_AT_SECONDS

    @property
    def pace(self) -> Pace:
        """How often to write heartbeats."""
        return FREQUENT if self.is_given else IDLE

    def notice(self) -> None:
        """Is told of a look or a command."""
        self._noticed_at = time.monotonic()

    def ask(self, pause: float = 0.0) -> None:
        """Asks the disk, if that is due.

        Args:
            pause: Seconds since the last question that it takes at least.
        """
        if self._is_network and self._inbox is not None:
            # Who cannot read it says so elsewhere.
            with suppress(OSError):
                if self._inbox.has_changed(pause):
                    self.notice()
