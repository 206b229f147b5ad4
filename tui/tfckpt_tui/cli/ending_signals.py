"""Ends commands by an exception when a signal arrives, so that they remove half a file.

Python loses an exception that is raised in the callback of a weak reference, and each import runs
such callbacks. NumPy replaces one that is raised while it is imported by an `ImportError`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType

_STATUS = 128
"""What shells add to the number of a signal."""

_AGAIN_SECONDS = 0.01
"""After this time the callback that lost an exception has returned."""


class EndingSignals:
    """Raises an exception when a signal arrives; raises it again if Python loses it."""

    def __init__(self) -> None:
        self._received = 0

    def raise_on(self, numbers: Iterable[int]) -> None:
        """Lets these signals raise an exception, except those that are ignored."""
        for number in numbers:
            if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
                signal.signal(number, self._raise)
        sys.unraisablehook = self._raise_again

    def status_of(self, act: Callable[[], int]) -> int:
        """Returns what `act` returns, or the status of the signal that made it fail."""
        try:
            return act()
        except Exception:
            if not self._received:
                raise
            return _STATUS + self._received

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(_STATUS + number)

    def _raise_again(self, lost: sys.UnraisableHookArgs) -> None:
        error = lost.exc_value
        if not isinstance(error, (KeyboardInterrupt, SystemExit)):
            sys.__unraisablehook__(lost)
            return

        def again(_number: int, _frame: FrameType | None) -> None:
            raise error

        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
