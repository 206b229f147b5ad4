"""Records about the trash."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.storage.documents import Document, SealedDocument


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of a checkpoint in TensorFlow's state file; `place` counts from the oldest."""

    path: str
    place: int
    timestamp: float | None = None


class TrashedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint in the trash.

    Attributes:
        files: Names relative to the run directory, in the order in which a prune moves them. An
            undo uses the reverse order.
        identities: Size, modification time in nanoseconds and inode of each file. A file that
            differs is another file and is not moved, unless its checksum is equal. Times and
            inodes change when a run directory is copied.
        checksums: CRC32C of each file, if it is small or recorded. For a directory, the CRC32C of
            its names and sizes. None if unknown.
        list_entry: Its entry in the state file, if a prune removed it from there.
    """

    name: str
    step: int | None
    size: int
    files: list[str]
    identities: list[tuple[int, int, int]]
    checksums: list[int | None]
    listed: bool = False
    list_entry: ListEntry | None = None
    reason: str = ""


class TrashPhase(StrEnum):
    """Phase of a prune or an undo. It decides what to complete after a crash."""

    PRUNING = "pruning"
    TRASHED = "trashed"
    UNDOING = "undoing"


class TrashManifest(SealedDocument, frozen=True, kw_only=True):
    """`trash/ID/manifest.json`: the content of one prune, written before files are moved.

    Attributes:
        update_state_file: Whether TensorFlow's state file is updated too.
        sequence: Position in the order of all prunes of the run, independent of clocks.
    """

    id: str
    at: float
    by: str
    checkpoints: list[TrashedCheckpoint]
    phase: TrashPhase = TrashPhase.PRUNING
    update_state_file: bool = True
    sequence: int

    @property
    def names(self) -> list[str]:
        """The names of its checkpoints."""
        return [trashed.name for trashed in self.checkpoints]

    @property
    def size(self) -> int:
        """The bytes of its checkpoints."""
        return sum(trashed.size for trashed in self.checkpoints)


class TrashOrder(Document, frozen=True, kw_only=True):
    """`trash.json`: the highest sequence of any prune of the run."""

    sequence: int
