"""Statistics of a tensor: minimum, maximum, mean, deviation, norm and a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.tensors import numeric_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tfckpt_trainer.bundle.tensors import Numbers

BINS = 16


@dataclass(frozen=True)
class Histogram:
    """Counts of finite elements in bins of equal width from `low` to `high`."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Statistics:
    """Statistics of one tensor.

    Minimum, maximum, mean and deviation cover finite elements; they are None if there are none.
    Complex numbers are measured by their absolute values.

    Attributes:
        deviation: Population standard deviation.
        norm: Square root of the sum of squares of the finite elements.
    """

    elements: int
    zeros: int
    nan: int
    infinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    norm: float
    histogram: Histogram | None


def statistics(prefix: Path, index: Index, entry: TensorEntry) -> Statistics:
    """Computes the statistics of a numeric tensor, in two passes and bounded memory.

    Raises:
        BundleError: The tensor is not numeric, or it is damaged.
        FileNotFoundError: A data file is missing.
    """
    moments = _Moments()
    for chunk in numeric_chunks(prefix, index, entry):
        moments.add(_real(chunk))
    histogram = None
    if moments.count:
        histogram = _histogram(prefix, index, entry, moments.low, moments.high)
    return moments.result(histogram)


def _real(values: Numbers) -> NDArray[np.float64]:
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(values) if np.iscomplexobj(values) else values.real


class _Moments:
    """Moments over chunks, by the pairwise update of Chan, Golub and LeVeque (1983)."""

    def __init__(self) -> None:
        self.elements = self.zeros = self.nan = self.infinite = self.count = 0
        self.low, self.high = math.inf, -math.inf
        self._mean = self._squared_distance = self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        import numpy as np

        finite = values[np.isfinite(values)]
        nan = int(np.count_nonzero(np.isnan(values)))
        self.elements += len(values)
        self.nan += nan
        self.infinite += len(values) - len(finite) - nan
        self.zeros += int(np.count_nonzero(finite == 0))
        if not len(finite):
            return
        self.low = min(self.low, float(finite.min()))
        self.high = max(self.high, float(finite.max()))
        # Squares of very large doubles overflow; the norm is infinite then.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(finite.mean())
            distance = float(np.square(finite - mean).sum())
            self._squares += float(np.square(finite).sum())
        total = self.count + len(finite)
        apart = mean - self._mean
        self._squared_distance += distance + apart * apart * self.count * len(finite) / total
        self._mean += apart * len(finite) / total
        self.count = total

    def result(self, histogram: Histogram | None) -> Statistics:
        known = self.count > 0
        return Statistics(
            elements=self.elements,
            zeros=self.zeros,
            nan=self.nan,
            infinite=self.infinite,
            minimum=self.low if known else None,
            maximum=self.high if known else None,
            mean=self._mean if known else None,
            deviation=math.sqrt(self._squared_distance / self.count) if known else None,
            norm=math.sqrt(self._squares),
            histogram=histogram,
        )


def _histogram(
    prefix: Path, index: Index, entry: TensorEntry, low: float, high: float
) -> Histogram | None:
    import numpy as np

    # All elements are equal, or the range overflows.
    if not 0 < high - low < math.inf:
        return None
    counts = np.zeros(BINS, np.int64)
    for chunk in numeric_chunks(prefix, index, entry):
        values = _real(chunk)
        # `numpy.histogram` raises an error if the range is too narrow for distinct bin edges.
        parts = (values[np.isfinite(values)] - low) / (high - low) * BINS
        counts += np.bincount(np.minimum(parts.astype(np.int64), BINS - 1), minlength=BINS)
    return Histogram(low, high, tuple(int(count) for count in counts))
