"""The restore dialog: choose a checkpoint, and see what its restore does."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.lineage import RestorePlan, plan_restore
from tfckpt_trainer.errors import TfckptError, UnknownCheckpointError, describe_error
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.words.advice import KeyOf
from tfckpt_trainer.words.counts import noun
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.dashboard_layout import SHORT
from tfckpt_tui.app.widgets.base.icons import CHECKPOINT
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.charting.measurements import metric
from tfckpt_tui.charting.view import View
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import metric_text, not_finite_words
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.checkpoints.choose import find_typed
from tfckpt_tui.services.checkpoints.compatibility import Compatibility
from tfckpt_tui.services.control.restore_effects import RestoreEffects, find_effects

CheckCompatibility = Callable[[Checkpoint, Callable[[Compatibility | str], None]], None]
"""Compares a checkpoint with the model; answers with the result, or why there is none."""


@dataclass(frozen=True)
class Restore:
    """The answer of the dialog.

    Attributes:
        name: The checkpoint.
        partial: Whether to restore only the variables that match the model.
        starts: Whether the run has ended, and is launched again from the checkpoint.
    """

    name: str
    partial: bool = False
    starts: bool = False


@dataclass(frozen=True)
class _Preview:
    """What the text in the field refers to.

    Attributes:
        checkpoint: The checkpoint; None if there is none.
        plan: What its restore does; None if it is refused.
        effects: What it changes beside the step and the branch.
        refusal: Why it is refused; empty if it is not.
    """

    checkpoint: Checkpoint | None = None
    plan: RestorePlan | None = None
    effects: RestoreEffects = field(default_factory=RestoreEffects)
    refusal: str = ""


class RestoreDialog(Dialog[Restore]):
    """Asks which checkpoint to restore."""

    caption = " restore "
    typed_outside = string.ascii_letters + string.digits
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("right_square_bracket", "move(-1)", show=False),
        Binding("left_square_bracket", "move(1)", show=False),
    ]

    def __init__(
        self,
        snapshot: RunSnapshot,
        selected: Checkpoint | None,
        check: CheckCompatibility,
        key_of: KeyOf,
    ) -> None:
        """Makes the dialog.

        Args:
            snapshot: The run.
            selected: The checkpoint that the field starts with.
            check: Compares a checkpoint with the model in the background; answers in the thread
                of the app.
            key_of: Returns the keys of the dashboard.
        """
        super().__init__(snapshot)
        self._starts = not snapshot.trainer_answers
        """Whether the run has ended, so that it is launched from the checkpoint."""
        if self._starts:
            self.caption = " restore, then launch "
        self._instead_of = selected if selected is not None and not selected.restorable else None
        """The checkpoint under the cursor, if another one is suggested because it is not sound."""
        if self._instead_of is not None:
            sound = (checkpoint for checkpoint in snapshot.checkpoints if checkpoint.restorable)
            selected = next(sound, selected)
        self._suggested = self._typed = selected.name if selected is not None else ""
        self._shown = clean(self._typed)
        self._check = check
        self._key_of = key_of
        self._checked: dict[str, Compatibility | str | None] = {}
        self._preview_cache: tuple[RunSnapshot, str, _Preview] | None = None
        self.add_class("-large", "-auto")
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT, "-tall")]

    def fields(self) -> Iterable[Widget]:
        """Returns the field for a step, a name or a metric, and the curve with the cut."""
        target = Input(
            self._shown,
            placeholder="a step, a name, or a metric as in: min loss",
            id="target",
            select_on_focus=True,
        )
        target.border_title = "which checkpoint?"
        target.border_subtitle = Content("] ↑ newer   [ ↓ older")
        return target, Chart(metric(main_of(self.snapshot.samples.metrics)), id="cut")

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the checkpoint, what its restore does, and whether it matches the model."""
        preview = self._preview()
        if preview.checkpoint is None:
            return ()
        lines: list[tuple[Span, ...]] = []
        instead_of = self._instead_of
        if instead_of is not None and preview.checkpoint.name == self._suggested:
            refused = f"{clean(instead_of.name)} is {instead_of.state.value}. "
            newest = "This is the newest checkpoint that can be restored."
            lines += [((refused, "warn"), (newest, "")), ()]
        lines.append(_described(preview.checkpoint, self.snapshot.at))
        lines += _not_finite_lines(preview.checkpoint)
        if preview.plan is not None:
            checked = self._checked.get(preview.checkpoint.name)
            lines += [((sentence, ""),) for sentence in preview.effects.sentences]
            lines += [(), *_plan_lines(preview.plan, self._key_of, starts=self._starts)]
            lines += _compatibility_lines(checked, starts=self._starts)
            lines += _exactness_lines(preview.checkpoint)
        return lines

    def refusal(self) -> str:
        """Returns why this restore is refused."""
        return self._preview().refusal

    def can_choose(self, place: int) -> bool:
        """Whether a button is enabled: a partial restore needs a mismatch, a whole one none."""
        checkpoint = self._preview().checkpoint
        checked = self._checked.get(checkpoint.name) if checkpoint is not None else None
        mismatches = isinstance(checked, Compatibility) and bool(checked.mismatches)
        fits = self._starts or mismatches is (place == 2)
        return place == 0 or (super().can_choose(place) and fits)

    def choices(self) -> list[Choice[Restore]]:
        """Returns cancel, a whole restore and a partial one; or cancel and a start."""
        checkpoint = self._preview().checkpoint
        whole = Restore(checkpoint.name, starts=self._starts) if checkpoint is not None else None
        if self._starts:
            return [
                Choice("n", "cancel", None),
                Choice("y", "restore, then launch", whole, "primary"),
            ]
        part = Restore(checkpoint.name, partial=True) if checkpoint is not None else None
        return [
            Choice("n", "cancel", None),
            Choice("y", "restore", whole, "warning"),
            Choice("p", "restore in part", part, "warning"),
        ]

    def on_mount(self) -> None:
        """Focuses the field if it is needed, and starts the comparison."""
        if not self._typed or self._names_begin_with_keys():
            # At once: the next key may be queued already.
            self.set_focus(self.query_one("#target", Input))
        # Not before Textual considers the screen mounted.
        self.call_later(self._refresh)

    def _names_begin_with_keys(self) -> bool:
        """Whether a typed name could press a button, such as `yolo-500`."""
        keys = {choice.key for choice in self.choices()}
        return any(checkpoint.name[:1] in keys for checkpoint in self.snapshot.checkpoints)

    @on(Input.Changed, "#target")
    def read_fields(self) -> None:
        """Reads the field."""
        typed = self.query_one("#target", Input).value
        # The field may show a safe form of a name; until it is edited, the name itself counts.
        if typed != self._shown:
            self._typed = self._shown = typed
            self._refresh()

    def action_move(self, rows: int) -> None:
        """Chooses the next older or newer checkpoint that can be restored."""
        names = [c.name for c in self.snapshot.checkpoints if c.restorable]
        checkpoint = self._preview().checkpoint
        if not names:
            return
        is_listed = checkpoint is not None and checkpoint.name in names
        row = names.index(checkpoint.name) + rows if is_listed and checkpoint is not None else 0
        self._typed = names[max(0, min(row, len(names) - 1))]
        self._shown = clean(self._typed)
        self.query_one("#target", Input).value = self._shown
        self._refresh()
        self.choose_acting()

    def _preview(self) -> _Preview:
        cache = self._preview_cache
        if cache is None or cache[0] is not self.snapshot or cache[1] != self._typed:
            self._preview_cache = cache = (
                self.snapshot,
                self._typed,
                _preview_of(self.snapshot, self._typed, self._key_of, starts=self._starts),
            )
        return cache[2]

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot."""
        super().show(snapshot)
        self._draw_cut()

    def _draw_cut(self) -> None:
        """Draws the curve: bright up to the checkpoint, dim what its restore leaves behind."""
        if not is_open(self):
            return
        preview, chart = self._preview(), self.query_one(Chart)
        chart.display = bool(self.snapshot.samples)
        plan = preview.plan
        chart.look(
            self.snapshot,
            chart.measurements,
            View(),
            kept=plan.kept.last_steps if plan is not None else None,
            cursor=plan.target.step if plan is not None else None,
        )
        chart.draw()

    def _refresh(self) -> None:
        """Updates text and curve, and compares the checkpoint with the model, once for each."""
        self._draw_cut()
        checkpoint = self._preview().checkpoint
        name = checkpoint.name if checkpoint is not None else ""
        if checkpoint is not None and checkpoint.restorable and name not in self._checked:
            self._checked[name] = None
            self._check(checkpoint, partial(self._take, name))
        self.update_text()

    def _take(self, name: str, result: Compatibility | str) -> None:
        self._checked[name] = result
        self.update_text()


def _preview_of(snapshot: RunSnapshot, typed: str, key_of: KeyOf, *, starts: bool) -> _Preview:
    checkpoints, position = snapshot.checkpoints, snapshot.position
    try:
        checkpoint = find_typed(checkpoints, typed, position)
    except UnknownCheckpointError as error:
        return _Preview(
            refusal=clean(_in_trash(snapshot, error.text, key_of) or describe_error(error, key_of))
        )
    except TfckptError as error:
        return _Preview(refusal=clean(describe_error(error, key_of)))
    try:
        plan = plan_restore(checkpoints, snapshot.branch_tips, checkpoint, position)
    except TfckptError as error:
        return _Preview(checkpoint, refusal=clean(describe_error(error, key_of)))
    if starts and (snapshot.trainer_answers or snapshot.state not in HAS_ENDED):
        again = f"The run has been started. Cancel, and press {key_of('restore')} again."
        return _Preview(checkpoint, refusal=again)
    if not starts and not snapshot.trainer_answers:
        return _Preview(checkpoint, refusal="No trainer answers. A restore needs a live trainer.")
    effects = find_effects(plan, snapshot, snapshot.event_log)
    return _Preview(checkpoint, plan, effects)


def _in_trash(snapshot: RunSnapshot, text: str, key_of: KeyOf) -> str:
    """Returns how to bring back what has this name or step; empty if it is not in the trash."""
    trashed = (checkpoint for manifest in snapshot.trash for checkpoint in manifest.checkpoints)
    name = next((c.name for c in trashed if text in (c.name, str(c.step))), None)
    if name is None:
        return ""
    return f"{name} is in the trash. To bring it back, cancel and press {key_of('trash')}."


def _described(checkpoint: Checkpoint, at: float) -> tuple[Span, ...]:
    sign = CHECKPOINT[checkpoint.state]
    parts = [
        f"branch {checkpoint.branch}",
        units.size(checkpoint.size),
        f"saved {units.ago(max(0.0, at - checkpoint.saved_at))}",
    ]
    step = f"  step {checkpoint.step:,}" if checkpoint.step is not None else ""
    return (
        (f"{sign.glyph} ", sign.style),
        (clean(checkpoint.name), "strong"),
        (step, "value"),
        ("  " + " · ".join(parts), "muted"),
    )


def _not_finite_lines(checkpoint: Checkpoint) -> list[tuple[Span, ...]]:
    """Returns which metrics and tensors of a checkpoint are not finite, if any are."""
    words = [f"{clean(name)} {metric_text(checkpoint, name)}" for name in checkpoint.not_finite]
    words += [not_finite_words(checkpoint)] if checkpoint.not_finite_tensors else []
    return [(("  ".join(words), "bad"),)] if words else []


def _plan_lines(plan: RestorePlan, key_of: KeyOf, *, starts: bool) -> list[tuple[Span, ...]]:
    lines: list[tuple[Span, ...]] = []
    if plan.steps_back and plan.position is not None:
        branch, step = plan.position
        lines.append(
            (
                ("Training goes back ", ""),
                (units.count(plan.steps_back, "step"), "warn"),
                (f", from step {step:,} on branch {branch}.", ""),
            )
        )
    if plan.unsaved_steps and not starts:
        are = noun(plan.unsaved_steps, "is", "are")
        lines.append(
            (
                ("The last ", ""),
                (units.count(plan.unsaved_steps, "step"), "warn"),
                (f" so far {are} in no checkpoint and {are} lost. ", ""),
                ("To keep them, cancel and press ", ""),
                (key_of("save"), "key"),
                (".", ""),
            )
        )
    new = "new " if plan.is_new_branch else ""
    lines.append(
        ((f"Training continues on {new}branch ", ""), (str(plan.branch), "accent"), (".", ""))
    )
    left = len(plan.left_behind)
    behind = f" Training leaves {left:,} of them behind." if left else ""
    lines.append(((f"All checkpoints are kept.{behind}", "muted"),))
    return lines


def _exactness_lines(checkpoint: Checkpoint) -> list[tuple[Span, ...]]:
    """Returns what of the training state this checkpoint does not bring back, if anything."""
    record = checkpoint.record
    exactness = record.exactness if record is not None else None
    if exactness is None or not exactness.is_missing_state:
        return []
    lines: list[tuple[Span, ...]] = [
        (("! ", "warn"), (f"Exact resume is {clean(exactness.explained)}.", "warn"))
    ]
    inputs = [clean(pipeline.restored) for pipeline in exactness.inputs if pipeline.reason]
    return lines + [((f"  The input pipeline {words}.", "muted"),) for words in inputs]


def _compatibility_lines(
    checked: Compatibility | str | None, *, starts: bool
) -> list[tuple[Span, ...]]:
    if checked is None:
        return [(("◌ ", "busy"), ("comparing its variables with the model …", "muted"))]
    if isinstance(checked, str):
        words = "Its variables could not be compared with the model: "
        return [(("? ", "warn"), (words, "warn"), (checked, "warn"))]
    reference = clean(checked.reference)
    if not checked.mismatches:
        return [(("✓ ", "good"), (f"Its variables match those of {reference}.", ""))]
    shown = [(("  ", ""), (clean(difference), "value")) for difference in checked.listed]
    count = units.count(len(checked.mismatches), "variable")
    verb = "does" if len(checked.mismatches) == 1 else "do"
    lines: list[tuple[Span, ...]] = [
        (("✗ ", "bad"), (f"{count} {verb} not match {reference}.", "bad")),
        *shown,
    ]
    if not starts:
        lines.append((("p", "key"), (" restores the variables that match, and no others.", "")))
    return lines
