"""The second question before a prune, if a trainer without this library seems to write here."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.prune import foreign_words


class BesideTrainerDialog(Dialog[bool]):
    """Asks whether to prune beside a trainer that cannot be asked."""

    caption = " prune beside another trainer? "

    def __init__(self, snapshot: RunSnapshot, foreign: ForeignWriters, count: int) -> None:
        super().__init__(snapshot)
        self._foreign = foreign
        self._count = count

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what was found, and what the risk is."""
        yield ((f"{clean(foreign_words(self._foreign))}.", "warn"),)
        yield ()
        yield (
            ("This trainer does not use tfckpt_trainer and cannot be asked. ", ""),
            ("The prune leaves its state file alone, and all files that are open or ", ""),
            ("just written. ", ""),
            ("A checkpoint that it restores later may be in the trash; ", ""),
            ("u", "key"),
            (" brings it back.", ""),
        )

    def refusal(self) -> str:
        """Returns why no checkpoint can be pruned."""
        return "" if self._count else "All chosen checkpoints are open or were just written."

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and prune."""
        what = units.count(self._count, "checkpoint")
        return [
            Choice("n", "cancel", None),
            Choice("y", f"move {what} to the trash", True, "error"),
        ]
