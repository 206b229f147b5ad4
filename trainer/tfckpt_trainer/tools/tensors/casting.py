"""Changes the element types of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt_trainer.bundle.dtypes import cast_floats, numpy_dtype
from tfckpt_trainer.errors import RefusedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Chunks = Iterator[NDArray[Any]]


class CastLoss(NamedTuple):
    """How many elements do not have the same value in a smaller type.

    Attributes:
        rounded: Those that have the nearest value of the type.
        overflown: Finite ones that became infinite.
    """

    rounded: int = 0
    overflown: int = 0

    def plus(self, other: CastLoss) -> CastLoss:
        """Returns the sum."""
        return CastLoss(self.rounded + other.rounded, self.overflown + other.overflown)


def can_be_cast(old: str, new: str) -> bool:
    """Whether elements of one type can become those of another: real numbers, or integers."""
    if _is_real(old) and _is_real(new):
        return True
    return all(dtype.startswith(("int", "uint")) for dtype in (old, new))


def cast_chunks(
    name: str,
    chunks: Chunks,
    dtype: str,
    on_read: Callable[[int], None],
    on_loss: Callable[[CastLoss], None],
) -> Chunks:
    """Yields elements in another type.

    Args:
        name: What to call the tensor in errors.
        chunks: Its elements.
        dtype: The new type, to which `can_be_cast`.
        on_read: Called after each chunk with its size in bytes.
        on_loss: Called with what each chunk lost.

    Raises:
        RefusedError: An integer does not fit into the new type.
    """
    import numpy as np

    target = numpy_dtype(dtype)
    for chunk in chunks:
        if chunk.dtype == target:
            values = chunk
        elif _is_real(dtype):
            values = cast_floats(chunk, dtype)
            with np.errstate(invalid="ignore"):
                before, after = chunk.astype(np.float64), values.astype(np.float64)
            overflown = np.isfinite(before) & ~np.isfinite(after)
            changed = (before != after) & ~np.isnan(before)
            on_loss(CastLoss(int((changed & ~overflown).sum()), int(overflown.sum())))
        else:
            values = _cast_integers(name, chunk, target)
        yield values
        on_read(chunk.nbytes)


def _cast_integers(name: str, chunk: NDArray[Any], target: np.dtype[Any]) -> NDArray[Any]:
    import ml_dtypes
    import numpy as np

    # Types smaller than a byte cannot be cast to each other directly.
    wide = chunk.astype(np.uint64 if chunk.dtype.name.startswith("u") else np.int64, copy=False)
    limits = ml_dtypes.iinfo(target)
    # NumPy wraps signs, and wraps them back: compare the values, exactly.
    if wide.size and not limits.min <= int(wide.min()) <= int(wide.max()) <= limits.max:
        raise RefusedError(f"{name} has values that do not fit into {target.name}.")
    return wide.astype(target)


def _is_real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
