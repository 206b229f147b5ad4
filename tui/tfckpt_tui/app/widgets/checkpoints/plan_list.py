"""The plan of a prune: whether each checkpoint stays, and why."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.retention.plan import Decision
from tfckpt_tui.app.widgets.base.columns import Column, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span
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


class PlanList(ListPane):
    """Shows the decisions, newest checkpoint first, with a glyph and a word each."""

    has_cursor = False

    def __init__(self, decisions: Sequence[Decision], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._decisions = tuple(decisions)

    def show_decisions(self, decisions: Sequence[Decision]) -> None:
        """Shows a new plan."""
        self._decisions = tuple(decisions)
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("plan", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns how many are pruned and how many stay."""
        deleted = sum(not decision.keep for decision in self._decisions)
        kept = len(self._decisions) - deleted
        return (
            (f"− {deleted:,} to the trash", "warn"),
            (" · ", "faint"),
            (f"{kept:,} stay", "label"),
        )

    def row_count(self) -> int:
        """Returns the number of checkpoints."""
        return len(self._decisions)

    def row_key(self, row: int) -> str:
        """Returns the checkpoint's name."""
        return self._decisions[row].checkpoint.name

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the column titles."""
        return (choose(_COLUMNS, width).head(),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns the row of one decision."""
        decision = self._decisions[row]
        checkpoint = decision.checkpoint
        value = "muted" if decision.keep else "value"
        has_loss = "loss" in checkpoint.metrics
        loss_style = "bad" if "loss" in checkpoint.not_finite else value
        cells: dict[str, Sequence[Span]] = {
            "decision": (("● stays", "muted"),) if decision.keep else (("− goes", "warn"),),
            "name": ((clean(checkpoint.name), value),),
            "step": ((f"{checkpoint.step:,}" if checkpoint.step is not None else "–", value),),
            "loss": ((metric_text(checkpoint, "loss") if has_loss else "–", loss_style),),
            "size": ((units.size(checkpoint.size), value),),
            "reason": ((clean(decision.reason), "muted" if decision.keep else "value"),),
        }
        return choose(_COLUMNS, width).row(cells)
