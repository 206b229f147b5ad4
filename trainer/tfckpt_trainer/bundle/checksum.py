"""CRC32C checksums as TensorFlow stores them: computed by google-crc32c, masked in the file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tfckpt_trainer.errors import MissingExtensionError

with warnings.catch_warnings():
    # It warns without its C extension, which is an error here.
    warnings.simplefilter("ignore", RuntimeWarning)
    import google_crc32c

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
"""The polynomials of CRC32C and of 1; the highest bit is the coefficient of x**0."""


def crc32c(data: bytes | NDArray[Any], value: int = 0) -> int:
    """Returns the CRC32C of `data`, continued from `value`.

    Args:
        data: Bytes or a contiguous array. Arrays are read in place.
        value: The checksum of the preceding bytes.

    Raises:
        MissingExtensionError: Only the pure-Python fallback is installed, which is 1000 times
            slower.
    """
    return _extend(value, data)


def require_extension() -> None:
    """Raises an error if checksums cannot be computed.

    Call it before checkpoints are judged by their checksums.

    Raises:
        MissingExtensionError: google-crc32c is installed without its C extension.
    """
    crc32c(b"")


def _refuse(value: int, data: object) -> int:
    raise MissingExtensionError(
        "google-crc32c is installed without its C extension, so no checkpoint can be checked. "
        "Run `pip install --force-reinstall --no-cache-dir google-crc32c`. If pip finds no wheel "
        "for this system, such as Alpine Linux, use a system with glibc, or install "
        "https://github.com/google/crc32c first."
    )


_extend: Callable[[int, Any], int] = (
    google_crc32c.extend if google_crc32c.implementation == "c" else _refuse
)


def combine(first: int, second: int, size: int) -> int:
    """Returns the CRC32C of two pieces of data, one after the other.

    Args:
        first: The checksum of the first piece.
        second: The checksum of the second piece.
        size: Bytes of the second piece.
    """
    # The first is shifted by the bits of the second, as a polynomial modulo that of CRC32C.
    return _product(_shift(size), first) ^ second


@lru_cache(maxsize=1024)
def _shift(size: int) -> int:
    """Returns x to the power of the bits of so many bytes."""
    power, square = _ONE, _ONE >> 8
    while size:
        if size & 1:
            power = _product(square, power)
        square = _product(square, square)
        size >>= 1
    return power


def _product(one: int, other: int) -> int:
    """Returns the product of two polynomials modulo that of CRC32C."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def mask(checksum: int) -> int:
    """Masks a checksum for storage in a file (`tsl/lib/hash/crc32c.h`)."""
    rotated = ((checksum >> 15) | (checksum << 17)) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Unmasks a checksum that was read from a file (`tsl/lib/hash/crc32c.h`)."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
