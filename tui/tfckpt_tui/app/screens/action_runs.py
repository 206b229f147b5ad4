"""The runs of users' own actions: a list, and the output of the selected one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key

from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import Column, Layout
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, Offer, to_paste
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import as_seen, clean
from tfckpt_tui.monitor.own_actions import ActionQueue, ActionRun, ActionState
from tfckpt_tui.settings.config import config_path
from tfckpt_tui.settings.own_actions import ActionSection

_REFRESH_SECONDS = 0.25

_LONGEST_LINE = 1000
"""Characters of a line of output that are shown."""

_STYLES = {
    ActionState.WAITING: "muted",
    ActionState.RUNNING: "busy",
    ActionState.DONE: "good",
    ActionState.FAILED: "bad",
    ActionState.CANCELLED: "warn",
}

_PURPOSE = (
    "No action was run since the app was opened. An action is a command that you run for a "
    "checkpoint, such as an evaluation. Its numbers become columns."
)
_EXAMPLE = """\
[actions.stats]
command = "tfckpt-tui inspect {run} {name} --stats"
key = "a"
"""
_EXAMPLE_OF_RUN = """\
[actions.disk]
command = "du -sh {run}"
on = "run"
key = "a"
"""

_COLUMNS = (
    Column("action", "action", 12, align="<", stretch=1),
    Column("for", "for", 14, rank=1, align="<", stretch=1),
    Column("state", "state", 9, align="<"),
    Column("took", "took", 9, rank=2),
    Column("exit", "exit", 4, rank=3),
    Column("result", "result", 16, align="<", stretch=3),
)


class ActionRunList(ListPane[ActionRun]):
    """Shows the runs of actions, newest first."""

    title = "runs of your actions"
    columns = _COLUMNS

    def note(self) -> Sequence[Span]:
        """Returns how many wait."""
        waiting = sum(run.state is ActionState.WAITING for run in self.rows)
        return ((f"{waiting:,}", "value"), (" waiting", "label")) if waiting else ()

    def row_key(self, row: int) -> str:
        """Returns its number."""
        return str(self.rows[row].number)

    def cells(self, row: ActionRun, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one run."""
        del layout
        outcome = row.outcome
        seconds = outcome.seconds if outcome is not None else None
        if row.state is ActionState.RUNNING and row.began_at is not None:
            seconds = max(0.0, time.time() - row.began_at)
        code = outcome.exit_code if outcome is not None else None
        result_style = "bad" if row.state is ActionState.FAILED else "value"
        return {
            "action": ((row.action, "strong"),),
            "for": ((clean(", ".join(row.names)) or "the run", "value"),),
            "state": ((row.state.value, _STYLES[row.state]),),
            "took": (("" if seconds is None else units.duration(seconds), "muted"),),
            "exit": (("" if code is None else str(code), "muted"),),
            "result": ((_result_words(row), result_style),),
        }


class ActionRunsScreen(Page):
    """Shows the runs of users' own actions and what they print; cancels them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "x", "cancel", "cancel", tooltip="Ends the command of the selected run, or its wait."
        ),
        Binding(
            "n",
            "switch_each_new",
            "each new",
            tooltip="Runs the actions with each_new for new checkpoints, or no longer.",
        ),
        Binding("A", "close", "Back", show=False),
    ]
    caption = "your own actions"
    AUTO_FOCUS = "#action-run-list"

    def __init__(
        self,
        queue: ActionQueue,
        sections: Mapping[str, ActionSection],
        each_new: bool,
        set_each_new: Callable[[bool], None],
    ) -> None:
        """Makes the screen.

        Args:
            queue: Runs the actions.
            sections: The configured actions by name.
            each_new: Whether actions with `each_new` run for new checkpoints.
            set_each_new: Changes that.
        """
        super().__init__()
        self._queue = queue
        self._sections = sections
        self._each_new = each_new
        self._set_each_new = set_each_new
        self._shown: tuple[int, int] | None = None
        self._followed: int | None = None
        self._has_moved = False

    def compose(self) -> ComposeResult:
        """Makes the list, the output and the keys."""
        yield ActionRunList(id="action-run-list")
        yield TextPane(id="action-output")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the runs, and follows them."""
        self.set_interval(_REFRESH_SECONDS, self._update)
        self.call_later(self._update)

    def shown_bindings(self) -> list[Binding]:
        """Returns the keys that do something now."""
        selected = self.query_one(ActionRunList).selected
        can_do = {
            "cancel": selected is not None and _is_open(selected),
            "switch_each_new": any(section.each_new for section in self._sections.values()),
        }
        return [b for b in super().shown_bindings() if can_do.get(b.action, True)]

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says until an action was run: how to run or configure one."""
        if self._queue.runs:
            return None
        # Without a checkpoint, one for the run alone can be tried.
        example = _EXAMPLE_OF_RUN if self.why_impossible("inspect") else _EXAMPLE
        place = clean(str(config_path() or "the configuration file"))
        return EmptyPage(
            purpose=_PURPOSE,
            offers=tuple(self._configured())
            or (to_paste(self, example, f"Write it into {place}, and open the run again."),),
            keeps=("switch_each_new",),
        )

    def advised_actions(self) -> Sequence[str]:
        """Returns the actions of which the page tells the keys."""
        return () if self._queue.runs else tuple(self._sections)

    def _configured(self) -> Iterator[Offer]:
        """Yields the configured actions with their keys, and why one cannot be run now."""
        for name, section in self._sections.items():
            why_not = self.why_impossible(name)
            each = "It runs for each new checkpoint." if section.each_new and self._each_new else ""
            yield Offer(
                text=clean(section.title or section.command),
                told=why_not or each,
                key="" if why_not else format_key(section.key),
                label=name,
            )

    def action_cancel(self) -> None:
        """Cancels the selected run."""
        selected = self.query_one(ActionRunList).selected
        if selected is not None and _is_open(selected):
            self._queue.cancel(selected.number)
            self._update()

    def action_switch_each_new(self) -> None:
        """Runs actions for new checkpoints, or no longer."""
        if any(section.each_new for section in self._sections.values()):
            self._each_new = not self._each_new
            self._set_each_new(self._each_new)
            what = "on" if self._each_new else "off"
            self.notify(f"each_new is {what} until the app is closed.", markup=False)

    @on(ListPane.Moved, "#action-run-list")
    def _take_move(self) -> None:
        self._has_moved |= self._is_elsewhere()
        self._update()

    def _update(self) -> None:
        if not is_open(self):
            return
        runs = self.query_one(ActionRunList)
        # The message of a move may come after this.
        self._has_moved |= self._followed is not None and self._is_elsewhere()
        runs.show_rows(self._queue.runs)
        if not self._has_moved:
            self._follow(runs)
        if runs.selected is not None:
            self._show_output(runs.selected)
        self.update_keys()

    def _is_elsewhere(self) -> bool:
        """Whether another run is selected than the one that the page followed."""
        selected = self.query_one(ActionRunList).selected
        return selected is not None and selected.number != self._followed

    def _follow(self, runs: ActionRunList) -> None:
        """Selects the run that goes on, until the user selects one."""
        states = [run.state for run in runs.rows]
        if ActionState.RUNNING in states:
            row = states.index(ActionState.RUNNING)
            self._followed = runs.rows[row].number
            if row != runs.cursor:
                runs.move_to(row)

    def _show_output(self, run: ActionRun) -> None:
        dropped, output = self._queue.output(run.number)
        shown = run.number, dropped + len(output)
        pane = self.query_one("#action-output", TextPane)
        was_at_end = pane.top + pane.visible_rows() >= pane.row_count()
        is_other = self._shown is None or self._shown[0] != run.number
        if shown == self._shown and not run.outcome:
            return
        self._shown = shown
        lines = [line((text, "value")) for text in shown_lines(output)]
        if run.outcome is not None and run.outcome.problem:
            width = max(20, pane.inner_size[0])
            lines += [line((part, "bad")) for part in wrap(clean(run.outcome.problem), width)]
        note = ((f"after {units.size(dropped)}", "label"),) if dropped else ()
        title = "output" if lines else "no output yet" if run.outcome is None else "no output"
        pane.show_lines(lines, ((title, "title"),), note)
        if was_at_end or is_other:
            pane.scroll_rows(len(lines))


def shown_lines(output: bytes) -> list[str]:
    """Returns the lines of an output as a terminal leaves them, safe to show."""
    lines = output.decode(errors="replace").removesuffix("\n").split("\n")
    return [as_seen(one)[:_LONGEST_LINE] for one in lines] if output else []


def _is_open(run: ActionRun) -> bool:
    return run.state in {ActionState.WAITING, ActionState.RUNNING}


def _result_words(run: ActionRun) -> str:
    outcome = run.outcome
    if outcome is None:
        return ""
    values = (f"{name} {units.metric(value)}" for name, value in outcome.values.items())
    return clean(outcome.problem) or ", ".join(values)
