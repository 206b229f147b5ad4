"""The dialog that exports a checkpoint as a model file."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.launch.export import Script
from tfckpt_trainer.rundir.paths import EXPORTS
from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.processes.export import describe_script

_HOW = (
    "The training script runs once more: it builds its model, restores the checkpoint and writes "
    "the file. Another process loads the file and compares its outputs. Training is not disturbed."
)


class ExportDialog(Dialog[ExportFormat]):
    """Asks for the format of an export."""

    caption = " export "

    def __init__(
        self, snapshot: RunSnapshot, checkpoint: str, script: Script | None, problem: str
    ) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            checkpoint: The checkpoint to export.
            script: How the script is started; None if it cannot be.
            problem: Why it cannot be started; empty if it can.
        """
        super().__init__(snapshot)
        self._checkpoint = checkpoint
        self._script = script
        self._problem = problem

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what happens."""
        name = clean(self._checkpoint)
        yield ((f"Export {name}", "strong"), (f" to {EXPORTS}/.", ""))
        yield ((_HOW, ""),)
        if self._script is not None:
            yield ((clean(describe_script(self._script)), "value"),)
        yield ()
        yield (("k", "key"), ("  Keras file, for keras.models.load_model", ""))
        yield (("m", "key"), ("  SavedModel, for serving", ""))
        yield (("w", "key"), ("  weights only", ""))

    def refusal(self) -> str:
        """Returns why the script cannot be started: the selected checkpoint is restorable."""
        return clean(self._problem)

    def choices(self) -> list[Choice[ExportFormat]]:
        """Returns the formats."""
        return [
            Choice("n", "cancel", None),
            Choice("k", "Keras", ExportFormat.KERAS, "primary"),
            Choice("m", "SavedModel", ExportFormat.SAVED_MODEL),
            Choice("w", "weights", ExportFormat.WEIGHTS),
        ]
