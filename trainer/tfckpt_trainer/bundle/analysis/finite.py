"""Finds NaN and infinite elements in streamed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, is_inexact, numpy_dtype
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.slices import Slice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class NonFiniteValues(msgspec.Struct, frozen=True):
    """A tensor with NaN or infinite elements.

    Attributes:
        tensor: Its name.
        nan: Number of NaN elements.
        infinite: Number of infinite elements.
        elements: Number of elements of the tensor.
        first: Index of the first element that is not finite, one number per dimension.
        path: Its path, as messages show it.
    """

    tensor: str
    nan: int
    infinite: int
    elements: int
    first: tuple[int, ...]
    path: str = ""


class FiniteScan:
    """Scans the chunks of one stored tensor or part."""

    def __init__(self, entry: TensorEntry, part: Slice | None = None) -> None:
        self._entry = entry
        self._part = part
        self._wanted = is_inexact(entry.dtype) and _is_whole(entry, part)
        self._rest = b""
        self._seen = self._nan = self._infinite = 0
        self._first: int | None = None

    def add(self, chunk: bytes) -> None:
        """Scans the next bytes of the tensor."""
        if not self._wanted:
            return
        import numpy as np

        chunk = self._rest + chunk if self._rest else chunk
        whole = len(chunk) - len(chunk) % ITEM_SIZES[self._entry.dtype]
        self._rest = chunk[whole:]
        values = np.frombuffer(chunk[:whole], numpy_dtype(self._entry.dtype))
        finite = np.isfinite(values)
        if not finite.all():
            self._count(values, finite)
        self._seen += len(values)

    def result(self) -> NonFiniteValues | None:
        """Returns the result, or None if every element is finite."""
        if self._first is None:
            return None
        shape = self._entry.shape
        place = _unravelled(self._first, shape)
        if self._part is not None:
            starts = (start for start, _ in self._part.extents)
            place = tuple(a + b for a, b in zip(place, starts, strict=True))
        return NonFiniteValues(self._entry.name, self._nan, self._infinite, self._seen, place)

    def _count(self, values: NDArray[np.generic], finite: NDArray[np.bool]) -> None:
        import numpy as np

        nan = int(np.count_nonzero(np.isnan(values)))
        self._nan += nan
        self._infinite += len(values) - int(np.count_nonzero(finite)) - nan
        if self._first is None:
            self._first = self._seen + int(np.argmin(finite))


def merge_parts(parts: Sequence[NonFiniteValues], index: Index) -> tuple[NonFiniteValues, ...]:
    """Merges the results of parts per tensor; returns the largest counts first."""
    by_tensor: dict[str, NonFiniteValues] = {}
    for part in parts:
        earlier = by_tensor.get(part.tensor)
        if earlier is not None:
            part = NonFiniteValues(
                part.tensor,
                earlier.nan + part.nan,
                earlier.infinite + part.infinite,
                earlier.elements,
                min(earlier.first, part.first),
            )
        elif part.tensor in index.entries:
            # Parts without findings are not in `parts`, but their elements count.
            part = replace(part, elements=index.entries[part.tensor].element_count)
        by_tensor[part.tensor] = part
    return tuple(
        sorted(
            by_tensor.values(), key=lambda merged: (-merged.nan - merged.infinite, merged.tensor)
        )
    )


def _is_whole(entry: TensorEntry, part: Slice | None) -> bool:
    """Whether the byte size matches the shape. Otherwise elements have no index."""
    size = ITEM_SIZES[entry.dtype] * entry.element_count
    return entry.size == size and (part is None or len(part.extents) == len(entry.shape))


def _unravelled(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        place.append(rest)
    return tuple(reversed(place))
