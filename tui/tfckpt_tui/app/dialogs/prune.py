"""Prune dialogs: which checkpoints go to the trash, why, and how much space that frees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.saved_model import NEEDED, VARIABLES
from tfckpt_trainer.catalog.retention.own_rules import recorded_verdicts
from tfckpt_trainer.catalog.retention.plan import Prunable, RetentionPlan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.rules import RuleFields
from tfckpt_trainer.catalog.scan.order import find_order_doubt
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.scripts.script_objects import name_of
from tfckpt_tui.app.dialogs.dialog import Choice, ListDialog, field_rows
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.columns import Column, Layout
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import metric_text
from tfckpt_tui.formats.policy_input import parse_policy, policy_texts, rule_fields
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.settings.config import DefaultPolicy

_DEFAULT_POLICY = Policy(keep_last=5)
_NO_PLAN = RetentionPlan((), {}, {})

_COLUMNS = (
    Column("decision", "", 8, align="<"),
    Column("name", "checkpoint", 14, align="<", stretch=1),
    Column("step", "step", 9, rank=2),
    Column("loss", "loss", 8, rank=3),
    Column("size", "size", 8, rank=1),
    Column("reason", "why", 31, align="<", stretch=2),
)


class PlanList(ListPane[Checkpoint]):
    """Shows the decisions, newest checkpoint first, with a glyph and a word each."""

    has_cursor = False
    title = "plan"
    columns = _COLUMNS

    _plan = _NO_PLAN

    def show_plan(self, plan: RetentionPlan) -> None:
        """Lists the decisions of a plan."""
        self._plan = plan
        self.show_rows(plan.checkpoints)

    def note(self) -> Sequence[Span]:
        """Returns how many are pruned and how many stay."""
        deleted = len(self._plan.deleted)
        kept = self.row_count() - deleted
        return (
            (f"− {deleted:,} to the trash", "warn"),
            (" · ", "faint"),
            (f"{kept:,} stay", "label"),
        )

    def cells(self, row: Checkpoint, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one decision."""
        del layout
        checkpoint, keep, reason = self._plan.decision(row)
        value = "muted" if keep else "value"
        has_loss = "loss" in checkpoint.metrics
        loss_style = "bad" if "loss" in checkpoint.not_finite else value
        return {
            "decision": (("● stays", "muted"),) if keep else (("− goes", "warn"),),
            "name": ((clean(checkpoint.name), value),),
            "step": ((f"{checkpoint.step:,}" if checkpoint.step is not None else "–", value),),
            "loss": ((metric_text(checkpoint, "loss") if has_loss else "–", loss_style),),
            "size": ((units.size(checkpoint.size), value),),
            "reason": ((clean(reason), value),),
        }


class PlanDialog(ListDialog[tuple[str, ...]]):
    """Base of the prune dialogs; answers with the names to move to the trash."""

    caption = " prune "

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(snapshot)
        self._plan = _NO_PLAN
        self._names: tuple[str, ...] = ()
        self._problem = ""

    # -- for subclasses ------------------------------------------------------------------

    def make_plan(self) -> RetentionPlan:
        """Returns the plan.

        Raises:
            TfckptError: The input is invalid.
        """
        raise NotImplementedError

    def look_at_checkpoints(self) -> None:
        """Finds what the plans have in common."""

    def nothing(self) -> str:
        """Returns why the plan is empty."""
        raise NotImplementedError

    # -- dialog --------------------------------------------------------------------------

    def fields(self) -> Iterable[Widget]:
        """Returns the plan."""
        plan_list = PlanList(id="plan")
        plan_list.show_plan(self._plan)
        return (plan_list,)

    def show(self, snapshot: RunSnapshot) -> None:
        """Makes a new plan if the checkpoints changed."""
        before = self.snapshot.checkpoints, _in_use(self.snapshot)
        self.snapshot = snapshot
        if before != (snapshot.checkpoints, _in_use(snapshot)):
            self.look_at_checkpoints()
            self.update_plan()

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the plan frees."""
        if self._problem:
            return
        count = len(self._plan.deleted)
        if not count:
            yield (("No checkpoint goes to the trash.", "muted"),)
            return
        noun, pronoun = ("checkpoint goes", "it") if count == 1 else ("checkpoints go", "them")
        yield (
            (f"{count:,} {noun} to the trash", "warn"),
            (f", {units.size(self._plan.freed_bytes)} in all; ", ""),
            (key_of(self, "undo"), "key"),
            (f" brings {pronoun} back until the trash is emptied.", "muted"),
        )
        yield _disk(self.snapshot, self._plan.freed_bytes)

    def refusal(self) -> str:
        """Returns why nothing can be pruned."""
        return self._problem or ("" if self._plan.deleted else self.nothing())

    def choices(self) -> list[Choice[tuple[str, ...]]]:
        """Returns cancel and prune."""
        go = Choice("y", "move to the trash", self._names, "warning")
        return [Choice("n", "cancel", None), go]

    def update_plan(self) -> None:
        """Makes and shows a new plan."""
        try:
            self._plan, self._problem = self.make_plan(), ""
        except TfckptError as error:
            self._plan, self._problem = _NO_PLAN, clean(str(error))
        self._names = tuple([c.name for c in self._plan.deleted])
        if is_open(self):
            self.query_one(PlanList).show_plan(self._plan)
            self.update_text()


class PruneMarkedDialog(PlanDialog):
    """Prunes exactly the marked checkpoints; protected ones stay."""

    caption = " prune marked checkpoints "

    def __init__(self, snapshot: RunSnapshot, marked: frozenset[str]) -> None:
        super().__init__(snapshot)
        self._marked = marked
        if len(marked) == 1:
            self.caption = " prune 1 checkpoint "
        self.update_plan()

    def make_plan(self) -> RetentionPlan:
        """Returns the plan for the marked checkpoints that still exist."""
        there = {checkpoint.name for checkpoint in self.snapshot.checkpoints}
        info = self.snapshot.info
        return plan_of_names(
            self.snapshot.checkpoints,
            self._marked & there,
            in_use=_in_use(self.snapshot),
            own=recorded_verdicts(info.retention) if info is not None else (),
        )

    def nothing(self) -> str:
        """Returns why the plan is empty."""
        there = self._marked.intersection(c.name for c in self.snapshot.checkpoints)
        if len(self._marked) == 1:
            what = "protected" if there else "in the trash, or was deleted"
            return f"This checkpoint is {what}."
        what = "protected" if there else "in the trash, or were deleted"
        return f"All marked checkpoints are {what}."


class PruneDialog(PlanDialog):
    """Prunes what no rule keeps; the plan follows the rules while they are typed."""

    def __init__(self, snapshot: RunSnapshot, first: DefaultPolicy) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            first: The rules that the fields show first; if there are none, a default rule.
        """
        super().__init__(snapshot)
        self._first = first
        self._policy = first.policy
        if first.policy.is_empty and first.is_known:
            self._policy = _DEFAULT_POLICY
        self._first_texts = policy_texts(self._policy)
        self._texts = dict(self._first_texts)
        self.look_at_checkpoints()
        self.update_plan()

    def look_at_checkpoints(self) -> None:
        """Finds what is the same for all rules: each key in a field changes them."""
        self._prunable = Prunable(self.snapshot.checkpoints, _in_use(self.snapshot))
        self._doubt = find_order_doubt(self.snapshot.checkpoints)

    def fields(self) -> Iterable[Widget]:
        """Returns one input for each rule, and the plan."""
        inputs = []
        for rule in rule_fields():
            field = Input(
                self._texts[rule.key],
                placeholder=f"e.g. {rule.example}" if ":" in rule.example else rule.example,
                id=_field_id(rule),
                select_on_focus=True,
            )
            field.border_title = rule.title
            inputs.append(field)
        return (field_rows(inputs, id="rules"), *super().fields())

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns where the rules come from, and what the plan frees."""
        if not self._first.is_known:
            yield ((f"The trainer's rules are not used: {clean(self._first.source)}.", "warn"),)
        elif not self._first.policy.is_empty and self._texts == self._first_texts:
            yield ((f"By {clean(self._first.source)}.", "muted"),)
        elif self._policy.own:
            names = ", ".join(map(name_of, self._policy.own))
            yield ((f"Rules of the script always apply: {clean(names)}.", "muted"),)
        doubt, guess = self._doubt, self._plan.order_guess
        if guess is not None:
            yield ((clean(guess.words), "warn"),)
        elif doubt is not None and self._plan.deleted:
            yield ((clean(f"{doubt.words} {doubt.reservation}, pin it first."), "warn"),)
        yield from super().text()

    def make_plan(self) -> RetentionPlan:
        """Returns what no rule keeps."""
        # Unchanged fields mean the first policy itself, whatever the fields can show of it.
        changed = self._texts != self._first_texts
        policy = parse_policy(self._texts).with_own(self._policy.own) if changed else self._policy
        return self._prunable.plan(policy)

    def nothing(self) -> str:
        """Returns why the plan is empty."""
        return "These rules keep all checkpoints."

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Makes the plan for the rules in the fields."""
        texts_by_field = {field.id: field.value for field in self.query(Input)}
        texts = {rule.key: texts_by_field[_field_id(rule)] for rule in rule_fields()}
        if texts != self._texts:
            self._texts = texts
            self.update_plan()


def _in_use(snapshot: RunSnapshot) -> dict[str, str]:
    """Returns the checkpoint that a SavedModel needs, with the reason."""
    is_saved_model = any(diagnostic.kind == "saved-model" for diagnostic in snapshot.diagnostics)
    return {VARIABLES: NEEDED} if is_saved_model else {}


def _field_id(rule: RuleFields) -> str:
    return rule.option.removeprefix("--")


def _disk(snapshot: RunSnapshot, freed: int) -> tuple[Span, ...]:
    """Returns the disk usage before and after the prune."""
    after = max(0, snapshot.disk_used - freed)
    spans: list[Span] = [
        ("Checkpoints take ", ""),
        (units.size(snapshot.disk_used), "value"),
        (" now and ", ""),
        (units.size(after), "value"),
        (" after this", ""),
    ]
    if snapshot.disk_free is None:
        return (*spans, (".", ""))
    return (
        *spans,
        ("; the disk has ", ""),
        (units.size(snapshot.disk_free), "value"),
        (" free, and ", ""),
        (units.size(snapshot.disk_free + freed), "value"),
        (" once the trash is emptied.", ""),
    )
