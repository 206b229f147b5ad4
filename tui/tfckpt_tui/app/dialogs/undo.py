"""The undo dialog."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.directory.trash import RETENTION, next_to_undo
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.prune import pruned_words

_MOST_NAMES = 8


class UndoDialog(Dialog[str]):
    """Answers with the id of the prune to undo."""

    caption = " undo a prune "

    def __init__(self, snapshot: RunSnapshot, chosen: TrashManifest | None = None) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            chosen: The prune; by default the newest that a user asked for.
        """
        super().__init__(snapshot)
        self._chosen = chosen

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the checkpoints that come back."""
        manifest = self._manifest
        if manifest is None:
            return
        count = len(manifest.checkpoints)
        come = units.noun(count, "comes", "come")
        ago = units.ago(max(0.0, self.snapshot.at - manifest.at))
        yield (
            (pruned_words(manifest.names), "strong"),
            (f" ({units.size(manifest.size)}) {come} back from the trash.", ""),
        )
        yield ((f"Pruned {ago} by {clean(manifest.by)}.", "muted"),)
        if manifest.by == RETENTION:
            yield (("The trainer prunes it again after the next save, unless you pin it.", "warn"),)
        yield ()
        for checkpoint in manifest.checkpoints[:_MOST_NAMES]:
            yield (
                ("+ ", "good"),
                (clean(checkpoint.name), "value"),
                (f"  {units.size(checkpoint.size)}", "muted"),
            )
        if count > _MOST_NAMES:
            yield ((f"and {count - _MOST_NAMES:,} more", "muted"),)

    def refusal(self) -> str:
        """Returns why nothing can be undone."""
        if self._manifest is not None:
            return ""
        return self.snapshot.nothing_to_undo or "This prune is not in the trash any more."

    @property
    def _manifest(self) -> TrashManifest | None:
        """The prune, while it is in the trash."""
        if self._chosen is None:
            return next_to_undo(self.snapshot.trash)
        return next((m for m in self.snapshot.trash if m.id == self._chosen.id), None)

    def choices(self) -> list[Choice[str]]:
        """Returns cancel and undo."""
        manifest = self._manifest
        answer = manifest.id if manifest is not None else None
        return [Choice("n", "cancel", None), Choice("y", "bring back", answer, "primary")]
