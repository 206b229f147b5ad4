"""The element types of tensors: how many bytes an element takes, and as what numpy reads it."""

from __future__ import annotations

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
"""Bytes of an element as it is stored; types of less than a byte take a whole one."""

_PLAIN = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16"}
_PLAIN |= {"qint32": "int32"}


def is_inexact(dtype: str) -> bool:
    """Whether elements of this type can be not-a-number or infinite."""
    return dtype.startswith(("float", "bfloat", "complex"))


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the type as which numpy reads elements, in the byte order of the files.

    Args:
        dtype: A name in `ITEM_SIZES`.
    """
    # Imported here: listing names and checking checksums must not wait for it.
    import ml_dtypes
    import numpy as np

    name = _PLAIN.get(dtype, dtype)
    custom = getattr(ml_dtypes, name, None)
    return np.dtype(name if custom is None else custom).newbyteorder("<")
