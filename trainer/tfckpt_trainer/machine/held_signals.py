"""Signals that wait for the end of a block."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Lets a block finish before a signal ends it by an exception, in the main thread.

    What the block starts or makes is known then to the code that has to end or remove it.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python runs handlers in the main thread alone.
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    try:
        for number in _ENDING:
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, note)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for late in came:
            signal.raise_signal(late)
