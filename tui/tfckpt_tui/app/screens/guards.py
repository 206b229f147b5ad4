"""The guards of the run: a list, and what the selected one did and would have done."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.guards.replay import Replay
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import GuardSource
from tfckpt_tui.app.dialogs.guard_rule import replay_lines, replay_words
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, Offer
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.guards import (
    COLUMNS,
    GuardOfRun,
    GuardsOfRun,
    read_guards,
    replay_each,
    suggested_guards,
)

_READ_SECONDS = 15.0
"""After so long the guards are read again: `config.toml` may have changed."""

_SHOWN_FIRINGS = 50

_REPLAYED = Column("replay", "replayed", 8, rank=2)


class GuardList(ListPane[GuardOfRun]):
    """Shows the guards of the trainer, then those that its next start takes."""

    title = "guards"
    declared = COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._replays: Mapping[str, Replay] = {}
        self._busy = "reading …"

    def show_guards(
        self, guards: Sequence[GuardOfRun], replays: Mapping[str, Replay], busy: str
    ) -> None:
        """Shows guards.

        Args:
            guards: The guards.
            replays: What each would have done, by its text, as far as that is known.
            busy: What goes on; empty if nothing does.
        """
        self._replays, self._busy = replays, busy
        self.show_rows(guards)

    def note(self) -> Sequence[Span]:
        """Returns what goes on."""
        return ((self._busy, "busy"),) if self._busy else ()

    def row_key(self, row: int) -> str:
        """Returns the text of the guard."""
        return self.rows[row].rule

    def cells(self, row: GuardOfRun, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the row of one guard."""
        replay = self._replays.get(row.rule)
        replayed = "" if replay is None else "–" if replay.why_not else f"{len(replay.firings):,}"
        styles = {"rule": "bad", "state": "bad"} if row.problem else {}
        styles |= {"fired": "warn"} if row.firings else {}
        cells = {
            key: [(text, styles.get(key, style)) for text, style in spans]
            for key, spans in super().cells(row, layout).items()
        }
        return {**cells, "replay": ((replayed, "muted"),)}

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit, with what replays found."""
        return choose([*self.columns[:3], _REPLAYED, *self.columns[3:]], width)


class GuardsScreen(Page):
    """Shows the guards, what they did and would have done; adds and removes them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "a",
            "add",
            "add",
            tooltip="Asks for a guard, and says at once what it would have done so far.",
        ),
        Binding("x", "remove", "remove", tooltip="Removes the selected guard, after asking."),
    ]
    caption = "the guards"
    AUTO_FOCUS = "#guard-list"

    def __init__(
        self,
        run: RunDirectory,
        snapshot: RunSnapshot,
        add: Callable[[Callable[[], Collection[str]], Callable[[], None], str], None],
        remove: Callable[[str, Callable[[], None]], None],
        refusal: str,
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            snapshot: Of the run.
            add: Adds a guard, after asking, to those whose texts the first function returns; then
                calls the second. It proposes the text.
            remove: Removes the guard with this text, after asking; then calls the function.
            refusal: Why both are disabled; empty if they are not.
        """
        super().__init__()
        self._run = run
        self._snapshot = snapshot
        self._add = add
        self._remove = remove
        self._refusal = refusal
        self._found: GuardsOfRun | None = None
        self._problem = ""
        self._replays: dict[str, Replay] = {}
        self._is_reading = self._is_replaying = False
        self._read_of: tuple[object, ...] = ()
        self._read_at = 0.0

    def compose(self) -> ComposeResult:
        """Makes the list, the selected guard and the keys."""
        yield GuardList(id="guard-list")
        yield TextPane(id="guard")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Reads the guards."""
        self.call_later(self.show, self._snapshot)

    def shown_bindings(self) -> list[Binding]:
        """Returns the keys, without those that would be refused now."""
        selected = self._selected
        is_own = selected is not None and selected.source is GuardSource.CONFIG
        can_do = {
            "add": not self._refusal,
            "remove": not self._refusal and is_own,
        }
        return [b for b in super().shown_bindings() if can_do.get(b.action, True)]

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says of a run without a guard: some that suit it."""
        if self._found is None or self._found.guards:
            return None
        suggested = enumerate(self._suggested, 1)
        return EmptyPage(
            purpose=_NO_GUARDS,
            advice=(self._problem,) if self._problem else (),
            offers=tuple(self._offer(str(number), rule) for number, rule in suggested),
            keeps=("add",),
        )

    def _offer(self, key: str, rule: str) -> Offer:
        """Returns a guard that is proposed, and how often it would have fired."""
        replay = self._replays.get(rule)
        return Offer(
            text=rule,
            told=_REPLAYING if replay is None else replay_words(replay),
            style="busy" if replay is None else "value",
            key="" if self._refusal else key,
            label="add one of these",
            take=partial(self._add, self._rules, self._read, rule),
        )

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot; reads the guards again if it may have others."""
        self._snapshot = snapshot
        fired = [entry.at for entry in snapshot.event_log if entry.kind is EventKind.GUARD]
        rules = snapshot.info.guards if snapshot.info is not None else []
        state = (rules, fired, snapshot.trainer_answers)
        if state != self._read_of or not 0 <= snapshot.at - self._read_at < _READ_SECONDS:
            self._read_of, self._read_at = state, snapshot.at
            self._read()

    def action_add(self) -> None:
        """Adds a guard, after asking."""
        if not self._refuse(self._refusal):
            self._add(self._rules, self._read, "")

    def action_remove(self) -> None:
        """Removes the selected guard, after asking."""
        selected = self._selected
        if selected is None:
            self._refuse("The guards are still being read." if self._is_reading else "")
            return
        in_script = "It is a guard of the script. Remove it there, and start the run again."
        is_own = selected.source is GuardSource.CONFIG
        if not self._refuse(self._refusal or ("" if is_own else in_script)):
            self._remove(selected.rule, self._read)

    def _rules(self) -> Collection[str]:
        return {guard.rule for guard in self._found.guards} if self._found is not None else ()

    def _refuse(self, reason: str) -> bool:
        if reason:
            self.notify(reason, severity="warning", markup=False)
        return bool(reason)

    def _read(self) -> None:
        if is_open(self) and not self._is_reading:
            self._is_reading = True
            work = partial(read_guards, self._run, is_live=self._snapshot.trainer_answers)
            self.run_app.start_job("guards", work, self._take, self._fail)

    def _take(self, found: GuardsOfRun) -> None:
        self._is_reading, self._found, self._problem = False, found, clean(found.problem)
        self._begin_replay()
        self._update()

    def _fail(self, problem: str) -> None:
        self._is_reading, self._problem = False, problem
        self._update()

    def _begin_replay(self) -> None:
        """Replays the guards that were not yet, in a thread: a long history takes seconds."""
        guards = self._found.guards if self._found is not None else ()
        rules = [guard.rule for guard in guards if not guard.problem] or self._suggested
        missing = [rule for rule in rules if rule not in self._replays]
        if missing and not self._is_replaying and is_open(self):
            self._is_replaying = True
            work = partial(replay_each, self._run, missing)
            self.run_app.start_job("guards", work, self._take_replays, self._fail_to_replay)

    def _take_replays(self, replays: dict[str, Replay]) -> None:
        self._is_replaying = False
        self._replays |= replays
        self._begin_replay()
        self._update()

    def _fail_to_replay(self, problem: str) -> None:
        self._is_replaying, self._problem = False, problem
        self._update()

    @property
    def _suggested(self) -> Sequence[str]:
        """The guards that are proposed; none if the run has any, or they are not read yet."""
        if self._found is None or self._found.guards:
            return ()
        # With this library, a script reports its metrics under other names than in event files.
        is_ours = self._snapshot.info is not None
        return suggested_guards(self._snapshot.samples.metrics if is_ours else ())

    @property
    def _selected(self) -> GuardOfRun | None:
        return self.query_one(GuardList).selected

    @on(ListPane.Moved, "#guard-list")
    def _update(self) -> None:
        if not is_open(self):
            return
        guards = self._found.guards if self._found is not None else ()
        busy = "replaying the recorded history …" if self._is_replaying else ""
        busy = "reading …" if self._found is None and not self._problem else busy
        self.query_one(GuardList).show_guards(guards, self._replays, busy)
        pane, selected = self.query_one("#guard", TextPane), self._selected
        width = max(20, pane.inner_size[0] or self.size.width - 4)
        lines = _wrapped(self._problem, "bad", width)
        if selected is not None:
            lines += _details(selected, self._replays.get(selected.rule), width)
        pane.show_lines(lines, (("what it did", "title"),) if selected is not None else ())
        self.update_keys()


_NO_GUARDS = (
    "The run has no guards. A guard is a rule that acts while the run trains, with the app closed "
    "too. For this run:"
)
_REPLAYING = "Replaying it over the recorded history …"


def _details(guard: GuardOfRun, replay: Replay | None, width: int) -> Iterator[StyledLine]:
    """Yields the text of a guard, what it did, and what it would have done."""
    yield from _wrapped(guard.rule, "strong", width)
    yield from _wrapped(guard.problem, "bad", width)
    place = "the script" if guard.source is GuardSource.SCRIPT else "config.toml"
    fired = f"fired {units.count(len(guard.firings), 'time')}" if guard.firings else "never fired"
    yield line((f"{guard.state_words}; given in {place}; ", "label"), (fired, "value"))
    for entry in reversed(guard.firings[-_SHOWN_FIRINGS:]):
        step = "" if entry.step is None else f"  step {entry.step:,}"
        message = f"{units.local_time(entry.at)}{step}  {entry.message}"
        yield from _wrapped(message, "value", width)
    if replay is not None:
        yield StyledLine()
        for spans in replay_lines(replay, _SHOWN_FIRINGS):
            for text, style in spans:
                yield from _wrapped(text, style, width)


def _wrapped(text: str, style: str, width: int) -> list[StyledLine]:
    return [line((part, style)) for part in textwrap.wrap(clean(text), width)]
