"""The app that `tfckpt-tui` without a directory opens: a list of runs."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from textual import getters
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingsMap, BindingType
from textual.command import Provider
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.app import dialogs, screens
from tfckpt_tui.app.actions.action import READ_ONLY
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.base_app import NOT_NOW
from tfckpt_tui.app.dialogs.many import ManyDialog, ValueDialog
from tfckpt_tui.app.job_app import JobApp
from tfckpt_tui.app.screens.answers import AnswersScreen
from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.app.screens.runs_compare import MOST_RUNS, RunsCompareScreen
from tfckpt_tui.app.widgets.base.keybar import LAST_KEYS, KeyBar, KeyHint, key_name
from tfckpt_tui.app.widgets.base.search_input import SearchInput
from tfckpt_tui.app.widgets.base.styled_text import shorten_middle
from tfckpt_tui.app.widgets.run.progress import ProgressBar
from tfckpt_tui.app.widgets.run.run_list import RunList, RunListView
from tfckpt_tui.formats.hyperparameters import parse_assignments
from tfckpt_tui.formats.policy_input import parse_policy
from tfckpt_tui.formats.text import clean, clean_message
from tfckpt_tui.services.control.many import (
    ManyPlan,
    Planner,
    RunAnswer,
    RunOutcome,
    RunPlan,
    carry_out,
    first_answers,
    make_plan,
    plan_end,
    plan_pause,
    plan_prune,
    plan_resume,
    plan_save,
    plan_set,
    plan_stop,
)
from tfckpt_tui.services.processes.own_actions import command_of, run_action
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.launch_form import form_like
from tfckpt_tui.services.runs.open_run import open_run, require_readable
from tfckpt_tui.services.runs.recent_runs import remembered_runs
from tfckpt_tui.services.runs.remembered_list import (
    RememberedRun,
    recall_runs,
    remember_runs,
)
from tfckpt_tui.services.runs.search import RunSearch
from tfckpt_tui.settings.config import Config
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn

_POLL_SECONDS = 2.0

_IN_FOOTER = (
    *("choose", "mark", "search", "save", "stop", "pause", "prune", "set", "compare"),
    *("sort(1)", "launch"),
    *("help", "leave"),
)
"""The actions that the footer shows, as far as there is room."""

_EVENTS_OF = {
    RunState.FAILED: frozenset({EventKind.FAILED}),
    RunState.FINISHED: frozenset({EventKind.FINISH}),
    RunState.STOPPED: frozenset({EventKind.STOP}),
    RunState.RESTARTING: frozenset({EventKind.WORKER_LOST, EventKind.RESTART}),
    RunState.DEGRADED: frozenset(
        {EventKind.WORKER_LOST, EventKind.DEGRADED, EventKind.STALLED},
    ),
}
"""Kinds of events that have happened in a run that enters a state; its log is not read here."""

_NAME_WIDTH = 40

_PAUSE_FACTOR = 10.0
"""How many times the processor time of a read passes until the next one; runs may be thousands."""

_ANSWER_TIMEOUT_SECONDS = 0.5
"""How long the list waits for directories that do not answer; it shows them when they do."""

_FIRST_LOOKS = 16
"""How many runs on network disks are read before the list shows them; each time twice as many."""

_FIRST_ROWS = 100
"""How many remembered runs are shown before the others."""

_REMEMBER_SECONDS = 300.0
"""Interval at which a list on a network disk is remembered, besides its first and last reading."""


class RunAnswered(Message):
    """A run answered a request to many."""

    def __init__(self, verb: str, answer: RunAnswer) -> None:
        super().__init__()
        self.verb = verb
        self.answer = answer


class RunsRead(Message):
    """The state of all runs was read, or that of the first ones."""

    def __init__(
        self, runs: Sequence[RunAccount], at: float, left_out: str = "", unseen: int = 0
    ) -> None:
        """Makes the message.

        Args:
            runs: The runs.
            at: When they were read, in seconds since the epoch.
            left_out: What was not searched for runs, in words.
            unseen: How many runs were found and not read yet.
        """
        super().__init__()
        self.runs = runs
        self.at = at
        self.left_out = left_out
        self.unseen = unseen


def _key_of(action: str, method: str, label: str, tooltip: str, *, typed: bool = False) -> Binding:
    """Returns a binding with the key of an action of the dashboard.

    Args:
        action: The action there.
        method: What the key does here.
        label: One or two words.
        tooltip: Details.
        typed: Whether the characters typed right after the key are for an input line.
    """
    return Binding(
        DEFAULT_KEYS[action], method, label, show=False, tooltip=tooltip, id=action, priority=typed
    )


def _list_provider() -> type[Provider]:
    # Imported when the palette is first opened: the first frame does not wait for it.
    from tfckpt_tui.app.palette import ListProvider

    return ListProvider


def _own_bindings(actions: Mapping[str, ActionSection], taken: BindingsMap) -> list[Binding]:
    """Returns the keys of the user's own actions on runs, unless the list has them."""
    return [
        Binding(
            section.key,
            f"act('{name}')",
            name,
            show=False,
            tooltip=clean(section.title.rstrip(".")) + "." if section.title else f"Runs {name}.",
        )
        for name, section in actions.items()
        if section.on is ActsOn.RUN and section.key and section.key not in taken.key_to_bindings
    ]


def _plan_own(run: RunDirectory, name: str, action: ActionSection) -> RunPlan:
    """Plans one of the user's own actions on a run.

    Args:
        run: The run directory.
        name: The name of the action.
        action: The action, which acts on runs.
    """
    words = clean_message(f"Runs {shlex.join(command_of(action, run, ()))}")
    return RunPlan(run.root, words, partial(_run_own, run, name, action))


def _run_own(run: RunDirectory, name: str, action: ActionSection) -> str:
    outcome = run_action(run, name, action, (), on_output=lambda output: None)
    if outcome.problem:
        raise TfckptError(outcome.problem)
    return outcome.words


class RunsApp(JobApp[RunDirectory | LaunchOptions]):
    """The list of runs; its result is a run to open, the options of a run to launch, or None."""

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_list_provider}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", show=False, tooltip="Opens the selected run."),
        _key_of("save", "save", "save", "Saves a checkpoint in the marked or selected runs."),
        _key_of("pause", "pause", "pause", "Pauses them; if all are paused, resumes them."),
        _key_of("stop", "stop", "stop", "Saves a checkpoint in each, then stops it."),
        _key_of("force-stop", "force_stop", "force stop", "Ends the processes of each."),
        _key_of("prune", "prune", "prune", "Moves checkpoints of each to the trash, by rules."),
        _key_of("hyperparameters", "set", "set", "Changes a hyperparameter of each."),
        _key_of("mark", "mark", "mark", "Marks or unmarks the selected run."),
        _key_of("mark-all", "mark_all", "mark all", "Marks or unmarks all runs that are listed."),
        _key_of("compare", "compare", "compare", "Shows the marked runs in one chart."),
        _key_of("logs", "logs", "logs", "Shows the logs of the selected run."),
        _key_of("copy", "copy_paths", "copy", "Copies the paths of the marked or selected runs."),
        _key_of("filter", "search", "search", "Shows only runs with all these words.", typed=True),
        _key_of("sort", "sort(1)", "sort", "Sorts by the next column."),
        _key_of("sort-back", "sort(-1)", "sort back", "Sorts by the previous column."),
        _key_of("turn-order", "turn_order", "reverse", "Reverses the sort order."),
        Binding(
            "n",
            "launch",
            "new run",
            show=False,
            tooltip="Launches training in a new directory, with the options of the selected run.",
        ),
        Binding("question_mark,f1", "help", "help", show=False, tooltip="Shows this help."),
        Binding("q,ctrl+c", "leave", "leave", show=False, tooltip="Closes the list."),
        Binding("escape", "go_back", "Back", show=False),
    ]

    def __init__(
        self,
        below: Path | None,
        config: Config,
        jobs: JobList | None = None,
        *,
        before: RunsApp | None = None,
        read_only: bool = False,
    ) -> None:
        """Makes the app.

        Args:
            below: A directory to search for runs; None lists those opened recently, and those of
                all batch jobs of the user.
            config: The configuration of the user.
            jobs: Adds the batch jobs of the user.
            before: The app from which a run was opened: the list is as it was there.
            read_only: Whether actions that change runs are disabled.
        """
        super().__init__(config)
        self._own = _own_bindings(config.actions, self._bindings)
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(self._own)])
        self._below = Path(os.path.abspath(below)) if below is not None else None
        self._search = RunSearch(below) if below is not None else None
        self._is_remembered = self._below is not None and is_network_file_system(self._below)
        self._remembered_at = float("-inf")
        self._seen = 0
        self._jobs = jobs or JobList()
        self._view = RunListView()
        self._newest: RunsRead | None = None
        if before is not None:
            self._search, self._jobs = before._search, before._jobs
            self._view, self._newest = before._view, before._newest
        self._reads = 0
        self._stopped = threading.Event()
        self._read_only = read_only
        self._answers: AnswersScreen | None = None

    runs = getters.query_one("#runs", RunList)

    def compose(self) -> ComposeResult:
        """Makes the list and the keys."""
        yield RunList(self._below, self._view, id="runs")
        yield SearchInput(
            "part of a path, a state, a problem or a host",
            focus_after="#runs",
            text=self._view.needle,
        )
        yield ProgressBar(id="progress")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Starts to read the runs in a thread."""
        self._update_keys()
        self.runs.focus()
        if self._newest is not None:
            self.on_runs_read(self._newest)
        threading.Thread(target=self._read_runs, name="runs", daemon=True).start()

    def on_unmount(self) -> None:
        """Stops the thread."""
        self._stopped.set()
        # A run that is opened does not wait for it.
        if self._newest is not None and self.return_value is None:
            self._remember(self._newest)

    def on_runs_read(self, message: RunsRead) -> None:
        """Shows the runs, and rings the bell for those whose state changed as configured."""
        before, self._newest = self._newest, message
        self._reads += not message.unseen
        # The first reading asked no batch system, whose answer changes states too.
        if before is not None and self._reads > 2:
            self._ring_bell(before.runs, message.runs)
        # The list is gone while the app ends.
        for shown in self.query(RunList):
            shown.show_runs(message.runs, message.at, message.left_out, message.unseen)
            self._update_keys()

    def _ring_bell(self, before: Iterable[RunAccount], runs: Iterable[RunAccount]) -> None:
        """Rings the bell for new states that mean a configured event, and notifies of them."""
        states = {run.root: run.state for run in before if run.remembered_for is None}
        rung = [
            run
            for run in runs
            if states.get(run.root, RunState.UNKNOWN) not in {RunState.UNKNOWN, run.state}
            and not _EVENTS_OF.get(run.state, frozenset()).isdisjoint(self.config.app.bell)
        ]
        if rung:
            self.bell()
            self.notify_terminal(few_of([f"{run.root.name}: {run.words}" for run in rung]))

    async def on_key_bar_chosen(self, message: KeyBar.Chosen) -> None:
        """Performs the action of a clicked key."""
        await self.run_action(message.action)

    def action_choose(self) -> None:
        """Opens the selected run."""
        selected = self.runs.selected
        if selected is not None:
            self.runs.hold_cursor()
            work = partial(_open_readable, selected.root)
            self.start_job("open", work, self._leave_to, progress=f"Opening {selected.path} …")

    def _leave_to(self, chosen: RunDirectory | LaunchOptions) -> None:
        """Ends the app with a result; what was chosen in the list is kept for the next one."""
        self._view = self.runs.view
        self.exit(chosen)

    def action_mark(self) -> None:
        """Marks or unmarks the selected run."""
        self.runs.toggle_mark()
        self._update_keys()

    def action_mark_all(self) -> None:
        """Marks or unmarks all runs that are listed."""
        self.runs.toggle_all_marks()
        self._update_keys()

    def action_sort(self, places: int) -> None:
        """Sorts by the column that is `places` further to the right."""
        self.runs.sort_next(places)

    def action_turn_order(self) -> None:
        """Reverses the sort order, or says that there is none."""
        if not self.runs.reverse_order():
            unsorted = "Live runs are listed first. Sort them by a column first."
            self.notify(unsorted, title=f"{NOT_NOW}reverse", severity="warning", markup=False)

    def action_save(self) -> None:
        """Saves a checkpoint in the marked runs, or in the selected one."""
        self._plan("Save", plan_save)

    def action_pause(self) -> None:
        """Pauses the marked runs, or the selected one; resumes them if all are paused."""
        goes_on = [run for run in self.runs.chosen if run.trainer_answers]
        if goes_on and all(run.state is RunState.PAUSED for run in goes_on):
            self._plan("Resume", plan_resume)
        else:
            self._plan("Pause", plan_pause)

    def action_stop(self) -> None:
        """Stops the marked runs, or the selected one."""
        self._plan("Stop", plan_stop)

    def action_force_stop(self) -> None:
        """Ends the processes of the marked runs, or of the selected one, whatever they do."""
        self._plan("Force stop", plan_end)

    def action_act(self, name: str) -> None:
        """Runs one of the user's own actions for the marked runs, or the selected one."""
        self._plan(name, partial(_plan_own, name=name, action=self.config.actions[name]))

    def action_logs(self) -> None:
        """Opens the logs of the selected run."""
        selected = self.runs.selected
        if selected is not None:
            self.runs.hold_cursor()
            self.push_screen(LogsScreen(RunDirectory(selected.root), selected))

    def action_copy_paths(self) -> None:
        """Copies the paths of the marked runs, or of the selected one."""
        paths = [str(run.root) for run in self.runs.chosen]
        if paths:
            self.runs.hold_cursor()
            self.copy("\n".join(paths), few_of(paths, 1))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Returns no entries of the palette besides the keys of the list."""
        del screen
        return ()

    def action_prune(self) -> None:
        """Asks how many checkpoints stay, and prunes the marked runs, or the selected one."""
        self._ask_for(
            ValueDialog[Policy](
                "prune",
                "keep last",
                "such as 5; empty: the rules of each run",
                "How many of the newest checkpoints of each run stay?",
                lambda text: parse_policy({"keep_last": text}),
            ),
            lambda given: self._plan("Prune", partial(plan_prune, given=given, config=self.config)),
        )

    def action_set(self) -> None:
        """Asks for values, and changes the marked runs, or the selected one."""
        self._ask_for(
            ValueDialog[dict[str, float]](
                "change a hyperparameter",
                "name=value",
                "such as learning_rate=3e-4",
                "Each run changes it on all workers at the next step.",
                lambda text: parse_assignments(text.split()),
            ),
            lambda values: self._plan("Change", partial(plan_set, values=values)),
        )

    def _ask_for(self, dialog: ValueDialog[Any], then: Callable[[Any], None]) -> None:
        def answered(value: tuple[Any] | None) -> None:
            if value is not None:
                then(*value)

        if self._may_change():
            self.push_screen(dialog, answered)

    def _may_change(self) -> bool:
        """Whether runs are chosen, and may be changed; otherwise says why not."""
        self.runs.hold_cursor()
        none = (
            "The marked runs are gone: esc unmarks."
            if self.runs.marks_are_gone
            else "There is no run."
        )
        lost = "" if self.runs.marked else self.runs.take_lost()
        why = READ_ONLY if self._read_only else lost if self.runs.chosen else none
        if why:
            self.notify(why, title=f"{NOT_NOW}change", severity="warning", markup=False)
        return not why

    def _plan(self, verb: str, planner: Planner) -> None:
        """Plans a request to the chosen runs, asks, and carries it out."""

        def answered(made: ManyPlan | None) -> None:
            if made is not None:
                self._answers = AnswersScreen(made.verb, first_answers(made))
                self.push_screen(self._answers)
                carry_out(made, lambda answer: self.post_message(RunAnswered(made.verb, answer)))

        if self._may_change():
            roots = [run.root for run in self.runs.chosen]
            dialog = ManyDialog(verb)
            self.push_screen(dialog, answered)
            self.start_job(verb.lower(), partial(make_plan, verb, roots, planner), dialog.show_plan)

    def on_run_answered(self, message: RunAnswered) -> None:
        """Shows the answer of a run; a failure until the user has read it."""
        answer, answers = message.answer, self._answers
        if answers is not None and answers.take(answer):
            return
        if answer.outcome is RunOutcome.FAILED:
            what = f"{message.verb.lower()} {shorten_middle(clean(str(answer.root)), _NAME_WIDTH)}"
            self.job_failed(what, answer.words)

    def action_compare(self) -> None:
        """Shows the curves of the marked runs in one chart, and how their settings differ."""
        count = len(self.runs.marked)
        if 2 <= count <= MOST_RUNS:
            self.push_screen(RunsCompareScreen([run.root for run in self.runs.marked]))
        else:
            told = f"Mark 2 to {MOST_RUNS} runs; {count} {'is' if count == 1 else 'are'} marked."
            self.notify(told, title=f"{NOT_NOW}compare", severity="warning", markup=False)

    def action_launch(self) -> None:
        """Opens a form to launch a run; it starts with the options of the selected run."""
        selected = self.runs.selected
        form = form_like(RunDirectory(selected.root) if selected is not None else None)

        def answered(options: LaunchOptions | None) -> None:
            if options is not None:
                self._leave_to(options)

        self.push_screen(dialogs.launch.LaunchDialog(form, fixed_directory=False), answered)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Passes the key of the search to a field, and leaves other screens their keys."""
        if action == "search" and isinstance(self.focused, Input):
            return False
        if len(self.screen_stack) > 1 and action in _OF_LIST:
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Opens the search line."""
        self.query_one(SearchInput).open()

    def on_search_input_searched(self, message: SearchInput.Searched) -> None:
        """Shows the runs that match."""
        self.runs.search(message.text)

    @property
    def explained_bindings(self) -> list[Binding]:
        """The keys of the list that have an explanation."""
        return [*(one for one in self._chosen_bindings if one.tooltip), *self._own]

    @property
    def _chosen_bindings(self) -> list[Binding]:
        """The keys of the list, as the user chose them."""
        keys = self.config.keys
        bindings = [one for one in self.BINDINGS if isinstance(one, Binding)]
        return [replace(one, key=keys.get(one.id or "", one.key)) for one in bindings]

    def action_help(self) -> None:
        """Shows the keys of the list."""
        bindings = self.explained_bindings
        keys = self.screen.active_bindings.keys()
        lines = screens.help.help_of_keys("the list of runs", bindings, keys, self.size.width)
        self.push_screen(screens.help.HelpScreen(lines))

    def action_go_back(self) -> None:
        """Ends the search; without one dismisses failures, removes marks, or closes the app."""
        if self.query_one(SearchInput).leave():
            return
        if self.progress.has_unread:
            self.progress.dismiss()
            self.update_progress()
        elif self.runs.marked or self.runs.marks_are_gone:
            self.runs.unmark()
            self._update_keys()
        else:
            self.exit()

    def action_leave(self) -> None:
        """Closes the app."""
        self.exit()

    def _update_keys(self) -> None:
        """Shows the keys in the footer; without runs, those that need none."""
        bindings = self._chosen_bindings
        shown: Sequence[str] = _IN_FOOTER
        if self._newest is not None and not self._newest.runs:
            shown = ("launch", *(action for action in _IN_FOOTER if action in LAST_KEYS))
        self.query_one(KeyBar).show_hints(
            [
                KeyHint(
                    binding.action,
                    key_name(binding),
                    binding.description,
                    is_last=binding.action in LAST_KEYS,
                )
                for action in shown
                for binding in bindings
                if binding.action == action
            ]
        )

    def _read_runs(self) -> None:
        if self._is_remembered and self._newest is None:
            self._recall()
        # Without Slurm, which may take seconds to answer.
        self._read_all(ask=False)
        while not self._stopped.is_set():
            began = time.process_time()
            newest = self._read_all(ask=True)
            if time.monotonic() - self._remembered_at > _REMEMBER_SECONDS:
                self._remember(newest)
            used = time.process_time() - began
            self._stopped.wait(max(_POLL_SECONDS, _PAUSE_FACTOR * used))

    def _recall(self) -> None:
        """Shows the runs as an earlier list did."""
        assert self._below is not None
        recalled = recall_runs(self._below)
        # A screen at first: all of thousands take longer than the first frame.
        known = list(islice(recalled, _FIRST_ROWS))
        if not known:
            return
        self._show_recalled(known)
        known += recalled
        self._search = RunSearch(self._below, self._show_recalled(known))

    def _show_recalled(self, known: Sequence[RememberedRun]) -> list[Path]:
        """Shows runs that are remembered; returns their directories."""
        self._jobs.recall(known)
        roots = [run.account.root for run in known]
        self._show(roots, ask=False, most=0)
        return roots

    def _remember(self, newest: RunsRead) -> None:
        """Remembers the list for the next one."""
        if self._is_remembered and self._below is not None:
            self._remembered_at = time.monotonic()
            remember_runs(self._below, self._jobs.remembered(newest.runs))

    def _read_all(self, *, ask: bool) -> RunsRead:
        """Reads and shows the runs that are due; if many are new, some after the other."""
        newest = self._read_once(ask=ask)
        while newest.unseen and not self._stopped.is_set():
            newest = self._read_once(ask=False)
        return newest

    def _read_once(self, *, ask: bool) -> RunsRead:
        search = self._search
        roots = search.find(_ANSWER_TIMEOUT_SECONDS) if search is not None else remembered_runs()
        return self._show(roots, ask=ask, most=max(_FIRST_LOOKS, self._seen))

    def _show(self, roots: Iterable[Path], *, ask: bool, most: int) -> RunsRead:
        seconds, search = _ANSWER_TIMEOUT_SECONDS, self._search
        others = search is None
        runs = self._jobs.read(roots, with_others=others, ask=ask, seconds=seconds, most=most)
        self._seen = sum(run.remembered_for is None for run in runs)
        left_out = search.left_out if search is not None else ""
        read = RunsRead(runs, time.time(), left_out, self._jobs.unseen)
        self.post_message(read)
        return read


_OF_LIST = frozenset(
    binding.action.partition("(")[0] for binding in RunsApp.BINDINGS if isinstance(binding, Binding)
) - {"leave"} | {"act"}
"""Actions on the list, which keys on other screens do not start."""


def _open_readable(root: Path) -> RunDirectory:
    """Opens a run that its page can show: what it refuses is told in the list."""
    run = open_run(root)
    require_readable(run)
    return run
