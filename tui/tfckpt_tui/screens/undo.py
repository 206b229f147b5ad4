"""Bringing back what a prune moved away."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_tui import humane
from tfckpt_tui.screens.dialog import Choice, Dialog
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.painting import Span

_MOST_NAMES = 8


class UndoDialog(Dialog[str]):
    """Answers with the id of the prune to undo: the newest one."""

    caption = " undo the last prune "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what would come back."""
        if not self.snapshot.trash:
            return
        manifest = self.snapshot.trash[0]
        count = len(manifest.checkpoints)
        size = sum(checkpoint.size for checkpoint in manifest.checkpoints)
        ago = humane.age(max(0.0, self.snapshot.at - manifest.at))
        yield (
            (f"{count:,} checkpoint" + ("s" if count != 1 else ""), "strong"),
            (f" ({humane.size(size)}) come back from the trash.", ""),
        )
        yield ((f"Pruned {ago} ago by {clean(manifest.by)}.", "muted"),)
        yield ()
        for checkpoint in manifest.checkpoints[:_MOST_NAMES]:
            yield (
                ("+ ", "good"),
                (clean(checkpoint.name), "value"),
                (f"  {humane.size(checkpoint.size)}", "muted"),
            )
        if count > _MOST_NAMES:
            yield ((f"and {count - _MOST_NAMES:,} more", "muted"),)

    def refusal(self) -> str:
        """Returns why there is nothing to undo."""
        return "" if self.snapshot.trash else "The trash is empty; there is nothing to bring back."

    def choices(self) -> list[Choice[str]]:
        """Returns no and yes."""
        newest = self.snapshot.trash[0].id if self.snapshot.trash else None
        return [Choice("n", "cancel", None), Choice("y", "bring back", newest, "primary")]
