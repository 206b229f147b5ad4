"""What a trash manifest holds."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.documents import Document, SealedDocument


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How TensorFlow's state file listed a checkpoint: as `path`, at `place` from the oldest."""

    path: str
    place: int
    timestamp: float | None = None


class TrashedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint in the trash: its files by their names relative to the run directory.

    Attributes:
        files: In the order in which a prune moves them; an undo goes backwards.
        identities: Of each file: size, time in nanoseconds, inode. What has others by now is
            another file, and is left alone, unless its content is proven to be the same: in a
            copy of a run directory times and inodes are others.
        checksums: Of each file: CRC32C of its bytes, where it is small or a record tells it; of
            a directory: CRC32C of the names and sizes in it. None where it is not known.
        list_entry: How the state file listed it, where a prune took it off that list.
    """

    name: str
    step: int | None
    size: int
    files: list[str]
    identities: list[tuple[int, int, int]] = []
    checksums: list[int | None] = []
    listed: bool = False
    list_entry: ListEntry | None = None
    reason: str = ""


class TrashPhase(StrEnum):
    """How far a prune or an undo is; it tells what to finish after a crash."""

    PRUNING = "pruning"
    TRASHED = "trashed"
    UNDOING = "undoing"


class TrashManifest(SealedDocument, frozen=True, kw_only=True):
    """`trash/ID/manifest.json`, written before the first file moves: what an undo brings back.

    Attributes:
        update_state_file: Whether TensorFlow's state file follows what is moved.
        sequence: Place in the order of all prunes of the run, whatever the clocks said; 0 in
            manifests of version 0.1, which come before all others.
    """

    id: str
    at: float
    by: str
    checkpoints: list[TrashedCheckpoint]
    phase: TrashPhase = TrashPhase.PRUNING
    update_state_file: bool = True
    sequence: int = 0


class TrashOrder(Document, frozen=True, kw_only=True):
    """`trash.json`: the highest sequence that a prune of the run has had."""

    sequence: int
