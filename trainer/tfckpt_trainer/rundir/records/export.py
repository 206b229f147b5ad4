"""What an export is asked to do, and what it reports."""

from __future__ import annotations

from enum import StrEnum

from tfckpt_trainer.rundir.documents import Document


class ExportFormat(StrEnum):
    """As what a model can be exported; the value is also what the command line calls it."""

    KERAS = "keras"
    SAVED_MODEL = "saved-model"
    WEIGHTS = "weights"

    @property
    def suffix(self) -> str:
        """How names of such files end; a SavedModel is a directory."""
        return {"keras": ".keras", "weights": ".weights.h5"}.get(self.value, "")


class ExportPhase(StrEnum):
    """What a process that was started to export does."""

    WRITE = "write"
    CHECK = "check"


class ExportRequest(Document, frozen=True, kw_only=True):
    """What a training script is to export, in the place of training.

    Attributes:
        checkpoint: Its name.
        file_name: Of what is written, beside this request.
    """

    checkpoint: str
    format: ExportFormat
    file_name: str
    phase: ExportPhase


class ExportReport(Document, frozen=True, kw_only=True):
    """What became of one phase of an export.

    Attributes:
        problem: Why it failed; empty if it did not.
        step: Of the checkpoint.
        examples: On which examples the answers were compared, in words.
        outputs: How many numbers an answer has.
        difference: The largest relative difference of the answers; 0 if they are equal.
    """

    problem: str = ""
    step: int | None = None
    examples: str = ""
    outputs: int = 0
    difference: float | None = None
