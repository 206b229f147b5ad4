"""Files of arrays in the formats of other programs, written by hand."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import Any

import numpy as np


def npz_file(**arrays: np.ndarray) -> bytes:
    """A file of NumPy."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def safetensors_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of safetensors.

    Args:
        header: What its header says, or the bytes in its place.
        data: What follows the header.
        length: How long it says that the header is; None for how long it is.
    """
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def keras_file(weights: bytes) -> bytes:
    """An archive as Keras writes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.10.0"}')
        archive.writestr("model.weights.h5", weights)
    return file.getvalue()
