"""Asks whether to end the processes of a run whose trainer does not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfckpt_trainer.catalog.lineage import unsaved_steps
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.request import FORCE_SECONDS

_NAMED = 8


class ForceStopDialog(Dialog[bool]):
    """Asks whether to end processes, and names them."""

    caption = " end the processes? "

    def __init__(self, snapshot: RunSnapshot, processes: Sequence[str]) -> None:
        super().__init__(snapshot)
        self._processes = processes

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the processes, and what happens to them."""
        yield (("These processes of the run are alive:", ""),)
        for process in self._processes[:_NAMED]:
            yield (("  ", ""), (clean(process), "strong"))
        if len(self._processes) > _NAMED:
            yield ((f"  and {len(self._processes) - _NAMED:,} more", "muted"),)
        yield ()
        yield (
            ("They are asked to save and exit. After ", ""),
            (units.duration(FORCE_SECONDS), "warn"),
            (", those that still run are killed.", ""),
        )
        position = self.snapshot.position
        unsaved = unsaved_steps(self.snapshot.checkpoints, position) if position else 0
        if unsaved:
            yield (
                ("If they cannot save, ", ""),
                (units.count(unsaved, "step"), "warn"),
                (" since the newest checkpoint are lost.", ""),
            )
        if self.snapshot.trainer_answers:
            yield (
                ("The trainer still answers: ", "muted"),
                ("x", "key"),
                (" stops it without force.", "muted"),
            )

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and end."""
        return [Choice("n", "cancel", None), Choice("y", "end the processes", True, "error")]
