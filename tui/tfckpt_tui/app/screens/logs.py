"""The logs of all processes of the run, together or one by one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, Offer, to_paste
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.search_input import SearchInput, search_binding
from tfckpt_tui.app.widgets.run.log_view import LogTabs, LogView, NewLines, Wanted
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.log_pages import LogPage, LogSearches, read_around
from tfckpt_tui.monitor.logs import ALL, SUPERVISOR, Level, LogTail, log_path
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.batch.job_reader import why_no_logs
from tfckpt_tui.services.runs.account import RunAccount

_POLL_SECONDS = 0.5
_PURPOSE = "This page follows what each worker and the supervisor print, and searches it."
_NEXT_START = "This starts the script the next time, and keeps what it prints."
_REDIRECTED = "Or redirect it, as `> train.log 2>&1`: this page follows that file too."
_NOTHING: tuple[tuple[str, ...], str, Level] = (), "", Level.ANY
"""What is searched in which logs if no text is typed."""


class LogsScreen(Page):
    """Shows the logs of all workers and of the supervisor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,tab",
            "turn(1)",
            "next log",
            key_display="→",
            tooltip="Shows the next log; ← the previous one.",
        ),
        Binding("left,shift+tab", "turn(-1)", "Previous log", show=False),
        Binding("f", "follow", "follow", tooltip="Follows new lines, or stops following."),
        Binding(
            "e",
            "level",
            "errors",
            tooltip="Shows warnings and errors, then errors only, then all lines.",
        ),
        search_binding("search", "Highlights a text, and scrolls to its last match."),
        Binding(
            "n",
            "match(1)",
            "next match",
            tooltip="Scrolls to the next match; in a search of all logs, in any log.",
        ),
        Binding("N", "match(-1)", "previous", tooltip="Scrolls to the previous match."),
        Binding("w", "wrap", "wrap", tooltip="Wraps long lines, or cuts them at the edge."),
        Binding(
            "greater_than_sign",
            "shift(1)",
            "sideways",
            tooltip="Scrolls cut lines to the right; < to the left.",
        ),
        Binding("less_than_sign", "shift(-1)", "Left", show=False),
        Binding("y", "copy", "copy", tooltip="Copies the lines on the screen."),
        Binding("l", "close", "Back", show=False),
    ]
    caption = "the logs"

    def __init__(
        self,
        run: RunDirectory,
        snapshot: RunAccount | None,
        worker: int | None = None,
        at: float | None = None,
    ) -> None:
        """Makes the screen.

        Args:
            run: The run directory.
            snapshot: Has the workers.
            worker: The worker whose log is shown first; by default all.
            at: Scrolls to what was printed then (seconds since the epoch); by default to the end.
        """
        super().__init__()
        self._run = run
        self._tails: dict[str, LogTail] = {}
        self._is_reading = False
        self._is_first = True
        self._account = snapshot
        self._names = _log_names(snapshot)
        first = f"worker {worker}"
        self._shown = first if first in self._names else self._names[0]
        self._at = at
        self._needle = ""
        self._scrolls_to_match = False
        self._scope = self._shown
        self._searched = _NOTHING
        self._searching: LogSearches | None = None
        self._busy: set[LogSearches] = set()

    def compose(self) -> ComposeResult:
        """Makes the tabs, the log, the search line and the keys."""
        yield LogTabs(id="log-tabs")
        yield LogView(id="log")
        yield SearchInput("search", focus_after="#log")
        yield KeyBar(id="log-keys")

    def on_mount(self) -> None:
        """Shows the first log and follows it."""
        self.query_one(LogView).focus()
        self._update_tabs()
        self.set_interval(_POLL_SECONDS, self._poll)
        self._poll()

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says if no process of the run has a log."""
        why_none = self.query_one(LogView).why_none
        if not why_none:
            return None
        return EmptyPage(
            purpose=_PURPOSE,
            advice=(f"There are no logs: {why_none}", *self.launch_advice()),
            offers=self._for_next_start(),
        )

    def _for_next_start(self) -> tuple[Offer, ...]:
        """Returns the command that keeps logs, if a script that was not launched runs now."""
        account = self._account
        if account is None:
            return ()
        others = account.processes[:1] if account.has_other_trainer else ()
        is_launched = account.info is None or account.info.launched
        if not others and (is_launched or account.state in HAS_ENDED):
            return ()
        command = others[0].command if others else ("python", "train.py")
        words = "tfckpt-tui", "launch", str(self._run.root), "--", *command
        told = f"{_NEXT_START} {_REDIRECTED}" if others else _NEXT_START
        return (to_paste(self, clean(shlex.join(words)), told),)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows the logs of new workers."""
        self._account = snapshot
        names = _log_names(snapshot)
        if names != self._names and is_open(self):
            self._names = names
            self._update_tabs()

    def action_turn(self, places: int) -> None:
        """Shows the next or the previous log."""
        place = self._names.index(self._shown) if self._shown in self._names else 0
        self._turn_to(self._names[(place + places) % len(self._names)])

    def action_follow(self) -> None:
        """Switches following on or off."""
        view = self.query_one(LogView)
        view.follow(not view.is_following)
        self._update_tabs()

    def action_level(self) -> None:
        """Shows the next higher level only, or all lines again."""
        self.query_one(LogView).turn_level()
        # Only the number of matches changes; `n` goes to one.
        self._scrolls_to_match = False
        self._update_tabs()

    def action_match(self, direction: int) -> None:
        """Scrolls to the next or the previous match; in a search of all logs, in any log."""
        view = self.query_one(LogView)
        view.go_to_match(direction)
        self._shown = view.shown_log
        self._update_tabs()

    def action_wrap(self) -> None:
        """Wraps long lines, or cuts them at the edge."""
        self.query_one(LogView).turn_wrapping()
        self._update_tabs()

    def action_shift(self, steps: int) -> None:
        """Scrolls sideways."""
        self.query_one(LogView).shift(steps)
        self._update_tabs()

    def action_copy(self) -> None:
        """Copies the lines on the screen."""
        lines = self.query_one(LogView).shown_lines
        if not lines:
            self.notify("There are no lines to copy.", severity="warning", markup=False)
            return
        copy_text(self, "\n".join(lines), units.count(len(lines), "line"))

    @on(SearchInput.Searched)
    def _search(self, event: SearchInput.Searched) -> None:
        self._needle, self._scope = event.text, self._shown
        self._scrolls_to_match = not self.query_one(LogView).search(event.text)
        self._update_tabs()

    def _choose_search(self) -> None:
        """Searches the whole log that is shown, or all of them, if something is searched."""
        logs = [name for name in self._names if self._scope in {name, ALL} and name != ALL]
        least = self.query_one(LogView).least
        wanted = (tuple(logs), self._needle, least) if self._needle else _NOTHING
        if wanted == self._searched:
            return
        if self._searching is not None:
            self._searching.cancel()
        self._searched = wanted
        paths = {log: log_path(self._run, log) for log in logs}
        self._searching = LogSearches(paths, self._needle, least) if self._needle else None
        self.query_one(LogView).show_searches(self._searching)
        self._search_on()

    def _search_on(self) -> None:
        """Searches what is new, in a thread."""
        searches = self._searching
        if searches is None or searches in self._busy:
            return
        self._busy.add(searches)
        ended = partial(self._end_search, searches, is_first=not searches.progress)
        self.run_app.start_job("search logs", searches.run, ended)

    def _end_search(self, searches: LogSearches, _: object, *, is_first: bool) -> None:
        self._busy.discard(searches)
        if not is_open(self):
            return
        is_wanted = is_first and searches is self._searching and self._scrolls_to_match
        # While a text is typed for all logs, no other log takes their place.
        if is_wanted and self._scope != ALL:
            self.query_one(LogView).go_to_match(-1)
        self._update_tabs()

    @on(LogView.PageWanted)
    def _read_page(self, event: LogView.PageWanted) -> None:
        wanted = event.wanted
        work = partial(read_around, log_path(self._run, wanted.log), wanted.place)
        show, fail = partial(self._show_page, wanted), partial(self._fail_page, wanted)
        self.run_app.start_job("read logs", work, show, fail)

    def _show_page(self, wanted: Wanted, page: LogPage) -> None:
        if is_open(self):
            self.query_one(LogView).show_page(wanted, page)
            self._update_tabs()

    def _fail_page(self, wanted: Wanted, problem: str) -> None:
        if is_open(self):
            self.query_one(LogView).drop_page(wanted)
        self._fail(problem)

    @on(LogTabs.Chosen)
    def _choose(self, event: LogTabs.Chosen) -> None:
        self._turn_to(event.log)

    def _turn_to(self, log: str) -> None:
        self._shown = self._scope = log
        self._update_tabs()

    @on(LogView.Scrolled)
    def _show_following(self) -> None:
        self._update_tabs()

    def _poll(self) -> None:
        self._search_on()
        if self._is_reading:
            return
        self._is_reading = True
        for name in self._names:
            if name != ALL and name not in self._tails:
                self._tails[name] = LogTail(log_path(self._run, name))
        tails = dict(self._tails)

        def read() -> tuple[dict[str, NewLines], str]:
            logs: dict[str, NewLines] = {
                log: (tail.read_new(), tail.unfinished) for log, tail in tails.items()
            }
            is_any = any(lines is not None for lines, _ in logs.values())
            return logs, "" if is_any else why_no_logs(self._run)

        self.run_app.start_job("read logs", read, self._show_lines, self._fail)

    def _show_lines(self, read: tuple[Mapping[str, NewLines], str]) -> None:
        self._is_reading = False
        if not is_open(self):
            return
        view = self.query_one(LogView)
        is_first, self._is_first = self._is_first, False
        view.add(*read)
        if is_first and self._needle:
            # The text was typed before there were lines.
            self._scrolls_to_match = not view.search(self._needle)
        if self._at is not None:
            at, self._at = self._at, None
            if not view.go_to_time(at):
                told = "The time of these lines was not recorded."
                self.notify(told, severity="warning", markup=False)
        self._update_tabs()

    def _fail(self, problem: str) -> None:
        self._is_reading = False
        self.notify(problem, title="Logs", severity="warning", markup=False)

    def _update_tabs(self) -> None:
        view = self.query_one(LogView)
        view.turn_to(self._shown)
        self._choose_search()
        self.query_one(LogTabs).show_tabs(self._names, self._shown, view.describe())
        self.update_keys()


def _log_names(snapshot: RunAccount | None) -> list[str]:
    if snapshot is None:
        return [ALL, "worker 0", SUPERVISOR]
    if snapshot.has_other_trainer:
        paths = dict.fromkeys(path for process in snapshot.processes for path in process.logs)
        return [ALL, *paths] if paths else [ALL, "worker 0"]
    count = len(snapshot.workers)
    if snapshot.info is not None:
        count = max(count, snapshot.info.worker_count)
    names = [ALL, *(f"worker {index}" for index in range(max(1, count)))]
    is_ours = snapshot.supervisor is not None or snapshot.info is not None
    return [*names, SUPERVISOR] if is_ours else names
