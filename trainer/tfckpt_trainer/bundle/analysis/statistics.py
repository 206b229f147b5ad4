"""Statistics of a tensor: minimum, maximum, mean, deviation, norm and a histogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt_trainer.bundle.analysis.norms import Norm, scale_of
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.exchange.whole_tensors import in_step, row_major_chunks
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.tensors import stored_chunks, to_double

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


def statistics(
    prefix: Path,
    index: Index,
    entry: TensorEntry,
    on_read: Callable[[int], None] = lambda size: None,
    *,
    histogram: bool = True,
) -> Statistics:
    """Computes the statistics of a numeric tensor, in bounded memory.

    Types of one and two bytes are read once, all others twice if a histogram is made.

    Args:
        prefix: The checkpoint.
        index: Its index.
        entry: The tensor.
        on_read: Called after each chunk with the bytes of the tensor that are done since the last
            call. They add up to its size, with a histogram.
        histogram: Whether to make a histogram. Types of one and two bytes always have one.

    Raises:
        BundleError: The tensor is not numeric, or it is damaged.
        FileNotFoundError: A data file is missing.
    """
    chunks = partial(stored_chunks, prefix, index, entry)
    return chunk_statistics(entry.dtype, chunks, on_read, histogram=histogram)


def chunk_statistics(
    dtype: str,
    chunks: Callable[[], Iterator[NDArray[Any]]],
    on_read: Callable[[int], None] = lambda size: None,
    *,
    histogram: bool = True,
) -> Statistics:
    """Computes the statistics of elements that come in chunks; see `statistics`.

    Args:
        dtype: Their type.
        chunks: Returns them; called twice for a histogram of large types.
        on_read: Called after each chunk.
        histogram: Whether to make a histogram.
    """
    item = ITEM_SIZES.get(dtype, 0)
    if item in (1, 2):
        return _from_counts(*_counted(dtype, chunks(), on_read))

    def values() -> Iterator[NDArray[np.float64]]:
        for chunk in chunks():
            yield _real(to_double(chunk))
            on_read(len(chunk) * item // 2)

    return _of_values(values, histogram=histogram)


def difference_statistics(
    prefixes: tuple[Path, Path],
    indexes: tuple[Index, Index],
    name: str,
    *,
    histogram: bool = True,
) -> Statistics:
    """Computes the statistics of the difference between a tensor in two checkpoints.

    It is the second minus the first, in bounded memory. A histogram takes a second pass. An
    element that is not finite in one of them has a difference that is not finite.

    Args:
        prefixes: The checkpoints.
        indexes: Their indexes.
        name: A numeric tensor that has the same shape in both.
        histogram: Whether to make a histogram.

    Raises:
        BundleError: The tensor is damaged.
        FileNotFoundError: A data file is missing.
    """
    import numpy as np

    def values() -> Iterator[NDArray[np.float64]]:
        streams = [
            row_major_chunks(prefix, index, index.entries[name])
            for prefix, index in zip(prefixes, indexes, strict=True)
        ]
        for left, right in in_step(streams):
            with np.errstate(over="ignore", invalid="ignore"):
                yield _real(to_double(right) - to_double(left))

    return _of_values(values, histogram=histogram)


def _of_values(
    values: Callable[[], Iterator[NDArray[np.float64]]], *, histogram: bool
) -> Statistics:
    """Goes through values that can be read twice."""
    moments = _Moments()
    for chunk in values():
        moments.add(chunk)
    distribution = None
    if histogram and moments.count:
        distribution = _histogram(values, moments.low, moments.high)
    return moments.result(distribution)


def _counted(
    dtype: str, chunks: Iterator[NDArray[Any]], on_read: Callable[[int], None]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns all values of a small type, and how often each occurs in a tensor."""
    import numpy as np

    bits = np.dtype(np.uint8 if ITEM_SIZES[dtype] == 1 else np.uint16)
    kinds = 1 << 8 * bits.itemsize
    counts = np.zeros(kinds, np.int64)
    for chunk in chunks:
        counts += np.bincount(chunk.view(bits), minlength=kinds)
        on_read(chunk.nbytes)
    values = np.arange(kinds, dtype=bits).view(numpy_dtype(dtype))
    # NumPy warns when it converts a signalling NaN to a quiet one.
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64), counts


def _from_counts(values: NDArray[np.float64], counts: NDArray[np.int64]) -> Statistics:
    import numpy as np

    there = np.flatnonzero(counts)
    values, counts = values[there], counts[there]
    nan = int(counts[np.isnan(values)].sum())
    infinite = int(counts[np.isinf(values)].sum())
    finite = np.isfinite(values)
    elements, values, counts = int(counts.sum()), values[finite], counts[finite]
    count = int(counts.sum())
    mean = deviation = None
    histogram = None
    if count:
        mean = float((values * counts).sum()) / count
        deviation = math.sqrt(float((np.square(values - mean) * counts).sum()) / count)
        low, high = float(values.min()), float(values.max())
        if high > low:
            places = _bins(values, low, high)
            sums = np.zeros(BINS, np.int64)
            np.add.at(sums, places, counts)
            histogram = Histogram(low, high, tuple(int(number) for number in sums))
    return Statistics(
        elements=elements,
        zeros=int(counts[values == 0].sum()),
        nan=nan,
        infinite=infinite,
        minimum=float(values.min()) if count else None,
        maximum=float(values.max()) if count else None,
        mean=mean,
        deviation=deviation,
        norm=math.sqrt(float((np.square(values) * counts).sum())),
        histogram=histogram,
    )


def _real(values: Numbers) -> NDArray[np.float64]:
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(values) if np.iscomplexobj(values) else values.real


class _Moments:
    """Moments over chunks, by the pairwise update of Chan, Golub and LeVeque (1983)."""

    def __init__(self) -> None:
        self.elements = self.zeros = self.nan = self.infinite = self.count = 0
        self.low, self.high = math.inf, -math.inf
        self._norm = Norm()
        # The mean and the squared distance from it, in units of the scale.
        self._scale = self._mean = self._squared_distance = 0.0

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
        self._norm.add(finite)
        self._rescale(scale_of(max(-self.low, self.high)))
        if self._scale != 1:
            finite = finite / self._scale
        mean = float(finite.mean())
        distance = float(np.square(finite - mean).sum())
        total = self.count + len(finite)
        apart = mean - self._mean
        self._squared_distance += distance + apart * apart * self.count * len(finite) / total
        self._mean += apart * len(finite) / total
        self.count = total

    @property
    def _deviation(self) -> float:
        return math.sqrt(self._squared_distance / self.count) * self._scale

    def _rescale(self, scale: float) -> None:
        if scale > self._scale:
            ratio = self._scale / scale
            self._mean *= ratio
            self._squared_distance *= ratio**2
            self._scale = scale

    def result(self, histogram: Histogram | None) -> Statistics:
        has_values = self.count > 0
        return Statistics(
            elements=self.elements,
            zeros=self.zeros,
            nan=self.nan,
            infinite=self.infinite,
            minimum=self.low if has_values else None,
            maximum=self.high if has_values else None,
            mean=self._mean * self._scale if has_values else None,
            deviation=self._deviation if has_values else None,
            norm=self._norm.value,
            histogram=histogram,
        )


def _histogram(
    values: Callable[[], Iterator[NDArray[np.float64]]], low: float, high: float
) -> Histogram | None:
    import numpy as np

    # All elements are equal, or the range overflows.
    if not 0 < high - low < math.inf:
        return None
    counts = np.zeros(BINS, np.int64)
    for chunk in values():
        counts += np.bincount(_bins(chunk[np.isfinite(chunk)], low, high), minlength=BINS)
    return Histogram(low, high, tuple(int(count) for count in counts))


def _bins(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """Returns the number of the bin of each value."""
    import numpy as np

    # `numpy.histogram` raises an error if the range is too narrow for distinct bin edges.
    parts = (values - low) / (high - low) * BINS
    return np.minimum(parts.astype(np.int64), BINS - 1)
