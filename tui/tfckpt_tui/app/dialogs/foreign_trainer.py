"""The second question before pruning where a trainer of somebody else's seems to live."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.foreign_writers import Foreign
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.prune import foreign_words


class BesideTrainerDialog(Dialog[bool]):
    """Answers whether to prune all the same."""

    caption = " a trainer seems to be writing here "

    def __init__(self, snapshot: RunSnapshot, foreign: Foreign, count: int) -> None:
        super().__init__(snapshot)
        self._foreign = foreign
        self._count = count

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what was seen, and what may come of it."""
        yield ((f"{clean(foreign_words(self._foreign))}.", "warn"),)
        yield ()
        yield (
            ("It does not use our library and cannot be asked. ", ""),
            ("Its list of checkpoints is left alone, and so is what it has open or wrote ", ""),
            ("a moment ago. ", ""),
            ("What it wants to restore next may be in the trash then: u brings it back.", ""),
        )

    def refusal(self) -> str:
        """Returns why nothing can go."""
        return "" if self._count else "All that would go was just written, or is open."

    def choices(self) -> list[Choice[bool]]:
        """Returns no and yes."""
        what = units.count(self._count, "checkpoint")
        return [
            Choice("n", "cancel", None),
            Choice("y", f"move {what} to the trash", True, "error"),
        ]
