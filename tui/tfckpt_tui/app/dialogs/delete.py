"""The question after a prune on a full disk: whether to delete without the trash."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_MOST_NAMES = 8


class DeleteForGoodDialog(Dialog[bool]):
    """Asks whether to delete for good what could not be moved to the trash."""

    caption = " the disk is full "

    def __init__(self, snapshot: RunSnapshot, names: tuple[str, ...]) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            names: The checkpoints that could not be moved to the trash.
        """
        super().__init__(snapshot)
        self._names = names

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is deleted."""
        sizes = {c.name: c.size for c in self.snapshot.checkpoints}
        size = units.size(sum(sizes.get(name, 0) for name in self._names))
        yield (("Nothing was moved to the trash: there is no room for its manifest.", ""),)
        yield (
            (units.count(len(self._names), "checkpoint"), "warn"),
            (f" ({size}) can be deleted for good instead.", ""),
        )
        pronoun = "it" if len(self._names) == 1 else "them"
        yield ((f"Nothing can bring {pronoun} back.", "warn"),)
        yield ()
        for name in self._names[:_MOST_NAMES]:
            yield ((clean(name), "value"),)
        if len(self._names) > _MOST_NAMES:
            yield ((f"and {len(self._names) - _MOST_NAMES:,} more", "muted"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and delete."""
        return [Choice("n", "cancel", None), Choice("y", "delete for good", True, "error")]
