"""Freeing disk space: rules, the plan that follows from them, and what it frees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.catalog.retention import Decision, Plan, plan
from tfckpt_trainer.errors import TfckptError
from tfckpt_tui import humane
from tfckpt_tui.config import Rules
from tfckpt_tui.policy_input import parse_policy, rules_in_words
from tfckpt_tui.screens.dialog import Choice, Dialog
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.painting import Span
from tfckpt_tui.widgets.plan_list import PlanList

_DEFAULT_LAST = "5"


class PruneDialog(Dialog[tuple[str, ...]]):
    """Answers with the names that go to the trash."""

    caption = " prune "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_plan(-1)", show=False),
        Binding("down", "scroll_plan(1)", show=False),
        Binding("pageup", "scroll_plan(-8)", show=False),
        Binding("pagedown", "scroll_plan(8)", show=False),
    ]

    def __init__(self, snapshot: RunSnapshot, first: Rules) -> None:
        """Makes the dialog.

        Args:
            snapshot: Of the run.
            first: What it begins with; where there is none, with a rule of ours.
        """
        super().__init__(snapshot)
        self.add_class("-large")
        self._source = first.source
        self._hours = first.policy.keep_every_hours
        self._rules = rules_in_words(first.policy)
        if first.policy.is_empty:
            self._source, self._rules = "", {**self._rules, "keep-last": _DEFAULT_LAST}
        self._first_rules = dict(self._rules)
        self._plan: Plan | None = None
        self._problem = ""
        self._replan()

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
        return (Horizontal(*inputs, id="rules"), PlanList(self._decisions, id="plan"))

    def show(self, snapshot: RunSnapshot) -> None:
        """Plans anew when the checkpoints changed."""
        changed = snapshot.checkpoints != self.snapshot.checkpoints
        self.snapshot = snapshot
        if changed:
            self._replan()
            self._show_plan()

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the plan frees."""
        if self._source and self._rules == self._first_rules:
            yield ((f"By {self._source}.", "muted"),)
        if self._hours is not None:
            yield ((f"One in every {self._hours:g} h is kept too.", "muted"),)
        if self._plan is None:
            return
        count = len(self._plan.deleted)
        noun = "checkpoint goes" if count == 1 else "checkpoints go"
        yield (
            (f"{count:,} {noun} to the trash", "warn" if count else "muted"),
            (f", {humane.size(self._plan.freed_bytes)} in all; ", ""),
            ("u brings them back until the trash is emptied.", "muted"),
        )

    def refusal(self) -> str:
        """Returns what is wrong with the rules."""
        if self._problem:
            return self._problem
        nothing = self._plan is None or not self._plan.deleted
        return "Nothing would go by these rules." if nothing else ""

    def choices(self) -> list[Choice[tuple[str, ...]]]:
        """Returns no and yes."""
        names = tuple(c.name for c in self._plan.deleted) if self._plan is not None else ()
        return [Choice("n", "cancel", None), Choice("y", "move to the trash", names, "warning")]

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Plans anew by the rules as they stand in the fields."""
        rules = {field.id or "": field.value for field in self.query(Input)}
        if rules != self._rules:
            self._rules = rules
            self._replan()
            self._show_plan()

    def action_scroll_plan(self, rows: int) -> None:
        """Scrolls the plan, wherever the focus is."""
        self.query_one(PlanList).scroll_rows(rows)

    def _replan(self) -> None:
        rules = self._rules
        try:
            policy = parse_policy(rules["keep-last"], rules["keep-every"], rules["keep-best"])
            policy = replace(policy, keep_every_hours=self._hours)
            self._plan = plan(self.snapshot.checkpoints, policy)
            self._problem = ""
        except TfckptError as error:
            self._plan, self._problem = None, clean(str(error))

    def _show_plan(self) -> None:
        if self.is_mounted:
            self.query_one(PlanList).show_decisions(self._decisions)
            self.update_text()

    @property
    def _decisions(self) -> tuple[Decision, ...]:
        return self._plan.decisions if self._plan is not None else ()
