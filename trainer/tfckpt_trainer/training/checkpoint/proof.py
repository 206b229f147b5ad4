"""Proves that variables in memory are those of a checkpoint, by the checksums of its index."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import Index, TensorEntry, read_index
from tfckpt_trainer.bundle.slices import WHOLE, Slice
from tfckpt_trainer.bundle.tensor_checksums import checksum_of_strings
from tfckpt_trainer.training.checkpoint.state import Match
from tfckpt_trainer.training.checkpoint.variables import components, raw_variable

_CHUNK = 64 << 20
"""Bytes of one computation, during which no other thread runs."""


def wrong_values(
    matches: Iterable[Match], prefix: Path, passed_over: Collection[int] = ()
) -> list[str]:
    """Compares variables in memory with the checksums that a checkpoint stores of them.

    Args:
        matches: The variables, each on all replicas of this worker.
        prefix: The checkpoint.
        passed_over: Identities of variables that differ from worker to worker by design.

    Returns:
        The keys whose value in memory is not the one of the checkpoint.
    """
    index = read_index(prefix)
    wrong = []
    for match in matches:
        if id(raw_variable(match.variable)) in passed_over:
            continue
        for component in components(match.variable):
            if not _equals(memory_of(component), index, index.entries[match.key]):
                wrong.append(match.key)
                break
    return wrong


def memory_of(variable: Any) -> npt.NDArray[Any]:
    """Returns the memory of a variable as an array, without a copy where it is on the CPU.

    Let go of it before the variable is assigned to: until then the variable cannot be updated
    in place.
    """
    return np.asarray(variable.read_value())


def checksum(value: npt.NDArray[Any]) -> int:
    """Returns what TensorFlow would store as the checksum of a value."""
    if value.dtype == object:
        return checksum_of_strings(value.reshape(-1).tolist())
    # Not every type of TensorFlow has a letter in the buffer protocol; bytes have.
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    computed = 0
    for begin in range(0, data.size, _CHUNK):
        computed = crc32c(data[begin : begin + _CHUNK], computed)
    return computed


def _equals(value: npt.NDArray[Any], index: Index, entry: TensorEntry) -> bool:
    """Whether a value in memory has the checksum that was stored of it, or of each part of it."""
    if not entry.slices:
        return checksum(value) == entry.crc32c
    return all(
        checksum(value[_box(part)]) == index.parts[entry.name, part].crc32c for part in entry.slices
    )


def _box(part: Slice) -> tuple[slice, ...]:
    return tuple(
        slice(None) if length == WHOLE else slice(start, start + length)
        for start, length in part.extents
    )
