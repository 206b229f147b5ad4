"""Distributions of a tensor along an axis: how dense its values are in each cell of a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tfckpt_trainer.rundir.records.event import SeriesPoint

SHADES = 4
"""Levels of density above none."""


class Distribution(msgspec.Struct, frozen=True):
    """The values of a tensor at one point.

    Attributes:
        point: Where it is on each axis.
        low: The lowest value.
        high: The highest value.
        counts: How many values are in each of the equal parts from `low` to `high`.
    """

    point: SeriesPoint
    low: float
    high: float
    counts: tuple[int, ...]

    def between(self, low: float, high: float) -> float:
        """Returns how many values are from `low` up to `high`, if they are even in each part."""
        if self.low == self.high:
            return float(sum(self.counts)) if low <= self.low < high else 0.0
        # Shares, because the difference of two values may be too large for a number.
        size = max(abs(self.low), abs(self.high))
        start, length = self.low / size, self.high / size - self.low / size
        first, last = ((value / size - start) / length for value in (low, high))
        parts = len(self.counts)
        found = 0.0
        for place in range(max(0, math.floor(first * parts)), min(parts, math.ceil(last * parts))):
            inside = min(last * parts, place + 1) - max(first * parts, place)
            found += self.counts[place] * inside
        return found


def shades_of(distribution: Distribution, edges: Sequence[float]) -> list[int]:
    """Returns the density of values between each two edges, from 0 to `SHADES`.

    The densest part has the highest level. Levels grow with the square root of the density, so
    that sparse tails are seen.

    Args:
        distribution: The values.
        edges: At least two values, ascending.
    """
    found = [distribution.between(low, high) for low, high in pairwise(edges)]
    most = max(found)
    return [math.ceil(SHADES * math.sqrt(one / most)) if one > 0 else 0 for one in found]
