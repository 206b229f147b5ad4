"""The second question after a prune that met a full disk: whether to delete for good at once."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_MOST_NAMES = 8


class DeleteForGoodDialog(Dialog[bool]):
    """Answers whether to delete what could not be moved to the trash."""

    caption = " the disk is full "

    def __init__(self, snapshot: RunSnapshot, names: tuple[str, ...]) -> None:
        """Makes the dialog.

        Args:
            snapshot: Of the run.
            names: What could not be moved to the trash.
        """
        super().__init__(snapshot)
        self._names = names

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what would be lost."""
        sizes = {c.name: c.size for c in self.snapshot.checkpoints}
        size = units.size(sum(sizes.get(name, 0) for name in self._names))
        yield (("Nothing was moved to the trash: there is no room for its manifest.", ""),)
        yield (
            (units.count(len(self._names), "checkpoint"), "warn"),
            (f" ({size}) can be deleted for good instead.", ""),
        )
        yield (("Nothing brings them back.", "warn"),)
        yield ()
        for name in self._names[:_MOST_NAMES]:
            yield ((clean(name), "value"),)
        if len(self._names) > _MOST_NAMES:
            yield ((f"and {len(self._names) - _MOST_NAMES:,} more", "muted"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns no and yes."""
        return [Choice("n", "cancel", None), Choice("y", "delete for good", True, "error")]
