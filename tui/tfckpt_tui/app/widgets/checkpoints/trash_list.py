"""The list of the trash: one row for each prune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_tui.app.widgets.base.columns import Column, Layout
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_COLUMNS = (
    Column("age", "pruned", 7),
    Column("count", "checkpoints", 11),
    Column("size", "size", 8),
    Column("by", "by", 14, rank=1, align="<", stretch=1),
    Column("names", "which", 20, rank=2, align="<", stretch=3),
)


class TrashList(ListPane[TrashManifest]):
    """Shows the prunes that can be undone, newest first."""

    title = "trash"
    columns = _COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._at = 0.0

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.snapshot, self._at = snapshot, snapshot.at
        self.show_rows(snapshot.trash)

    def note(self) -> Sequence[Span]:
        """Returns the size of the trash."""
        size = sum(c.size for manifest in self.rows for c in manifest.checkpoints)
        return ((units.size(size), "value"), (" in it", "label"))

    def row_key(self, row: int) -> str:
        """Returns the id of the prune."""
        return self.rows[row].id

    def why_empty(self) -> str:
        """Returns the text for an empty trash."""
        return "the trash is empty"

    def cells(self, row: TrashManifest, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one prune."""
        del layout
        names = ", ".join(clean(trashed.name) for trashed in row.checkpoints)
        return {
            "age": ((units.age(max(0.0, self._at - row.at)), "value"),),
            "count": ((f"{len(row.checkpoints):,}", "value"),),
            "size": ((units.size(sum(trashed.size for trashed in row.checkpoints)), "value"),),
            "by": ((clean(row.by), "muted"),),
            "names": ((names, "muted"),),
        }
