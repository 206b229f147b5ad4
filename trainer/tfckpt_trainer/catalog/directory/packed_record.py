"""Records in a tenth of their memory: a directory may have a hundred thousand."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from sys import intern

import msgspec

from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, FileFacts
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.storage.documents import decode, decoder_of

_WINDOW = -13
"""Finds what two texts have in common up to 8 KB back; a record has about 2 KB."""

_MEMORY_LEVEL = 5
"""Less than the usual one, which takes longer to set up than a record to compress."""


class PackedRecord(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A record as a list of checkpoints needs it; the rest is decoded when it is asked for.

    Attributes:
        name: See `CheckpointRecord`, like all that has its name there.
        packed: The text of the record, compressed.
        like: The text of another record of the run, which the compressed one refers to.
    """

    name: str
    step: int
    branch: int
    sequence: int
    saved_at: float
    trigger: str
    parent: str | None
    metrics: Mapping[str, float | None]
    duration_seconds: float | None
    worker_bytes: int
    derived: Derivation | None
    packed: bytes
    like: bytes

    def __eq__(self, other: object) -> bool:
        """Whether both are the same record; they may refer to different texts."""
        if not isinstance(other, PackedRecord):
            return NotImplemented
        if self.like is other.like:
            return self.packed == other.packed
        return self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def unpack(self) -> CheckpointRecord:
        """Returns the whole record, in about ten microseconds."""
        return decode(self._text, CheckpointRecord, self.name)

    @property
    def files(self) -> list[FileFacts]:
        """See `CheckpointRecord`; in a third of the time of the whole record."""
        return decoder_of(_Files).decode(self._text).files

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """See `CheckpointRecord`; in less than the time of the whole record."""
        return decoder_of(_Hyperparameters).decode(self._text).hyperparameters

    @property
    def _text(self) -> bytes:
        return zlib.decompressobj(_WINDOW, zdict=self.like).decompress(self.packed)


class RecordPacker:
    """Packs the records of one run, which are much alike."""

    def __init__(self) -> None:
        self._like = b""

    def pack(self, record: CheckpointRecord, text: bytes) -> PackedRecord:
        """Packs a record.

        Args:
            record: The record.
            text: The document that it was decoded from.
        """
        self._like = self._like or text
        compressor = zlib.compressobj(1, zlib.DEFLATED, _WINDOW, _MEMORY_LEVEL, zdict=self._like)
        packed = compressor.compress(text) + compressor.flush()
        return PackedRecord(
            # The same few words in all records, and names that are those of other checkpoints.
            name=intern(record.name),
            step=record.step,
            branch=record.branch,
            sequence=record.sequence,
            saved_at=record.saved_at,
            trigger=intern(record.trigger),
            parent=intern(record.parent) if record.parent is not None else None,
            metrics=record.metrics,
            duration_seconds=record.duration_seconds,
            worker_bytes=record.worker_bytes,
            derived=record.derived,
            packed=packed,
            like=self._like,
        )


class _Files(msgspec.Struct):
    files: list[FileFacts] = []


class _Hyperparameters(msgspec.Struct):
    hyperparameters: list[Hyperparameter] = []
