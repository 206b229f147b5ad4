"""The plan of a prune: whether each checkpoint stays, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfckpt_trainer.catalog.retention.plan import Decision
from tfckpt_tui.app.widgets.base.columns import Column, Layout
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import metric_text
from tfckpt_tui.formats.text import clean

_COLUMNS = (
    Column("decision", "", 8, align="<"),
    Column("name", "checkpoint", 14, align="<", stretch=1),
    Column("step", "step", 9, rank=2),
    Column("loss", "loss", 8, rank=3),
    Column("size", "size", 8, rank=1),
    Column("reason", "why", 31, align="<", stretch=2),
)


class PlanList(ListPane[Decision]):
    """Shows the decisions, newest checkpoint first, with a glyph and a word each."""

    has_cursor = False
    title = "plan"
    columns = _COLUMNS

    def note(self) -> Sequence[Span]:
        """Returns how many are pruned and how many stay."""
        deleted = sum(not decision.keep for decision in self.rows)
        kept = self.row_count() - deleted
        return (
            (f"− {deleted:,} to the trash", "warn"),
            (" · ", "faint"),
            (f"{kept:,} stay", "label"),
        )

    def cells(self, row: Decision, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one decision."""
        del layout
        checkpoint = row.checkpoint
        value = "muted" if row.keep else "value"
        has_loss = "loss" in checkpoint.metrics
        loss_style = "bad" if "loss" in checkpoint.not_finite else value
        return {
            "decision": (("● stays", "muted"),) if row.keep else (("− goes", "warn"),),
            "name": ((clean(checkpoint.name), value),),
            "step": ((f"{checkpoint.step:,}" if checkpoint.step is not None else "–", value),),
            "loss": ((metric_text(checkpoint, "loss") if has_loss else "–", loss_style),),
            "size": ((units.size(checkpoint.size), value),),
            "reason": ((clean(row.reason), value),),
        }
