"""Ending the run: with a last checkpoint, or without and what that would lose."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_tui.app.consequences import unsaved_steps
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span


class StopDialog(Dialog[bool]):
    """Answers whether to save before the run ends."""

    caption = " stop the run "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what ends and what would be lost."""
        workers = len(self.snapshot.workers)
        unsaved = unsaved_steps(self.snapshot)
        noun = "worker" if workers == 1 else "workers"
        yield (
            (f"Training ends on {workers} {noun}, at step ", ""),
            (f"{self.snapshot.step or 0:,}", "strong"),
            (" or a few steps later.", ""),
        )
        if unsaved:
            yield (
                (f"{unsaved:,} steps", "warn"),
                (" since the newest checkpoint are lost unless they are saved.", ""),
            )
        else:
            yield (("The newest checkpoint holds all steps until now.", "muted"),)
        yield (("A later start of the run goes on from the newest checkpoint.", "muted"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns no, the safe yes, and the other one."""
        return [
            Choice("n", "cancel", None),
            Choice("s", "save, then stop", True, "warning"),
            Choice("d", "stop without saving", False, "error"),
        ]
