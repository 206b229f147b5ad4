"""The last values of a series, with their median and deviation."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, insort
from collections import deque

_NORMAL = 1.4826
"""The standard deviation of normal noise, in median absolute deviations."""

_ROUNDING = 2.0**-23
"""Values of float32 differ by so much of themselves: a smaller deviation is none."""

_FEWEST = 20
"""The deviation of fewer values is often far too small: normal noise would have spikes."""


def needed(size: int) -> int:
    """Returns how many values a window needs to be compared with: a quarter, at least 20."""
    return max(_FEWEST, math.ceil(size / 4))


class MovingWindow:
    """The last values, by step."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._needed = needed(size)
        self._values: deque[tuple[int, float]] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def is_usable(self) -> bool:
        """Whether there are enough values to compare with."""
        return len(self._sorted) >= self._needed

    @property
    def values(self) -> list[float]:
        """The values, in order."""
        return [value for _, value in self._values]

    @property
    def median(self) -> float:
        """Their median."""
        count = len(self._sorted)
        return self._sorted[(count - 1) // 2] / 2 + self._sorted[count // 2] / 2

    def may_be_spike(self, value: float, deviations: float) -> bool:
        """Whether a value may be so many deviations above the median, found in constant time."""
        ordered, count = self._sorted, len(self._sorted)
        if value <= ordered[count // 2]:
            return False
        # Fewer than half of the values lie between these two, so half of all values are at least
        # as far from the median as the nearer one.
        low = count // 4
        high = min(low + 1 + (count - 1) // 2, count - 1)
        median = self.median
        least = _NORMAL * min(median - ordered[low], ordered[high] - median)
        return value > median + deviations * least

    def deviation(self, value: float) -> float:
        """Returns their median absolute deviation, as a standard deviation.

        Args:
            value: What is judged by it. What rounding can make of it, or of the median, is no
                deviation.
        """
        median = self.median
        mad = statistics.median(abs(one - median) for one in self._sorted)
        return max(_NORMAL * mad, _ROUNDING * max(abs(median), abs(value)))

    def add(self, step: int, value: float) -> None:
        """Adds a finite value; the oldest one leaves a full window."""
        if len(self._sorted) == self._size:
            _, oldest = self._values.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
        self._values.append((step, value))
        insort(self._sorted, value)

    def forget_after(self, step: int) -> None:
        """Forgets the values of steps after `step`."""
        self._values = deque(value for value in self._values if value[0] <= step)
        self._sorted = sorted(value for _, value in self._values)
