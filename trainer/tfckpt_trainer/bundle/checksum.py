"""CRC32C checksums as TensorFlow stores them: computed by google-crc32c, masked in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import google_crc32c

from tfckpt_trainer.errors import TfckptError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | NDArray[Any], value: int = 0) -> int:
    """Returns the CRC32C of `data`, continued from `value`.

    Args:
        data: Bytes or a contiguous array. Arrays are read in place.
        value: The checksum of the preceding bytes.

    Raises:
        TfckptError: Only the pure-Python fallback is installed, which is 1000 times slower.
    """
    if google_crc32c.implementation != "c":
        raise TfckptError(
            "google-crc32c has no compiled implementation for this Python; reinstall it with "
            "`pip install --force-reinstall google-crc32c`."
        )
    return int(google_crc32c.extend(value, data))


def mask(checksum: int) -> int:
    """Masks a checksum for storage in a file (`tsl/lib/hash/crc32c.h`)."""
    rotated = ((checksum >> 15) | (checksum << 17)) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Unmasks a checksum that was read from a file (`tsl/lib/hash/crc32c.h`)."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
