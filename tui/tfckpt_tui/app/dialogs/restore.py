"""Going back to a checkpoint: which one, and what the run gives up by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_tui.app.consequences import RestorePlan, plan_restore
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.icons import CHECKPOINT
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.compatibility import Fit

CheckFit = Callable[[Checkpoint, Callable[[Fit | str], None]], None]
"""Looks whether a checkpoint fits, or says why that cannot be told."""

_MOST_MISFITS = 5


@dataclass(frozen=True)
class Restore:
    """What is to be done.

    Attributes:
        name: The checkpoint.
        partial: Whether only what fits the model is taken from it.
    """

    name: str
    partial: bool = False


class RestoreDialog(Dialog[Restore]):
    """Answers with the checkpoint to go back to."""

    caption = " restore "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "turn(-1)", show=False),
        Binding("down", "turn(1)", show=False),
    ]

    def __init__(
        self, snapshot: RunSnapshot, selected: Checkpoint | None, check_fit: CheckFit
    ) -> None:
        """Makes the dialog.

        Args:
            snapshot: Of the run.
            selected: What it begins with.
            check_fit: Looks, without being waited for, whether a checkpoint fits the run; answers
                in the app's own thread.
        """
        super().__init__(snapshot)
        self._typed = selected.name if selected is not None else ""
        self._shown = clean(self._typed)
        self._check_fit = check_fit
        self._fits: dict[str, Fit | str | None] = {}

    def fields(self) -> Iterable[Widget]:
        """Returns the input for a step or a name; what is selected stands there already."""
        target = Input(
            self._shown,
            placeholder="a step, a name, or a metric as in: min loss",
            id="target",
            select_on_focus=True,
        )
        target.border_title = "go back to"
        target.border_subtitle = "↑ ↓ newer, older"
        return (target,)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the checkpoint, what is given up, and whether it fits."""
        plan = self._plan()
        if plan.checkpoint is None:
            return ()
        lines: list[tuple[Span, ...]] = [_described(plan.checkpoint, self.snapshot.at)]
        if not plan.refusal:
            lines += [(), *_consequences(plan, self.snapshot), *self._fit_lines(plan.checkpoint)]
        return lines

    def refusal(self) -> str:
        """Returns why this restore cannot be done."""
        return self._plan().refusal

    def can_choose(self, place: int) -> bool:
        """Whether the choice can be taken: all of it where it fits, a part where it does not."""
        checkpoint = self._plan().checkpoint
        fit = self._fits.get(checkpoint.name) if checkpoint is not None else None
        misfits = isinstance(fit, Fit) and bool(fit.misfits)
        return place == 0 or (super().can_choose(place) and misfits is (place == 2))

    def choices(self) -> list[Choice[Restore]]:
        """Returns no, yes, and what fits alone."""
        checkpoint = self._plan().checkpoint
        whole = Restore(checkpoint.name) if checkpoint is not None else None
        part = Restore(checkpoint.name, partial=True) if checkpoint is not None else None
        return [
            Choice("n", "cancel", None),
            Choice("y", "restore", whole, "warning"),
            Choice("p", "what fits", part, "warning"),
        ]

    def on_mount(self) -> None:
        """Lets a person type where nothing is selected; begins to look whether it fits."""
        if not self._typed:
            self.call_after_refresh(self.query_one("#target", Input).focus)
        # Not before Textual takes the screen for mounted.
        self.call_later(self._look)

    @on(Input.Changed, "#target")
    def read_fields(self) -> None:
        """Takes up what was typed."""
        typed = self.query_one("#target", Input).value
        # A name that had to be made safe to be shown still means the file it stands for.
        if typed != self._shown:
            self._typed = self._shown = typed
        self._look()

    def action_turn(self, places: int) -> None:
        """Goes on to the next older or newer checkpoint that can be restored."""
        names = [c.name for c in self.snapshot.checkpoints if c.restorable]
        checkpoint = self._plan().checkpoint
        if not names:
            return
        known = checkpoint is not None and checkpoint.name in names
        place = names.index(checkpoint.name) + places if known and checkpoint is not None else 0
        self._typed = names[max(0, min(place, len(names) - 1))]
        self._shown = clean(self._typed)
        self.query_one("#target", Input).value = self._shown
        self._look()

    def _plan(self) -> RestorePlan:
        return plan_restore(self.snapshot, self._typed)

    def _look(self) -> None:
        """Has it looked up whether what is chosen fits, once for each checkpoint."""
        checkpoint = self._plan().checkpoint
        if checkpoint is not None and checkpoint.restorable and checkpoint.name not in self._fits:
            name = checkpoint.name
            self._fits[name] = None
            self._check_fit(checkpoint, partial(self._note, name))
        self.update_text()

    def _note(self, name: str, found: Fit | str) -> None:
        self._fits[name] = found
        self.update_text()

    def _fit_lines(self, checkpoint: Checkpoint) -> list[tuple[Span, ...]]:
        fit = self._fits.get(checkpoint.name)
        if fit is None:
            return [(("◌ ", "busy"), ("looking whether it fits …", "muted"))]
        if isinstance(fit, str):
            return [(("? ", "warn"), ("Whether it fits is not known: ", "warn"), (fit, "warn"))]
        like = clean(fit.like)
        if not fit.misfits:
            return [(("✓ ", "good"), (f"It fits: its variables are those of {like}.", ""))]
        shown = [(("  ", ""), (clean(one), "value")) for one in fit.misfits[:_MOST_MISFITS]]
        more = len(fit.misfits) - len(shown)
        rest = [(("  ", ""), (f"and {more:,} more", "muted"))] if more else []
        count = units.count(len(fit.misfits), "variable")
        return [
            (("✗ ", "bad"), (f"It does not fit: {count} differ{_s(fit)} from {like}.", "bad")),
            *shown,
            *rest,
            (("p", "key"), (" takes what fits, and leaves the rest as it is.", "")),
        ]


def _s(fit: Fit) -> str:
    return "s" if len(fit.misfits) == 1 else ""


def _described(checkpoint: Checkpoint, at: float) -> tuple[Span, ...]:
    sign = CHECKPOINT[checkpoint.state]
    parts = [
        f"branch {checkpoint.branch}",
        units.size(checkpoint.size),
        f"saved {units.age(max(0.0, at - checkpoint.saved_at))} ago",
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
