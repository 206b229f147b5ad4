"""Runs something in child processes, which end or wait at chosen moments.

The most that a test needs is one of these:

    code, told = in_child(action)
    with entered_elsewhere(locked(path, 1, "test")):
        ...  # another process holds the lock
    ended = interleaved(first, second, 3)
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing import Pipe
from unittest.mock import patch

from refusing_disk import Call, WatchedDisk
from tfckpt_trainer.rundir.storage.disk import Disk

KILLED = 137
CRASHED = 70
MOST_SECONDS = 60
_sleep = time.sleep


class Child:
    """A child process.

    Attributes:
        pid: Its number.
    """

    def __init__(self, action: Callable[[], int], seconds: int | None = MOST_SECONDS) -> None:
        """Starts it.

        Args:
            action: Returns the exit status, which is `CRASHED` if an error comes out.
            seconds: After how many it is ended; None for never.
        """
        # Opened before the child may become another account.
        self._told = os.memfd_create("told")
        self.pid = os.fork()
        if self.pid == 0:
            # Objects of TensorFlow would wait in their destructors for threads that a child lacks.
            gc.disable()
            signal.alarm(seconds or 0)
            os._exit(_run(action, self._told))

    def end(self) -> tuple[int, str]:
        """Waits for its end; returns the exit status and what it printed."""
        _, status = os.waitpid(self.pid, 0)
        with open(self._told, "rb") as file:
            file.seek(0)
            return os.waitstatus_to_exitcode(status), file.read().decode()


def in_child(action: Callable[[], int]) -> tuple[int, str]:
    """Runs `action` in a child; returns as `Child.end`."""
    return Child(action).end()


def _run(action: Callable[[], int], told: int) -> int:
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            code = action()
    except BaseException:
        words.write(traceback.format_exc())
        code = CRASHED
    os.write(told, words.getvalue().encode("utf-8", "replace"))
    return code


class Moment:
    """A moment that one process waits for, and that another one reaches or ends before.

    The process that reaches it, and no other one, begins between its creation and the waiting.
    """

    def __init__(self) -> None:
        self._reader, self._writer = Pipe(duplex=False)

    def reach(self) -> None:
        """Tells the other process."""
        self._writer.send_bytes(b".")

    def wait(self) -> None:
        """Returns when it is reached, or the process that would reach it has ended."""
        self._writer.close()
        self._reader.poll(None)


def interleaved(
    first: Callable[[Disk], int], second: Callable[[], int], number: int, *, dies: bool = False
) -> tuple[tuple[int, str], tuple[int, str]]:
    """Halts an action at a call that changes the disk, and has another one run meanwhile.

    The first goes on once the second has ended, or sleeps because it waits for a lock.

    Args:
        first: An action on a disk.
        second: Another action.
        number: The call before which the first is halted, counted from 1.
        dies: Whether the first is killed then.

    Returns:
        How each of them ended, and what it printed.
    """
    halted, go = Moment(), Moment()

    def halt(call: Call) -> None:
        if call.number == number:
            halted.reach()
            go.wait()
            if dies:
                os._exit(KILLED)

    one = Child(lambda: first(WatchedDisk(halt)))
    halted.wait()
    # Made now, so that the first has no end of it.
    waits = Moment()

    def action() -> int:
        with patch.object(time, "sleep", lambda seconds: (waits.reach(), _sleep(seconds))):
            return second()

    other = Child(action)
    waits.wait()
    go.reach()
    return one.end(), other.end()


@contextlib.contextmanager
def entered_elsewhere(context: AbstractContextManager[object]) -> Iterator[None]:
    """Has another process be in a context meanwhile."""
    entered, leave = Moment(), Moment()

    def action() -> int:
        with context:
            entered.reach()
            leave.wait()
        return 0

    child = Child(action)
    entered.wait()
    try:
        yield
    finally:
        leave.reach()
        code, told = child.end()
        assert code == 0, told


def limit_memory(more: int) -> None:
    """Limits what this process may take, in bytes, beyond what it has."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = [line for line in file if line.startswith("VmData:")]
    most = (int(line.split()[1]) << 10) + more
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
