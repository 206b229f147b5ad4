"""Averages the floating-point tensors of several checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt_trainer.bundle.dtypes import format_tensor, is_inexact, numpy_dtype
from tfckpt_trainer.bundle.exchange.whole_tensors import BAND, in_step, row_major_chunks
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class WeightedCheckpoint:
    """A checkpoint to average, and its weight."""

    prefix: Path
    index: Index
    weight: float


def is_averaged(entry: TensorEntry) -> bool:
    """Whether a tensor has elements of which a mean can be taken."""
    return is_numeric(entry) and is_inexact(entry.dtype)


def find_differences(
    sources: Sequence[WeightedCheckpoint], paths: Mapping[str, str] | None = None
) -> list[str]:
    """Returns a sentence for each numeric tensor that is not the same kind in all checkpoints.

    Args:
        sources: The checkpoints; the last one is compared with each of the others.
        paths: What to call tensors in the sentences, by name; by default their names.
    """
    shown = paths or {}
    newest, differences = sources[-1], []
    wanted = _numeric(newest.index)
    for source in sources[:-1]:
        entries = _numeric(source.index)
        for name in sorted(wanted.keys() | entries.keys()):
            left, right = _kind(entries.get(name)), _kind(wanted.get(name))
            if left != right:
                sides = f"{left} in {source.prefix.name}, {right} in {newest.prefix.name}"
                differences.append(f"{shown.get(name, name)}: {sides}")
    return differences


def write_average(
    writer: BundleWriter,
    sources: Sequence[WeightedCheckpoint],
    on_read: Callable[[int], None] = lambda size: None,
) -> None:
    """Writes the weighted sum of every floating-point tensor, computed in double precision.

    All other tensors are copied from the newest checkpoint. Memory does not depend on the sizes
    of the tensors.

    Args:
        writer: The new checkpoint.
        sources: The checkpoints, the newest last. Their weights add up to 1.
        on_read: Called after each chunk with its size in bytes, for each checkpoint.

    Raises:
        BundleError: A tensor is damaged.
        OSError: A file cannot be read or written.
    """
    newest = sources[-1]
    for entry in newest.index.entries.values():
        if is_averaged(entry) and not _is_equal_in_all(sources, entry.name):
            chunks = _averaged_chunks(sources, entry, on_read)
            writer.add(entry.name, entry.dtype, entry.shape, chunks)
        else:
            writer.copy(newest.prefix, newest.index, entry, on_chunk=on_read)


def _numeric(index: Index) -> dict[str, TensorEntry]:
    return {name: entry for name, entry in index.entries.items() if is_numeric(entry)}


def _kind(entry: TensorEntry | None) -> str:
    return "missing" if entry is None else format_tensor(entry.dtype, entry.shape)


def _is_equal_in_all(sources: Sequence[WeightedCheckpoint], name: str) -> bool:
    """Whether checksums tell that a tensor has the same value everywhere."""
    entries = [source.index.entries[name] for source in sources]
    return not any(entry.slices for entry in entries) and len({e.crc32c for e in entries}) == 1


def _averaged_chunks(
    sources: Sequence[WeightedCheckpoint], entry: TensorEntry, on_read: Callable[[int], None]
) -> Iterator[NDArray[Any]]:
    import numpy as np

    dtype = numpy_dtype(entry.dtype)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    band = max(dtype.itemsize, BAND // len(sources))
    streams = [
        row_major_chunks(source.prefix, source.index, source.index.entries[entry.name], band)
        for source in sources
    ]
    weights = [source.weight for source in sources]
    for chunks in in_step(streams):
        # Values that are not finite, or too large for the type, stay so in the average.
        with np.errstate(all="ignore"):
            total = chunks[0].astype(wide) * weights[0]
            for chunk, weight in zip(chunks[1:], weights[1:], strict=True):
                total += chunk.astype(wide) * weight
            yield total.astype(dtype)
        on_read(sum(chunk.nbytes for chunk in chunks))
