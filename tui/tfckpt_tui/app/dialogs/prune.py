"""Freeing disk space: what would go, by rules or by marks, why, and what that frees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.retention.rules import Decision, Plan, plan, plan_of_names
from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.screens.page import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.app.widgets.checkpoints.plan_list import PlanList
from tfckpt_tui.formats import units
from tfckpt_tui.formats.policy_input import parse_policy, rules_in_words
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.settings.config import Rules

_DEFAULT_LAST = "5"


class PlanDialog(Dialog[tuple[str, ...]]):
    """Answers with the names that go to the trash; a subclass makes the plan."""

    caption = " prune "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_plan(-1)", show=False),
        Binding("down", "scroll_plan(1)", show=False),
        Binding("pageup", "scroll_plan(-8)", show=False),
        Binding("pagedown", "scroll_plan(8)", show=False),
    ]

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(snapshot)
        self.add_class("-large")
        self._plan: Plan | None = None
        self._problem = ""

    # -- what a subclass says ----------------------------------------------------------------

    def make_plan(self) -> Plan:
        """Returns what would go.

        Raises:
            TfckptError: What is asked for makes no sense.
        """
        raise NotImplementedError

    def shown_decisions(self) -> tuple[Decision, ...]:
        """Returns what the list tells of."""
        return self._plan.decisions if self._plan is not None else ()

    def nothing(self) -> str:
        """Returns why nothing would go, where nothing would."""
        raise NotImplementedError

    # -- what it does ------------------------------------------------------------------------

    def fields(self) -> Iterable[Widget]:
        """Returns the plan."""
        return (PlanList(self.shown_decisions(), id="plan"),)

    def show(self, snapshot: RunSnapshot) -> None:
        """Plans anew when the checkpoints changed."""
        changed = snapshot.checkpoints != self.snapshot.checkpoints
        self.snapshot = snapshot
        if changed:
            self.plan_anew()

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the plan frees."""
        if self._plan is None:
            return
        count = len(self._plan.deleted)
        noun = "checkpoint goes" if count == 1 else "checkpoints go"
        yield (
            (f"{count:,} {noun} to the trash", "warn" if count else "muted"),
            (f", {units.size(self._plan.freed_bytes)} in all; ", ""),
            ("u brings them back until the trash is emptied.", "muted"),
        )
        if count:
            yield _disk(self.snapshot, self._plan.freed_bytes)

    def refusal(self) -> str:
        """Returns why nothing can go."""
        if self._problem:
            return self._problem
        return self.nothing() if self._plan is None or not self._plan.deleted else ""

    def choices(self) -> list[Choice[tuple[str, ...]]]:
        """Returns no and yes."""
        names = tuple(c.name for c in self._plan.deleted) if self._plan is not None else ()
        return [Choice("n", "cancel", None), Choice("y", "move to the trash", names, "warning")]

    def action_scroll_plan(self, rows: int) -> None:
        """Scrolls the plan, wherever the focus is."""
        self.query_one(PlanList).scroll_rows(rows)

    def plan_anew(self) -> None:
        """Makes the plan, and shows it."""
        try:
            self._plan, self._problem = self.make_plan(), ""
        except TfckptError as error:
            self._plan, self._problem = None, clean(str(error))
        if is_open(self):
            self.query_one(PlanList).show_decisions(self.shown_decisions())
            self.update_text()


class PruneMarkedDialog(PlanDialog):
    """Exactly the marked checkpoints go, but for those that must stay."""

    caption = " prune what is marked "

    def __init__(self, snapshot: RunSnapshot, marked: frozenset[str]) -> None:
        super().__init__(snapshot)
        self._marked = marked
        self.plan_anew()

    def make_plan(self) -> Plan:
        """Returns the plan for those of the marked ones that are still there."""
        there = {checkpoint.name for checkpoint in self.snapshot.checkpoints}
        return plan_of_names(self.snapshot.checkpoints, self._marked & there)

    def shown_decisions(self) -> tuple[Decision, ...]:
        """Returns the marked ones alone: all others stay."""
        decisions = super().shown_decisions()
        return tuple(d for d in decisions if d.checkpoint.name in self._marked)

    def nothing(self) -> str:
        """Returns why nothing would go."""
        return "All that is marked must stay."


class PruneDialog(PlanDialog):
    """What no rule keeps goes; the plan follows the rules while they are typed."""

    def __init__(self, snapshot: RunSnapshot, first: Rules) -> None:
        """Makes the dialog.

        Args:
            snapshot: Of the run.
            first: What it begins with; where there is none, with a rule of ours.
        """
        super().__init__(snapshot)
        self._source = first.source
        self._hours = first.policy.keep_every_hours
        self._rules = rules_in_words(first.policy)
        if first.policy.is_empty:
            self._source, self._rules = "", {**self._rules, "keep-last": _DEFAULT_LAST}
        self._first_rules = dict(self._rules)
        self.plan_anew()

    def fields(self) -> Iterable[Widget]:
        """Returns the rules and the plan."""
        hints = {
            "keep-last": ("keep the last", "how many"),
            "keep-every": ("keep one every", "steps"),
            "keep-best": ("keep the best by", "loss:min:3"),
        }
        inputs = []
        for name, (title, hint) in hints.items():
            field = Input(self._rules[name], placeholder=hint, id=name, select_on_focus=True)
            field.border_title = title
            inputs.append(field)
        return (Horizontal(*inputs, id="rules"), *super().fields())

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns whose rules these are, and what the plan frees."""
        if self._source and self._rules == self._first_rules:
            yield ((f"By {self._source}.", "muted"),)
        if self._hours is not None:
            yield ((f"One in every {self._hours:g} h is kept too.", "muted"),)
        yield from super().text()

    def make_plan(self) -> Plan:
        """Returns what no rule keeps."""
        rules = self._rules
        policy = parse_policy(rules["keep-last"], rules["keep-every"], rules["keep-best"])
        policy = replace(policy, keep_every_hours=self._hours)
        return plan(self.snapshot.checkpoints, policy)

    def nothing(self) -> str:
        """Returns why nothing would go."""
        return "Nothing would go by these rules."

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Plans anew by the rules as they stand in the fields."""
        rules = {field.id or "": field.value for field in self.query(Input)}
        if rules != self._rules:
            self._rules = rules
            self.plan_anew()


def _disk(snapshot: RunSnapshot, freed: int) -> tuple[Span, ...]:
    """Says what all checkpoints take before and after, and when the disk is freer."""
    after = max(0, snapshot.disk_used - freed)
    spans: list[Span] = [
        ("Checkpoints take ", ""),
        (units.size(snapshot.disk_used), "value"),
        (" now and ", ""),
        (units.size(after), "value"),
        (" after it", ""),
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
