"""Statistics of recorded values: the same for pages and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tfckpt_tui.charting.series import STEP, VALUE, Sample
from tfckpt_tui.formats.units import finite


class Extremes(msgspec.Struct, frozen=True):
    """The extremes of values.

    Attributes:
        lowest: The sample with the lowest value; None if none is finite.
        highest: The sample with the highest value; None if none is finite.
        last: The newest sample, which may not be finite.
    """

    lowest: Sample | None
    highest: Sample | None
    last: Sample

    @property
    def values(self) -> tuple[float | None, float | None, float | None]:
        """The lowest, the highest and the last value; None for one that is not finite."""
        low, high = (None if one is None else one[VALUE] for one in (self.lowest, self.highest))
        return low, high, finite(self.last[VALUE])

    @property
    def steps(self) -> tuple[int | None, int | None, int]:
        """The steps of the lowest, the highest and the last value."""
        low, high = (None if x is None else int(x[STEP]) for x in (self.lowest, self.highest))
        return low, high, int(self.last[STEP])


def statistics_of(samples: Sequence[Sample]) -> Extremes | None:
    """Returns the statistics of values; None without any.

    Args:
        samples: In the order in which they were recorded.
    """
    known = [sample for sample in samples if math.isfinite(sample[VALUE])]
    if not samples:
        return None
    return Extremes(
        min(known, key=_value, default=None), max(known, key=_value, default=None), samples[-1]
    )


def _value(sample: Sample) -> float:
    return sample[VALUE]
