"""Element types of tensors: size, NumPy type, and how types and shapes are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ITEM_SIZES = {
    "float32": 4, "float64": 8, "int32": 4, "uint8": 1, "int16": 2, "int8": 1, "complex64": 8,
    "int64": 8, "bool": 1, "qint8": 1, "quint8": 1, "qint32": 4, "bfloat16": 2, "qint16": 2,
    "quint16": 2, "uint16": 2, "complex128": 16, "float16": 2, "uint32": 4, "uint64": 8,
    "float8_e5m2": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e4m3b11fnuz": 1,
    "float8_e5m2fnuz": 1, "float4_e2m1fn": 1, "int4": 1, "uint4": 1, "int2": 1, "uint2": 1,
}  # fmt: skip
"""Stored bytes per element. Types smaller than a byte take one byte."""

_PLAIN = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint16": "int16",
    "quint16": "uint16",
    "qint32": "int32",
}


_UPPER_BITS = {("bfloat16", "float32"), ("float8_e5m2", "float16")}
"""Types whose elements are the upper half of the bits of a wider type."""


def is_inexact(dtype: str) -> bool:
    """Whether elements of this type can be NaN or infinite."""
    return dtype.startswith(("float", "bfloat", "complex"))


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the little-endian NumPy type of stored elements.

    Args:
        dtype: A name in `ITEM_SIZES`.
    """
    # Imported here because listing names and checking checksums do not need it.
    import ml_dtypes
    import numpy as np

    name = _PLAIN.get(dtype, dtype)
    custom = getattr(ml_dtypes, name, None)
    return np.dtype(name if custom is None else custom).newbyteorder("<")


def cast_floats(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Returns real numbers in another type.

    A NaN keeps its bits if the smaller type has the upper half of the bits of the wider one. Other
    types get the NaN that NumPy chooses.

    Args:
        values: Elements of a type of real numbers.
        dtype: The new type, of real numbers too.
    """
    import numpy as np

    target = numpy_dtype(dtype)
    old, new = values.dtype, target
    half = 4 * max(old.itemsize, new.itemsize)
    if (old.name, new.name) in _UPPER_BITS:
        bits = values.view(f"<u{old.itemsize}").astype(f"<u{new.itemsize}") << half
        return bits.view(target)
    with np.errstate(all="ignore"):
        result = values.astype(target)
        if (new.name, old.name) not in _UPPER_BITS:
            return result
        upper = (values.view(f"<u{old.itemsize}") >> half).astype(f"<u{new.itemsize}").view(target)
        # With only lower bits set, the upper half of a NaN is infinite.
        return np.where(np.isnan(values) & np.isnan(upper), upper, result)


def format_shape(shape: Sequence[int]) -> str:
    """Returns a shape for display: `3×4`, or `scalar`."""
    return "×".join(map(str, shape)) or "scalar"


def format_tensor(dtype: str, shape: Sequence[int]) -> str:
    """Returns the type and shape of a tensor for display: `float32 3×4`."""
    return f"{dtype} {format_shape(shape)}"
