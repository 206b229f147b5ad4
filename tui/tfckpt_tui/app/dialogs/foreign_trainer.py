"""The second question before a prune, if another program seems to write here."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.prune import foreign_words, wait_words


class BesideTrainerDialog(Dialog[bool]):
    """Asks whether to prune beside a program that cannot be asked."""

    def __init__(self, snapshot: RunSnapshot, foreign: ForeignWriters, count: int) -> None:
        super().__init__(snapshot)
        is_seen = bool(foreign.processes)
        self.caption = f" prune {'beside another program' if is_seen else 'new files'}? "
        self._foreign = foreign
        self._count = count

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what was found, and what the risk is."""
        yield ((clean(foreign_words(self._foreign)), "warn"),)
        yield ()
        if self._foreign.processes:
            advice = "It does not use tfckpt_trainer and cannot be asked. "
        else:
            advice = f"{wait_words(self._foreign)}{', or confirm' if self._count else ''}. "
        yield (
            (advice, ""),
            ("The prune leaves the state file alone, and all files that are open or ", ""),
            ("just written. ", ""),
            ("A checkpoint that a trainer restores later may be in the trash; ", ""),
            (key_of(self, "undo"), "key"),
            (" brings it back.", ""),
        )

    def refusal(self) -> str:
        """Returns why no checkpoint can be pruned."""
        return "" if self._count else "All chosen checkpoints are open or were just written."

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and, if there is something to prune, prune."""
        cancel: Choice[bool] = Choice("n", "cancel", None)
        if not self._count:
            return [cancel]
        what = units.count(self._count, "checkpoint")
        return [cancel, Choice("y", f"move {what} to the trash", True, "error")]
