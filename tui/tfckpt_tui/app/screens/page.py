"""The base of all full screens but the dashboard: a footer and a help made from the bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingsMap, BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.app import screens
from tfckpt_tui.app.protocols import PerformsActions, RunApp, run_app_of
from tfckpt_tui.app.widgets.base.empty_page import LAUNCH, LINES, EmptyPage, EmptyPane
from tfckpt_tui.app.widgets.base.keybar import LAST_KEYS, KeyBar, KeyHint, key_name
from tfckpt_tui.app.widgets.base.search_input import SearchInput
from tfckpt_tui.app.widgets.run.progress import ProgressBar

_EMPTY = "-empty"
"""The class of a page that has nothing to show."""

_ON_EMPTY_PAGES = (*LAST_KEYS, "close")
"""The actions of all pages that do something on an empty one."""

_NO_DASHBOARD = "No run is open."


def action_binding(action: str, method: str, description: str, tooltip: str) -> Binding:
    """Returns the binding of a page with the key of an action of the dashboard.

    A page is declared before the actions are, so it gets their keys when it is opened.
    """
    return Binding(action, method, description, tooltip=tooltip, id=action)


class Page(Screen[None]):
    """A full screen about one subject.

    A subclass yields a `KeyBar`. The bindings that are shown fill it, and their tooltips are the
    help. Bindings that are not shown are alternatives to these. While `empty_page` returns
    something, that is shown instead of all panes, and its keys work.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "help", tooltip="Shows this help."),
        Binding("escape", "back", "back", key_display="esc", tooltip="Closes this screen."),
        Binding("q", "close", "Back", show=False),
    ]

    caption = ""
    """The subject of the screen, for the title of its help."""

    _said_empty: EmptyPage | None = None
    _focused_before: Widget | None = None

    @property
    def run_app(self) -> RunApp:
        """The app."""
        return run_app_of(self)

    # -- for subclasses ----------------------------------------------------------------------

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says if it has nothing to show now; None if it has something."""
        return None

    def advised_actions(self) -> Sequence[str]:
        """Returns the actions of the dashboard whose keys the page names now."""
        return self._said_empty.actions if self._said_empty is not None else ()

    # -- behaviour ---------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Shows the keys, and commands in progress above them."""
        keys = self.query_one(KeyBar)
        self.mount(
            EmptyPane(self.caption.removeprefix("the "), id="empty"),
            ProgressBar(id="progress"),
            before=keys,
        )
        self.update_keys()

    def update_keys(self) -> None:
        """Shows the keys that do something now, and what an empty page says."""
        self._said_empty = self.empty_page()
        for pane in self.query(EmptyPane):
            self._switch_to(pane if self._said_empty is not None else None)
            pane.show_empty(self._said_empty)
        self._bindings = BindingsMap([*self._offered(), *self._advised(), *self._own()])
        self.query_one(KeyBar).show_hints(self.key_hints())

    def _switch_to(self, empty: EmptyPane | None) -> None:
        """Shows the pane of an empty page alone, or the others."""
        if self.has_class(_EMPTY) is (empty is not None):
            return
        self.set_class(empty is not None, _EMPTY)
        if empty is not None:
            self._focused_before = self.focused
            self.set_focus(empty)
        elif self.focused is None or isinstance(self.focused, EmptyPane):
            self.set_focus(self._focused_before)

    @cached_property
    def _own_bindings(self) -> tuple[Binding, ...]:
        """The bindings of the class, with the keys that actions of the dashboard have."""
        keys = self.run_app.default_keys
        return tuple(
            replace(binding, key=keys.get(binding.id or "", binding.key))
            for _, binding in self._bindings
        )

    def _own(self) -> Sequence[Binding]:
        """Returns the bindings of the class, without those that do nothing on an empty page."""
        if self._said_empty is None:
            return self._own_bindings
        does = {*_ON_EMPTY_PAGES, *self._said_empty.keeps}
        return [binding for binding in self._own_bindings if _method_of(binding) in does]

    def _offered(self) -> Iterator[Binding]:
        """Yields the keys that take what an empty page offers; those of one label are one hint."""
        offers = self._said_empty.taken if self._said_empty is not None else ()
        labels = [offer.label for offer in offers]
        for place, offer in enumerate(offers):
            alike = [other.key for other in offers if other.label == offer.label]
            yield Binding(
                offer.key,
                f"take_offer({place})",
                offer.label,
                key_display=" ".join(alike),
                show=labels.index(offer.label) == place,
                tooltip=f"Takes what stands beside {offer.key} on the page.",
            )

    def _advised(self) -> Iterator[Binding]:
        """Yields the keys of actions of the dashboard that the page names."""
        advised = self.advised_actions()
        for action in self.run_app.actions if advised else ():
            key = action.key_in(self.run_app.config)
            if key and action.name in advised and not self.why_impossible(action.name):
                perform = f"perform_advised('{action.name}')"
                yield Binding(key, perform, action.label, tooltip=action.help)

    def launch_advice(self) -> tuple[Advice, ...]:
        """Returns how to launch training, if that is possible now."""
        return () if self.why_impossible("launch") else (LAUNCH,)

    def first_advice(self) -> tuple[Advice, ...]:
        """Returns how to launch training, or what a script without this library needs."""
        snapshot = self._dashboard.snapshot if self._dashboard is not None else None
        others = snapshot is not None and snapshot.has_other_trainer
        return (LINES,) if others else self.launch_advice()

    def why_impossible(self, action: str) -> str:
        """Returns why an action of the dashboard is unavailable now; empty if it is available."""
        below = self._dashboard
        return below.why_unavailable(action) if below is not None else _NO_DASHBOARD

    @property
    def _dashboard(self) -> PerformsActions | None:
        """The dashboard below the page; None if the page was opened from a list of runs."""
        below = self.app.screen_stack
        return next((screen for screen in below if isinstance(screen, PerformsActions)), None)

    def action_take_offer(self, place: int) -> None:
        """Takes what an empty page offers."""
        offers = self._said_empty.taken if self._said_empty is not None else ()
        if place < len(offers) and (take := offers[place].take) is not None:
            take()

    def action_perform_advised(self, name: str) -> None:
        """Performs an action of the dashboard whose key the page names."""
        if self._dashboard is not None:
            self._dashboard.action_perform(name)

    def shown_bindings(self) -> list[Binding]:
        """Returns the available bindings of this screen, one for each action."""
        by_action: dict[str, Binding] = {}
        for active in self.active_bindings.values():
            binding = active.binding
            if active.node is self and binding.key and binding.show and active.enabled:
                by_action.setdefault(binding.action, binding)
        return list(by_action.values())

    def key_hints(self) -> list[KeyHint]:
        """Returns the keys for the footer."""
        return [
            KeyHint(
                binding.action,
                key_name(binding),
                binding.description,
                is_last=binding.action in LAST_KEYS,
            )
            for binding in self.shown_bindings()
        ]

    def action_help(self) -> None:
        """Shows the keys of this screen."""
        shown = self.shown_bindings()
        explained = {_method_of(binding) for binding in shown}
        keys = {
            key
            for key, active in self.active_bindings.items()
            if active.node is not self or _method_of(active.binding) not in explained
        }
        lines = screens.help.help_of_keys(self.caption, shown, keys, self.app.size.width)
        self.app.push_screen(screens.help.HelpScreen(lines))

    def action_back(self) -> None:
        """Ends the search, dismisses failures and verdicts, or closes the screen."""
        progress = self.run_app.progress
        if self.end_current():
            return
        if progress.has_unread:
            progress.dismiss()
            self.run_app.update_progress()
        else:
            self.dismiss()

    def end_current(self) -> bool:
        """Ends the search, or what else esc ends on this screen; returns whether it did."""
        return any(line.leave() for line in self.query(SearchInput))

    def action_close(self) -> None:
        """Closes the screen."""
        self.dismiss()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Passes the key of the search to the search line while that has the focus."""
        if action == "search" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Opens the search line."""
        self.query_one(SearchInput).open()

    @on(KeyBar.Chosen)
    async def _perform_clicked(self, event: KeyBar.Chosen) -> None:
        event.stop()
        await self.run_action(event.action)


def _method_of(binding: Binding) -> str:
    """Returns the name of an action without its arguments."""
    return binding.action.partition("(")[0]
