"""The answers of many runs to one request."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_tui.app.dialogs.many import name_column
from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.icons import Icon
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.run_columns import short_names
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.control.many import RunAnswer, RunOutcome

_SIGNS: Mapping[RunOutcome, Icon] = {
    RunOutcome.FAILED: Icon("✗", "bad", "failed"),
    RunOutcome.LEFT_OUT: Icon("–", "warn", "could not, and was not asked"),
    RunOutcome.WAITING: Icon("◌", "busy", "has not answered yet"),
    RunOutcome.DONE: Icon("✓", "good", "done"),
}


_ANSWER = Column("outcome", "answer", 10, align="<")
_WORDS = Column("words", "", 20, rank=1, align="<", stretch=1)


class AnswerList(ListPane[RunAnswer]):
    """Lists the answers."""

    def __init__(self, title: str, names: Mapping[Path, str], *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.title = title
        self._names = names

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the headings of the columns."""
        return (self.column_layout(width).head(),)

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit into `width`."""
        return choose((_ANSWER, name_column(self._names.values(), width), _WORDS), width)

    def note(self) -> Sequence[Span]:
        """Returns how many gave each answer."""
        counts = Counter(answer.outcome for answer in self.rows)
        spans: list[Span] = []
        for outcome, sign in _SIGNS.items():
            if counts[outcome]:
                gap = [(" · ", "faint")] if spans else []
                spans += [*gap, (f"{sign.glyph} {counts[outcome]:,} {outcome}", sign.style)]
        return spans

    def row_key(self, row: int) -> str:
        """Returns the run directory."""
        return str(self.rows[row].root)

    def cells(self, row: RunAnswer, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of one answer."""
        name = shorten_middle(self._names[row.root], layout.width_of("name"))
        return {
            "outcome": _SIGNS[row.outcome].with_word(row.outcome),
            "name": ((name, "value"),),
            "words": ((row.words, "muted"),),
        }


class AnswersScreen(Page):
    """Lists the answers, and shows the selected one in full."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "copy", tooltip="Copies all answers, separated by tabs."),
    ]
    caption = "the answers"
    AUTO_FOCUS = "#answer-list"

    def __init__(self, verb: str, answers: Sequence[RunAnswer]) -> None:
        """Makes the screen.

        Args:
            verb: What was asked for, such as `Save`.
            answers: One for each run.
        """
        super().__init__()
        self._verb = verb
        self._answers = {answer.root: answer for answer in answers}

    def compose(self) -> ComposeResult:
        """Makes the list, the selected answer and the keys."""
        yield AnswerList(self._verb.lower(), short_names([*self._answers]), id="answer-list")
        yield TextPane(id="answer")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the answers."""
        # `is_open` is true only after this handler.
        self.call_later(self._update)

    def take(self, answer: RunAnswer) -> bool:
        """Shows the answer of a run; returns whether the screen is open."""
        self._answers[answer.root] = answer
        self._update()
        return is_open(self)

    def action_copy(self) -> None:
        """Copies all answers."""
        rows = (
            "\t".join((clean(str(answer.root)), answer.outcome, answer.words))
            for answer in self._answers.values()
        )
        copy_text(self, "\n".join(rows), units.count(len(self._answers), "answer"))

    def _update(self) -> None:
        if is_open(self):
            order = list(_SIGNS)
            rows = sorted(self._answers.values(), key=lambda one: order.index(one.outcome))
            self.query_one(AnswerList).show_rows(rows)
            self._show_selected()

    @on(ListPane.Moved, "#answer-list")
    def _show_selected(self) -> None:
        selected, pane = self.query_one(AnswerList).selected, self.query_one("#answer", TextPane)
        if selected is not None:
            width = max(20, pane.inner_size[0] or self.size.width - 4)
            parts = textwrap.wrap(f"{clean(str(selected.root))}: {selected.words}", width)
            title = ((str(selected.outcome), "title"),)
            pane.show_lines([line((part, "value")) for part in parts], title)
