"""Requests to an export process, and its reports."""

from __future__ import annotations

from enum import StrEnum

from tfckpt_trainer.rundir.storage.documents import Document


class ExportFormat(StrEnum):
    """Export formats, named as on the command line."""

    KERAS = "keras"
    SAVED_MODEL = "saved-model"
    WEIGHTS = "weights"

    @property
    def suffix(self) -> str:
        """File name extension; empty for a SavedModel, which is a directory."""
        return {"keras": ".keras", "weights": ".weights.h5"}.get(self.value, "")


class ExportPhase(StrEnum):
    """The phases of an export, one process each: write the model, then load and check it."""

    WRITE = "write"
    CHECK = "check"


class ExportRequest(Document, frozen=True, kw_only=True):
    """A request to a training script to export a checkpoint instead of training.

    Attributes:
        checkpoint: Name of the checkpoint.
        file_name: Name of the exported file, in the directory of this request.
    """

    checkpoint: str
    format: ExportFormat
    file_name: str
    phase: ExportPhase


class ExportResult(Document, frozen=True, kw_only=True):
    """The result of one phase of an export.

    Attributes:
        problem: Why the phase failed; empty if it succeeded.
        disk_full: Whether it failed because the disk is full.
        step: Step of the checkpoint.
        examples: Description of the examples on which outputs were compared.
        outputs: Number of output values.
        difference: Largest relative difference of the outputs; 0 if they are equal.
    """

    problem: str = ""
    disk_full: bool = False
    step: int | None = None
    examples: str = ""
    outputs: int = 0
    difference: float | None = None
