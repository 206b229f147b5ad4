"""Stores arrays that the two processes of an export exchange, without pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfckpt_trainer.errors import DamagedFileError

Arrays = list[npt.NDArray[Any]]


def store_arrays(path: Path, arrays: Arrays) -> None:
    """Writes numeric arrays and arrays of bytes objects to an `.npz` file.

    An array of bytes objects is stored as its bytes and the length of each element. Fixed-width
    NumPy strings would lose trailing zero bytes.
    """
    stored: dict[str, npt.NDArray[Any]] = {}
    for number, array in enumerate(arrays):
        if array.dtype == object:
            elements = array.reshape(-1).tolist()
            stored[f"bytes_{number}"] = np.frombuffer(b"".join(elements), np.uint8)
            lengths = np.array([len(element) for element in elements], np.int64)
            stored[f"lengths_{number}"] = lengths.reshape(array.shape)
        else:
            stored[f"array_{number}"] = array
    np.savez(path, **stored)  # type: ignore[arg-type]


def load_arrays(path: Path) -> Arrays:
    """Reads the arrays that `store_arrays` wrote.

    Raises:
        DamagedFileError: The file is damaged, or it contains pickled objects.
        OSError: The file cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            numbers = sorted({int(name.rpartition("_")[2]) for name in stored.files})
            return [_load_array(stored, number) for number in numbers]
    except (ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise DamagedFileError(
            f"{path} is not a valid array file: {error}. Run the export again."
        ) from error


def _load_array(stored: Any, number: int) -> npt.NDArray[Any]:
    if f"array_{number}" in stored.files:
        return np.asarray(stored[f"array_{number}"])
    lengths = stored[f"lengths_{number}"]
    data = stored[f"bytes_{number}"].tobytes()
    ends = np.cumsum(lengths.reshape(-1)).tolist()
    array = np.empty(len(ends), dtype=object)
    for place, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        array[place] = data[start:end]
    return array.reshape(lengths.shape)
