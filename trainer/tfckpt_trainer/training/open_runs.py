"""The runs that train in this process: one in each run directory."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.errors import RefusedError

_changing = threading.Lock()


@dataclass(frozen=True)
class OpenRun:
    """A run that was opened and not closed yet.

    Attributes:
        root: Its run directory.
        thread: The thread that opened it.
        abandon: Closes it if its loop was left without that.
    """

    root: Path
    thread: threading.Thread
    abandon: Callable[[], None]


_open: dict[Path, OpenRun] = {}


def add_open_run(root: Path, abandon: Callable[[], None]) -> OpenRun:
    """Notes that this thread trains in `root`, and closes a run that was left open there.

    `model.fit` that is interrupted in a notebook leaves its run open, for example.

    Raises:
        RefusedError: Another thread of this process trains there.
    """
    this = threading.current_thread()
    with _changing:
        earlier = _open.get(root)
        if earlier is not None and earlier.thread is not this and earlier.thread.is_alive():
            raise RefusedError(
                f"This process already trains in {root}, in thread {earlier.thread.name}. Stop "
                f"that run with `tfckpt-tui stop {shlex.quote(str(root))}`, or train in another "
                "directory."
            )
    if earlier is not None:
        earlier.abandon()
    run = OpenRun(root, this, abandon)
    with _changing:
        _open[root] = run
    return run


def remove_open_run(run: OpenRun) -> None:
    """Notes that a run is closed."""
    with _changing:
        if _open.get(run.root) is run:
            del _open[run.root]
