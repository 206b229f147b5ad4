"""The columns of the trash. Each one is declared here, once, for the app and for `trash`."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.formats.text import clean

_NAMED = 5
"""Checkpoints of one prune that the table of the command names."""

COLUMNS: tuple[ListColumn[TrashManifest], ...] = (
    ListColumn("id", lambda prune, _: clean(prune.id), command="ID"),
    ListColumn(
        "age",
        lambda prune, at: units.age(max(0.0, at - prune.at)),
        ListCell("pruned", 7),
        command="AGE",
    ),
    ListColumn(
        "count", lambda prune, _: f"{len(prune.checkpoints):,}", ListCell("checkpoints", 11)
    ),
    ListColumn(
        "size", lambda prune, _: units.size(prune.size), ListCell("size", 8), command="SIZE"
    ),
    ListColumn(
        "by",
        lambda prune, _: clean(prune.by),
        ListCell("by", 14, rank=1, align="<", stretch=1, style="muted"),
        command="BY",
    ),
    ListColumn(
        "names",
        lambda prune, _: clean(few_of(prune.names, _NAMED)),
        cell_text=lambda prune, _: ", ".join(map(clean, prune.names)),
        cell=ListCell("which", 20, rank=2, align="<", stretch=3, style="muted"),
        command="CHECKPOINTS",
    ),
)
"""All columns, in the order in which each part shows them."""
