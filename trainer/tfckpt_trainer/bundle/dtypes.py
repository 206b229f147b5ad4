"""Element types of tensors: size, NumPy type, and how types and shapes are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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


def format_shape(shape: Sequence[int]) -> str:
    """Returns a shape for display: `3×4`, or `scalar`."""
    return "×".join(map(str, shape)) or "scalar"


def format_tensor(dtype: str, shape: Sequence[int]) -> str:
    """Returns the type and shape of a tensor for display: `float32 3×4`."""
    return f"{dtype} {format_shape(shape)}"
