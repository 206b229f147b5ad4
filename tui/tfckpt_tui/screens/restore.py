"""Going back to a checkpoint: which one, and what the run gives up by it."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_tui import humane
from tfckpt_tui.consequences import RestorePlan, plan_restore
from tfckpt_tui.screens.dialog import Choice, Dialog
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.glyphs import CHECKPOINT
from tfckpt_tui.widgets.painting import Span


class RestoreDialog(Dialog[str]):
    """Answers with the name of the checkpoint to go back to."""

    caption = " restore "

    def __init__(self, snapshot: RunSnapshot, selected: Checkpoint | None) -> None:
        super().__init__(snapshot)
        self._typed = selected.name if selected is not None else ""
        self._shown = clean(self._typed)

    def fields(self) -> Iterable[Widget]:
        """Returns the input for a step or a name; what is selected stands there already."""
        target = Input(
            self._shown, placeholder="a step, or a name", id="target", select_on_focus=True
        )
        target.border_title = "go back to"
        return (target,)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the checkpoint, and what is given up."""
        plan = self._plan()
        if plan.checkpoint is None:
            return ()
        lines: list[tuple[Span, ...]] = [_described(plan.checkpoint, self.snapshot.at)]
        if not plan.refusal:
            lines += [(), *_consequences(plan, self.snapshot)]
        return lines

    def refusal(self) -> str:
        """Returns why this restore cannot be done."""
        return self._plan().refusal

    def choices(self) -> list[Choice[str]]:
        """Returns no and yes."""
        checkpoint = self._plan().checkpoint
        name = checkpoint.name if checkpoint is not None else None
        return [Choice("n", "cancel", None), Choice("y", "restore", name, "warning")]

    def on_mount(self) -> None:
        """Lets a person type where nothing is selected."""
        if not self._typed:
            self.call_after_refresh(self.query_one("#target", Input).focus)

    @on(Input.Changed, "#target")
    def read_fields(self) -> None:
        """Takes up what was typed."""
        typed = self.query_one("#target", Input).value
        # A name that had to be made safe to be shown still means the file it stands for.
        if typed != self._shown:
            self._typed = self._shown = typed
        self.update_text()

    def _plan(self) -> RestorePlan:
        return plan_restore(self.snapshot, self._typed)


def _described(checkpoint: Checkpoint, at: float) -> tuple[Span, ...]:
    sign = CHECKPOINT[checkpoint.state]
    parts = [
        f"branch {checkpoint.branch}",
        humane.size(checkpoint.size),
        f"saved {humane.age(max(0.0, at - checkpoint.saved_at))} ago",
    ]
    step = f"  step {checkpoint.step:,}" if checkpoint.step is not None else ""
    return (
        (f"{sign.glyph} ", sign.style),
        (clean(checkpoint.name), "strong"),
        (step, "value"),
        ("  " + " · ".join(parts), "muted"),
    )


def _consequences(plan: RestorePlan, snapshot: RunSnapshot) -> list[tuple[Span, ...]]:
    lines: list[tuple[Span, ...]] = []
    if plan.steps_given_up:
        lines.append(
            (
                ("Gives up ", ""),
                (f"{plan.steps_given_up:,} steps", "warn"),
                (f" of branch {snapshot.branch} (the run is at step {snapshot.step or 0:,}).", ""),
            )
        )
    if plan.steps_unsaved:
        lines.append(
            (
                (f"{plan.steps_unsaved:,} of them", "warn")
                if plan.steps_given_up
                else (f"The last {plan.steps_unsaved:,} steps", "warn"),
                (" are in no checkpoint and would be lost: cancel and press s to keep them.", ""),
            )
        )
    if plan.new_branch is not None:
        lines.append((("Branch ", ""), (str(plan.new_branch), "accent"), (" begins there.", "")))
    else:
        lines.append((("Its branch goes on from there.", ""),))
    lines.append((("Every checkpoint stays, and can be returned to.", "muted"),))
    return lines
