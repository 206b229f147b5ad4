"""CRC32C as TensorFlow stores it: computed by google-crc32c, masked in the file."""

from __future__ import annotations

import google_crc32c

from tfckpt_trainer.errors import TfckptError

_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes, value: int = 0) -> int:
    """Returns the CRC32C of `data`, continuing from the `value` of what came before.

    Raises:
        TfckptError: Only the pure-Python fallback is there, which is a thousand times slower.
    """
    if google_crc32c.implementation != "c":
        raise TfckptError(
            "google-crc32c has no compiled implementation for this Python; reinstall it with "
            "`pip install --force-reinstall google-crc32c`."
        )
    return int(google_crc32c.extend(value, data))


def unmask(masked: int) -> int:
    """Undoes the masking of checksums stored in a file (`tsl/lib/hash/crc32c.h`)."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
