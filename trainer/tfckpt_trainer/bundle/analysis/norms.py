"""Norms of doubles whose squares are too large or too small for a double."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SMALL, _LARGE = 2.0**-400, 2.0**400
"""Limits between which squares, and sums of many of them, are exact enough."""


def scale_of(largest: float) -> float:
    """Returns a power of two by which to divide values before they are squared.

    Args:
        largest: The largest absolute value; it is finite.
    """
    if largest == 0:
        return sys.float_info.min  # Tiny values may follow.
    if _SMALL <= largest <= _LARGE:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest)[1] - 1)


class Norm:
    """The norm of finite values that come in chunks; infinite only if it is no double."""

    def __init__(self) -> None:
        self._scale = self._squares = 0.0
        self._overflows = False

    def add(self, values: NDArray[Any]) -> None:
        """Adds values that are not NaN, real or complex."""
        import numpy as np

        if not len(values):
            return
        with np.errstate(over="ignore"):
            sizes = np.abs(values)
        largest = float(sizes.max())
        if not math.isfinite(largest):
            # The difference of two doubles, or the absolute value of a complex number.
            self._overflows = True
            return
        self._rescale(scale_of(largest))
        sizes = sizes if self._scale == 1 else sizes / self._scale
        self._squares += float(np.square(sizes).sum())

    @property
    def value(self) -> float:
        """The norm of all values so far."""
        return math.inf if self._overflows else math.sqrt(self._squares) * self._scale

    def _rescale(self, scale: float) -> None:
        if scale > self._scale:
            self._squares *= (self._scale / scale) ** 2
            self._scale = scale
