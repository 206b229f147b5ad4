"""The hyperparameters of the run: a list, and all that is known of the selected one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, number
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app.protocols import words_of
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import Layout, choose
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, to_paste, wrapped
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.app.widgets.run.events import event_line
from tfckpt_tui.formats.hyperparameters import COLUMNS, changed_words, planned_words, title
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.hyperparameters import (
    HyperparametersOfRun,
    concerns,
    hyperparameters_of,
)

_NONE = "A hyperparameter is a value that can be changed on all workers while the run trains."
_DECLARATION = """\
rate = tf.Variable(0.001, trainable=False)
run.tunable("learning_rate", rate, low=0.0)"""
_DECLARED = "In the script, before the loop; the step reads `rate`. Then it can be changed here."


class HyperparameterList(ListPane[Hyperparameter]):
    """Shows the hyperparameters in the order in which they were found."""

    title = "hyperparameters"
    declared = COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._found: HyperparametersOfRun | None = None

    def show_found(self, found: HyperparametersOfRun) -> None:
        """Shows what is known now."""
        self._found = found
        self.show_rows(tuple(found.values.values()))

    def note(self) -> Sequence[Span]:
        """Returns whose values they are, unless the trainer tells them."""
        found = self._found
        if found is None or found.checkpoint is None:
            return ()
        return (
            ("of ", "label"),
            (found.checkpoint, "value"),
            (", where a start continues", "label"),
        )

    def row_key(self, row: int) -> str:
        """Returns the name."""
        return self.rows[row].name

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit, without that of clauses if all names say what they are."""
        has_clauses = any(row.what for row in self.rows)
        return choose([c for c in self.columns if has_clauses or c.key != "what"], width)


class HyperparametersScreen(Page):
    """Shows the hyperparameters, and changes the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "change",
            "change",
            tooltip="Asks for a new value, and from which step on. Says what follows, and asks.",
        ),
        Binding("H", "close", "Back", show=False),
    ]
    caption = "the hyperparameters"
    AUTO_FOCUS = "#hyperparameter-list"

    def __init__(
        self,
        snapshot: RunSnapshot,
        change: Callable[[Hyperparameter], None],
        why_not: Callable[[RunSnapshot], str | Advice],
    ) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            change: Changes one, after asking.
            why_not: Returns why none can be changed, as sentences; empty if they can.
        """
        super().__init__()
        self._snapshot = snapshot
        self._change = change
        self._why_not = why_not
        self._found: HyperparametersOfRun | None = None

    def compose(self) -> ComposeResult:
        """Makes the list, the selected one and the keys."""
        yield HyperparameterList(id="hyperparameter-list")
        yield TextPane(id="hyperparameter")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def shown_bindings(self) -> list[Binding]:
        """Returns the keys, without the one that changes a value if that is impossible now."""
        can_change = self._selected is not None and not self._why_not(self._snapshot)
        return [b for b in super().shown_bindings() if b.action != "change" or can_change]

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says if no hyperparameter is known."""
        found = self._found
        if found is None or found.values:
            return None
        is_told = found.is_live and not found.is_starting
        declared = to_paste(self, _DECLARATION, _DECLARED)
        return EmptyPage(
            purpose=_NONE,
            advice=(found.why_none, *self.launch_advice()),
            offers=(declared,) if is_told else (),
        )

    def advised_actions(self) -> Sequence[str]:
        """Returns the actions whose keys the page names where it says why none can be changed."""
        why_not = self._why_not(self._snapshot)
        return why_not.app_actions if isinstance(why_not, Advice) else ()

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        head = snapshot.head
        record = head.record if head is not None else None
        self._found = hyperparameters_of(snapshot, snapshot.start, record)
        self.query_one(HyperparameterList).show_found(self._found)
        self._update()
        self.update_keys()

    def action_change(self) -> None:
        """Changes the selected hyperparameter, after asking."""
        selected, why_not = self._selected, self._why_not(self._snapshot)
        if why_not:
            self.notify(words_of(self, why_not), severity="warning", markup=False)
        elif selected is not None:
            self._change(selected)

    @property
    def _selected(self) -> Hyperparameter | None:
        return self.query_one(HyperparameterList).selected

    @on(ListPane.Moved, "#hyperparameter-list")
    def _update(self) -> None:
        pane, selected = self.query_one("#hyperparameter", TextPane), self._selected
        width = max(20, pane.inner_size[0] or self.size.width - 4)
        lines = list(_facts(selected)) if selected is not None else []
        why_not = words_of(self, self._why_not(self._snapshot))
        lines += [line((part, "warn")) for part in wrapped(why_not, width)]
        if selected is not None:
            log = reversed(self._snapshot.event_log)
            changes = [event_line(e, width) for e in log if concerns(e, selected.name)]
            lines += [StyledLine(), *changes] if changes else []
        pane.show_lines(lines, ((title(selected), "title"),) if selected is not None else ())


def _facts(one: Hyperparameter) -> Iterator[StyledLine]:
    """Yields what is known of one hyperparameter."""
    yield _fact("value", f"{number(one.value)} at step {one.step:,}")
    yield _fact("in the script", number(one.script_value))
    yield _fact("can be", one.bounds.words)
    if one.schedule:
        until = f", again after step {one.until:,}" if one.until is not None else ""
        yield _fact("follows", f"{clean(one.schedule)}{until}")
    if one.changed_at is not None:
        yield _fact("changed", changed_words(one))
    planned = one.planned
    if planned is not None:
        over = f", from step {planned.begins:,} on" if planned.steps else ""
        by = f", by {clean(planned.by)}" if planned.by else ""
        yield _fact("planned", f"{planned_words(planned)}{over}{by}")


def _fact(name: str, value: str) -> StyledLine:
    return line((f"{name:<15}", "label"), (value, "value"))
