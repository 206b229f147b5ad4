"""The list of the trash: one row for each prune."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_tui.app.widgets.base.columns import Column, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line, shorten
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


class TrashList(ListPane):
    """Shows the prunes that can be undone, newest first."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._manifests: tuple[TrashManifest, ...] = ()
        self._at = 0.0

    @property
    def selected(self) -> TrashManifest | None:
        """The prune under the cursor."""
        return self._manifests[self.cursor] if self._manifests else None

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.snapshot, self._at = snapshot, snapshot.at
        self._manifests = snapshot.trash
        self.rows_changed()
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("trash", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns the size of the trash."""
        size = sum(c.size for manifest in self._manifests for c in manifest.checkpoints)
        return ((units.size(size), "value"), (" in it", "label"))

    def row_count(self) -> int:
        """Returns the number of prunes."""
        return len(self._manifests)

    def row_key(self, row: int) -> str:
        """Returns the id of the prune."""
        return self._manifests[row].id

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the column titles."""
        return (choose(_COLUMNS, width).head(),) if self._manifests else ()

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns the text for an empty trash."""
        return (line((shorten("the trash is empty", width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns the row of one prune."""
        manifest = self._manifests[row]
        size = sum(trashed.size for trashed in manifest.checkpoints)
        names = ", ".join(clean(trashed.name) for trashed in manifest.checkpoints)
        return choose(_COLUMNS, width).row(
            {
                "age": ((units.age(max(0.0, self._at - manifest.at)), "value"),),
                "count": ((f"{len(manifest.checkpoints):,}", "value"),),
                "size": ((units.size(size), "value"),),
                "by": ((clean(manifest.by), "muted"),),
                "names": ((names, "muted"),),
            }
        )
