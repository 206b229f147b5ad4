"""Ends commands by an exception when a signal arrives, so that they remove half a file.

Python loses an exception that is raised in the callback of a weak reference, and each import runs
such callbacks. NumPy replaces one that is raised while it is imported by an `ImportError`, and code
in C may drop one without a word. So it is raised again while the command goes on.
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

_INSIST_SECONDS = 1.0
"""Interval at which it is looked whether the command goes on as if no signal had come."""


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
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        is_interrupt = number == signal.SIGINT
        error = KeyboardInterrupt() if is_interrupt else SystemExit(_STATUS + number)
        self._insist_on(error, _INSIST_SECONDS)
        raise error

    def _raise_again(self, lost: sys.UnraisableHookArgs) -> None:
        error = lost.exc_value
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._insist_on(error, _AGAIN_SECONDS)
        else:
            sys.__unraisablehook__(lost)

    def _insist_on(self, error: BaseException, first_seconds: float) -> None:
        """Raises an exception again and again, unless it is on its way: that is not disturbed."""

        def insist(_number: int, _frame: FrameType | None) -> None:
            handled = sys.exc_info()[1]
            while handled is not None:
                if isinstance(handled, (KeyboardInterrupt, SystemExit)):
                    return
                handled = handled.__context__
            raise error

        signal.signal(signal.SIGALRM, insist)
        signal.setitimer(signal.ITIMER_REAL, first_seconds, _INSIST_SECONDS)
