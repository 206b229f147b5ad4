"""What `ls` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from tfckpt_tui.formats.checkpoint_columns import json_record
from tfckpt_tui.reports.base import Report


class ListedRun(msgspec.Struct, frozen=True):
    """The run of a list.

    Attributes:
        id: Permanent identifier of the run; null in a directory that this library never used.
        directory: The run directory.
    """

    id: str | None
    directory: str


if TYPE_CHECKING:
    ListedCheckpoint = msgspec.Struct
else:
    ListedCheckpoint = json_record()


class UnsupportedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is recognised and not read.

    Attributes:
        name: A checkpoint that is recognised and not read.
        format: TensorFlow's V1 format.
        bytes: Size of all its files.
        files: Their names.
    """

    name: str
    format: Literal["V1"]
    bytes: int
    files: tuple[str, ...]


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of another format.

    Attributes:
        name: A file or directory of
            [another format](checkpoints.md#files-of-other-formats), newest first.
        format: `Keras model`, `Keras weights`, `Keras HDF5`, `safetensors`, `Orbax`, `SavedModel`.
        epoch: Epochs that were done; null if the name does not tell.
        step: Null if the name does not tell.
        bytes: Its size; of a directory, of all files below it.
        saved_at: When it was last written.
        loaded_by: The Python functions or the command that load it. Empty if it is a link of
            another user, which is not followed.
    """

    name: str
    format: str
    epoch: int | None
    step: int | None
    bytes: int
    saved_at: float
    loaded_by: str


class ListedDiagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the directory.

    Attributes:
        kind: Kind of the [diagnostic](checkpoints.md#diagnostics).
        severity: A warning may cost a checkpoint or keep a trainer from starting; a note costs
            space at most.
        name: The file or checkpoint, or the first of several.
        message: What it is, its consequence, and what to do.
        bytes: Space that can be freed.
    """

    kind: str
    severity: Literal["warning", "note"]
    name: str
    message: str
    bytes: int | None


class ListReport(Report, frozen=True, kw_only=True):
    """Newest first."""

    run: ListedRun
    checkpoints: Sequence[ListedCheckpoint]
    unsupported: tuple[UnsupportedCheckpoint, ...]
    other_files: tuple[ListedFile, ...]
    diagnostics: tuple[ListedDiagnostic, ...]
