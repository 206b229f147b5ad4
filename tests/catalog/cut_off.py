"""Runs an action in a child process that dies, or whose disk refuses, at its k-th change of files.

Every call that changes a directory or opens a file to write is announced by an audit event of the
interpreter, before it happens; the child counts them.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from collections.abc import Callable

from tfckpt_trainer.errors import TfckptError

DONE, CUT_OFF, RAISED, SURVIVED, BROKEN = 0, 9, 10, 11, 12

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def killed_at(call: int, action: Callable[[], object]) -> int:
    """Runs `action` in a child that is killed just before its change number `call`.

    Returns:
        `CUT_OFF`, or `DONE` where it has fewer.
    """
    return _in_child(call, action, lambda number: os._exit(CUT_OFF) if number == call else None)


def cut_off_at(call: int, action: Callable[[], object], cut: Callable[[], object]) -> int:
    """Runs `action` in a child; just before its change number `call`, `cut` is called and it ends.

    Returns:
        `CUT_OFF`, or `DONE` where it has fewer.
    """

    def end(number: int) -> None:
        if number == call:
            cut()
            os._exit(CUT_OFF)

    return _in_child(call, action, end)


def refused_at(
    call: int, action: Callable[[], object], *, for_good: bool, number: int = errno.EIO
) -> int:
    """Runs `action` in a child for which the disk refuses change number `call`.

    Args:
        call: Counted from 1.
        action: What to run.
        for_good: Whether it refuses all later ones too.
        number: The error of the disk.

    Returns:
        `RAISED` if an error came out, `SURVIVED` if none did, or `DONE` where nothing was
        refused.
    """

    def refuse(count: int) -> None:
        if count == call or (for_good and count > call):
            raise OSError(number, "the disk refuses")

    return _in_child(call, action, refuse)


def meddled_at(call: int, action: Callable[[], object], meddle: Callable[[], object]) -> int:
    """Runs `action` in a child; just before its change number `call` another process writes.

    Returns:
        `RAISED` if it was refused, `SURVIVED` if not, or `DONE` where it has fewer changes.
    """
    return _in_child(call, action, lambda number: meddle() if number == call else None)


def _in_child(call: int, action: Callable[[], object], fault: Callable[[int], object]) -> int:
    child = os.fork()
    if child == 0:
        # Objects of TensorFlow would wait in their destructors for threads that a child lacks.
        gc.disable()
        _run(call, action, fault)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (DONE, CUT_OFF, RAISED, SURVIVED), f"the child ended with {code} at call {call}"
    return code


def _is_below_run(file: object) -> bool:
    """Whether a file is in the run directory; below `.tfckpt` it is named in an open directory."""
    # A number is a file that was opened before.
    if isinstance(file, int):
        return False
    path = os.path.realpath(str(file)) if str(file).startswith("/proc/") else str(file)
    return "/run/" in path or not os.path.isabs(path)


def _run(call: int, action: Callable[[], object], fault: Callable[[int], object]) -> None:
    code, count, busy = BROKEN, 0, False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count, busy
        if arguments and "__pycache__" in str(arguments[0]):
            # In a new clone, the interpreter keeps what it compiles.
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if event in _CHANGES or (writes and _is_below_run(arguments[0])):
            if busy:
                return
            count += 1
            busy = True
            try:
                fault(count)
            finally:
                busy = False

    try:
        sys.addaudithook(watch)
        action()
        code = SURVIVED if count >= call else DONE
    except (OSError, TfckptError):
        code = RAISED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
