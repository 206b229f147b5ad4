"""Making a model file of the selected checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.export import DIRECTORY

_HOW = (
    "The script that trains is started once more: it builds its model, restores the checkpoint "
    "and writes the file; another process loads it and compares its answers. Training goes on."
)


class ExportDialog(Dialog[ExportFormat]):
    """Answers with the format."""

    caption = " export "

    def __init__(self, snapshot: RunSnapshot, checkpoint: str) -> None:
        super().__init__(snapshot)
        self._checkpoint = checkpoint

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what would happen."""
        name = clean(self._checkpoint)
        yield ((f"Make a model file of {name}", "strong"), (f" in {DIRECTORY}/.", ""))
        yield ((_HOW, ""),)
        yield ()
        yield (("k", "key"), ("  Keras file, to load with keras.models.load_model", ""))
        yield (("m", "key"), ("  SavedModel, to serve", ""))
        yield (("w", "key"), ("  weights alone", ""))

    def refusal(self) -> str:
        """Returns nothing: what is selected can be restored."""
        return ""

    def choices(self) -> list[Choice[ExportFormat]]:
        """Returns the formats."""
        return [
            Choice("n", "cancel", None),
            Choice("k", "Keras", ExportFormat.KERAS, "primary"),
            Choice("m", "SavedModel", ExportFormat.SAVED_MODEL),
            Choice("w", "weights", ExportFormat.WEIGHTS),
        ]
