"""What commands print that write checkpoints and files of other programs."""

from __future__ import annotations

from typing import Literal

import msgspec

from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_tui.reports.base import Report

CopyState = Literal["copied", "present", "missing"]


class ExportReport(Report, frozen=True, kw_only=True):
    """A model file.

    Attributes:
        checkpoint: What was exported.
        step: Its step; null if it is unknown.
        format: The format.
        path: Where it is.
        bytes: Size of all its files.
        compared_on: Which examples were used to compare the outputs.
        difference: Largest relative difference between outputs; 0 if they are equal.
        seconds: How long it took.
    """

    checkpoint: str
    step: int | None
    format: ExportFormat
    path: str
    bytes: int
    compared_on: str
    difference: float
    seconds: float


class CopyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint at the destination.

    Attributes:
        checkpoint: The checkpoint.
        step: Its step.
        files: Number of its files.
        bytes: Size of all its files.
        sent_bytes: Bytes that had to be sent; the rest was there already.
        state: `present` if it was there already, `missing` with `--dry-run`.
    """

    checkpoint: str
    step: int | None
    files: int
    bytes: int
    sent_bytes: int
    state: CopyState


class CopyReport(Report, frozen=True, kw_only=True):
    """What was copied, or would be.

    Attributes:
        destination: The directory, on another host as `host:path`.
        transport: How data got there: `file`, `rsync`.
        dry_run: Whether nothing was changed.
        free_bytes: Free space at the destination before the copy.
        latest: The newest checkpoint there, by TensorFlow's state file; null with `--dry-run`.
        seconds: How long it took.
        warning: Why the copy is missing in the event log; empty if it is there.
    """

    destination: str
    transport: str
    dry_run: bool
    free_bytes: int
    latest: str | None
    seconds: float
    warning: str
    checkpoints: tuple[CopyEntry, ...]


class ExtractedTensor(msgspec.Struct, frozen=True):
    """A tensor in the new file.

    Attributes:
        name: Name of the tensor in the checkpoint.
        stored_as: Its name in the file: its path, as `inspect` shows it.
        widened_to: Its type in the file, if the format does not have its own.
    """

    name: str
    stored_as: str
    widened_to: str | None


class ExtractReport(Report, frozen=True, kw_only=True):
    """A file of tensors.

    Attributes:
        checkpoint: The checkpoint.
        path: The new file, for `npy` the new directory.
        format: `npy`, `npz`, `safetensors`; with `--like` `keras`, `weights.h5`, `h5`, `hdf5`.
        bytes: Size of all tensors in the file.
        left_out: Names of tensors that are not numeric, or that the file of `--like` has no place
            for.
        taken: With `--like`: names in the file whose values come from the other file.
    """

    checkpoint: str
    path: str
    format: str
    bytes: int
    tensors: tuple[ExtractedTensor, ...]
    left_out: tuple[str, ...]
    taken: tuple[str, ...]


class ConvertReport(Report, frozen=True, kw_only=True):
    """A new checkpoint from a file.

    Attributes:
        checkpoint: The new checkpoint.
        files: Its files, the index last.
        tensors: How many tensors it has.
        bytes: Their size.
        taken: With `--like`: paths of tensors that the file does not have, taken from the other
            checkpoint.
        warning: A problem that did not prevent the action; empty if there is none.
    """

    checkpoint: str
    files: tuple[str, ...]
    tensors: int
    bytes: int
    taken: tuple[str, ...]
    warning: str


class AverageSource(msgspec.Struct, frozen=True):
    """A checkpoint that was averaged.

    Attributes:
        name: A checkpoint that was averaged, the newest last.
        step: Its step.
        weight: Its weight; all weights add up to 1.
    """

    name: str
    step: int | None
    weight: float


class NamedTensor(msgspec.Struct, frozen=True):
    """A tensor of the new checkpoint.

    Attributes:
        name: Name of a tensor of the new checkpoint, as in `inspect`.
        path: Its path, as in `inspect`.
    """

    name: str
    path: str


class AverageReport(Report, frozen=True, kw_only=True):
    """A new checkpoint from several.

    Attributes:
        checkpoint: The new checkpoint.
        step: Its step: that of the newest source.
        branch: Its branch: that of the newest source.
        bytes: Size of all its files.
        averaged: Names of the tensors that were averaged.
        from_newest: Names of the tensors that were taken from the newest source.
        batch_normalization: Names of averaged moving means and variances, which need a pass over
            data.
        warning: A problem that did not prevent the action; empty if there is none.
    """

    checkpoint: str
    step: int
    branch: int
    bytes: int
    sources: tuple[AverageSource, ...]
    tensors: tuple[NamedTensor, ...]
    averaged: tuple[str, ...]
    from_newest: tuple[str, ...]
    batch_normalization: tuple[str, ...]
    warning: str


class EditReport(Report, frozen=True, kw_only=True):
    """A changed copy of a checkpoint.

    Attributes:
        checkpoint: The new checkpoint.
        source: The checkpoint that was edited.
        step: Its step.
        branch: Its branch.
        changes: The changes, one sentence each.
        tensors: How many tensors the new checkpoint has.
        bytes: Size of all its files; null with `--dry-run`.
        written: False with `--dry-run`.
        warnings: Problems that did not prevent the action.
    """

    checkpoint: str
    source: str
    step: int
    branch: int
    changes: tuple[str, ...]
    tensors: int
    bytes: int | None
    written: bool
    warnings: tuple[str, ...]
