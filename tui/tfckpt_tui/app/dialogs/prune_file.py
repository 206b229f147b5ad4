"""The question before a file of another format goes to the trash."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot


class PruneFileDialog(Dialog[bool]):
    """Asks whether to move a file to the trash."""

    caption = " prune a file "

    def __init__(self, snapshot: RunSnapshot, file: OtherFile, reason: str) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            file: The file.
            reason: Why it cannot be pruned; empty if it can.
        """
        super().__init__(snapshot)
        self._file = file
        self._reason = reason

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what goes to the trash."""
        size = units.size(self._file.size)
        yield ((clean(self._file.name), "value"), (f"  {self._file.format.name}, {size}", "muted"))
        if not self._reason:
            yield (
                ("It goes to the trash; ", ""),
                (key_of(self, "undo"), "key"),
                (" brings it back until the trash is emptied.", ""),
            )

    def refusal(self) -> str:
        """Returns why it cannot be pruned."""
        return f"It cannot be pruned: {self._reason}." if self._reason else ""

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and prune."""
        return [Choice("n", "cancel", None), Choice("y", "move to the trash", True, "warning")]
