"""The runs that train in this process: one in each run directory."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tfckpt_trainer.errors import RefusedError

_changing = threading.Lock()


class StopRequest(Protocol):
    """`TrainingRun.request_stop`."""

    def __call__(self, reason: str = "", *, preempted: bool = False) -> None:
        """Stops the run."""


@dataclass(frozen=True)
class OpenRun:
    """A run that was opened and not closed yet.

    Attributes:
        root: Its run directory.
        thread: The thread that opened it.
        request_stop: Its method of this name.
        abandon: Closes it if its loop was left without that.
    """

    root: Path
    thread: threading.Thread
    request_stop: StopRequest
    abandon: Callable[[], None]


_open: dict[Path, OpenRun] = {}


def request_stop(reason: str = "", *, preempted: bool = False) -> None:
    """Stops the runs of this process, with a save, such as one that `fit` trains.

    Any thread or signal handler of any worker may call it, once training has begun.

    Args:
        reason: Who or what asked for it, for the event log.
        preempted: See `TrainingRun.request_stop`.
    """
    # Without the lock, which a signal handler might wait for in the thread that holds it.
    for run in list(_open.values()):
        run.request_stop(reason, preempted=preempted)


def add_open_run(root: Path, request_stop: StopRequest, abandon: Callable[[], None]) -> OpenRun:
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
    run = OpenRun(root, this, request_stop, abandon)
    with _changing:
        _open[root] = run
    return run


def remove_open_run(run: OpenRun) -> None:
    """Notes that a run is closed."""
    with _changing:
        if _open.get(run.root) is run:
            del _open[run.root]


_forget_left: list[Callable[[], None]] = []


def keep_left_run(forget: Callable[[], None]) -> None:
    """Keeps what a save needs of a run whose loop was left, until the next run is created.

    Args:
        forget: Frees it.
    """
    _forget_left.append(forget)


def forget_left_run() -> None:
    """Frees what `keep_left_run` keeps: iterators of the next run may be of the same dataset."""
    while _forget_left:
        _forget_left.pop()()
