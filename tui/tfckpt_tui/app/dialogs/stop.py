"""The stop dialog: save before the run stops, or not."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.alerts import SAVE_FAILED
from tfckpt_trainer.catalog.lineage import unsaved_steps
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean


class StopDialog(Dialog[bool]):
    """Asks whether to save before the run stops."""

    caption = " stop the run? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what stops, and what is lost without a save."""
        yield (
            (f"Training stops on {units.count(len(self.snapshot.workers), 'worker')} at step ", ""),
            (f"{self.snapshot.step or 0:,}", "strong"),
            (" or a few steps later.", ""),
        )
        for alert in self.snapshot.alerts:
            if alert.kind == SAVE_FAILED:
                yield (
                    (f"✗ {clean(alert.title)}. ", "bad"),
                    ("If the next one fails too, the run is not stopped.", ""),
                )
        unsaved = self._unsaved_steps()
        if unsaved:
            verb = "is" if unsaved == 1 else "are"
            yield (
                ("Without a save, ", ""),
                (units.count(unsaved, "step"), "warn"),
                (f" since the newest checkpoint {verb} lost.", ""),
            )
        else:
            yield (("The newest checkpoint holds all steps so far.", "muted"),)
        yield (("The next launch continues from the newest checkpoint.", "muted"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel, stop with a save and stop without one."""
        return [
            Choice("n", "cancel", None),
            Choice("s", "save, then stop", True, "warning"),
            Choice("d", "stop without saving", False, "error"),
        ]

    def _unsaved_steps(self) -> int:
        position = self.snapshot.position
        if position is None or not self.snapshot.trainer_answers:
            return 0
        return unsaved_steps(self.snapshot.checkpoints, position)
