"""Ends a process that trains without this library."""

from __future__ import annotations

import os
import signal
import time

from tfckpt_trainer.errors import RefusedError, TfckptError
from tfckpt_trainer.launch.processes.named_processes import not_permitted
from tfckpt_trainer.rundir.heartbeats.process_table import runs_since
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.services.runs.process_watch import is_own_process

STOP_SECONDS = 30.0
"""Seconds that a process has to end after its signal, before that is told."""

_POLL_SECONDS = 0.1

WHAT_IS_LOST = (
    "A script without a handler of SIGTERM ends at once, without a save: its steps since its "
    "newest checkpoint are lost."
)
"""What the signal does, for who is asked."""


def stop_process(process: HostProcess, seconds: float = STOP_SECONDS) -> str:
    """Sends SIGTERM to a process, and waits until it has ended; returns what was done.

    Args:
        process: The process, as it was read: another one may have its number by now.
        seconds: How long to wait.

    Raises:
        RefusedError: It has ended already.
        LaunchError: It belongs to another user.
        TfckptError: It did not end in time.
    """
    _send(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while runs_since(process.pid, process.after_boot):
        if time.monotonic() > deadline:
            raise TfckptError(
                f"{process.title} still runs {seconds:g} s after SIGTERM. Its script may handle "
                f"the signal: wait, or kill it with `kill -KILL {process.pid}`."
            )
        time.sleep(_POLL_SECONDS)
    return f"Ended {process.name}."


def _send(process: HostProcess, number: signal.Signals) -> None:
    """Sends a signal to the process that was read, and to no later one with its number."""
    held = None
    try:
        # What is checked and signalled is one process, even if it ends in between.
        held = _hold(process.pid)
        if not runs_since(process.pid, process.after_boot):
            raise _ended(process)
        if not is_own_process(process.pid):
            raise not_permitted(f"Process {process.pid}", process.pid)
        if held is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        raise _ended(process) from None
    finally:
        if held is not None:
            os.close(held)


def _hold(pid: int) -> int | None:
    """Returns a descriptor of a process; None where the system has none, or refuses.

    Raises:
        ProcessLookupError: There is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _ended(process: HostProcess) -> RefusedError:
    return RefusedError(f"{process.title} has ended already; nothing was done.")
