"""The dialogs of a request to many runs: its value, and what follows for each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.app.dialogs.dialog import AnswerT, Choice, Dialog, ListDialog
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, shorten_middle
from tfckpt_tui.formats.run_columns import short_names
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.many import ManyPlan, RunPlan


def _no_run() -> RunSnapshot:
    """Returns the snapshot of a dialog that is about no single run."""
    return RunSnapshot(at=time.time(), root=Path())


class ValueDialog(Dialog[tuple[AnswerT]]):
    """Asks for one value; answers with it as a tuple, because it may be None."""

    AUTO_FOCUS = "#value"

    def __init__(
        self, caption: str, title: str, hint: str, words: str, parse: Callable[[str], AnswerT]
    ) -> None:
        """Makes the dialog.

        Args:
            caption: The title in the frame.
            title: What the field is.
            hint: An example, in the empty field.
            words: What is done with the value.
            parse: Reads what was typed; raises a `TfckptError` that says what is wrong.
        """
        super().__init__(_no_run())
        self.caption = f" {caption} "
        self._title, self._hint, self._words, self._parse = title, hint, words, parse
        self._typed = ""
        self._has_begun = False

    def fields(self) -> Iterable[Widget]:
        """Returns the field."""
        field = Input(placeholder=self._hint, id="value")
        field.border_title = self._title
        return (field,)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is done with the value."""
        yield ((self._words, ""),)

    def refusal(self) -> str:
        """Returns what is wrong with the value."""
        try:
            self._parse(self._typed)
        except TfckptError as error:
            return clean(str(error))
        return ""

    def shown_refusal(self) -> str:
        """Returns the refusal, unless nothing was typed yet."""
        return self.refusal() if self._has_begun else ""

    def choices(self) -> list[Choice[tuple[AnswerT]]]:
        """Returns cancel and go on."""
        answer = None if self.refusal() else (self._parse(self._typed),)
        return [Choice("n", "cancel", None), Choice("y", "see what follows", answer, "primary")]

    def action_submit(self) -> None:
        """Goes on, or says what is wrong."""
        self._has_begun = True
        super().action_submit()

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads what was typed."""
        self._typed = self.query_one("#value", Input).value.strip()
        self._has_begun = self._has_begun or bool(self._typed)
        self.update_text()


class RunPlanList(ListPane[RunPlan]):
    """Shows what follows for each run."""

    has_cursor = False
    title = "plan"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._names: Mapping[Path, str] = {}

    def show_plan(self, made: ManyPlan) -> None:
        """Shows a plan; runs that cannot carry it out come first."""
        self._names = short_names([run.root for run in made.runs])
        self.show_rows(sorted(made.runs, key=lambda run: run.act is not None))

    def why_empty(self) -> str:
        """Returns that there is no plan yet."""
        return "asking the runs …"

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the headings of the columns."""
        return (self.column_layout(width).head(),) if self.rows else ()

    def column_layout(self, width: int) -> Layout:
        """Returns the columns: names, and what follows."""
        return choose((name_column(self._names.values(), width), _FOLLOWS), width)

    def cells(self, row: RunPlan, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of one run."""
        name = shorten_middle(self._names[row.root], layout.width_of("name"))
        if row.act is None:
            return {"name": ((name, "muted"),), "words": ((f"✗ {row.words}", "warn"),)}
        return {"name": ((name, "value"),), "words": ((row.words, "value"),)}


_FOLLOWS = Column("words", "what follows", 20, align="<", stretch=1)


def name_column(names: Iterable[str], width: int) -> Column:
    """Returns the column of the names of runs, at most half as wide as the list."""
    longest = max(map(cell_len, names), default=0)
    return Column("name", "run", max(8, min(longest, width // 2)), align="<")


class ManyDialog(ListDialog[ManyPlan]):
    """Shows what a request does to each run, and asks; answers with the plan.

    It opens before the plan is made, so that keys typed meanwhile are for it.
    """

    def __init__(self, verb: str) -> None:
        """Makes the dialog.

        Args:
            verb: What the request does, such as `Save`.
        """
        super().__init__(_no_run())
        self._verb = verb
        self.caption = f" {verb.lower()} "
        self._made: ManyPlan | None = None

    def show_plan(self, made: ManyPlan) -> None:
        """Shows the plan, unless the dialog was closed."""
        self._made = made
        if is_open(self):
            self.query_one(RunPlanList).show_plan(made)
            self.update_text()

    def fields(self) -> Iterable[Widget]:
        """Returns the plan."""
        return (RunPlanList(id="plan"),)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns on how many runs, and why not on others."""
        if self._made is not None:
            yield ((self._made.words, "strong"),)

    def refusal(self) -> str:
        """Returns why no run carries it out."""
        if self._made is None:
            return "There is no plan yet."
        return "" if self._made.possible else "No run can do this now."

    def shown_refusal(self) -> str:
        """Returns the refusal, unless the plan is being made."""
        return self.refusal() if self._made is not None else ""

    def choices(self) -> list[Choice[ManyPlan]]:
        """Returns cancel and the request."""
        return [
            Choice("n", "cancel", None),
            Choice("y", self._verb.lower(), self._made, "warning"),
        ]
