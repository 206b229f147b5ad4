"""The base of all full screens but the dashboard: a footer and a help made from the bindings."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingsMap, BindingType
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_tui.app.protocols import RunApp, run_app_of
from tfckpt_tui.app.widgets.base.keybar import LAST_KEYS, KeyBar, KeyHint, key_name
from tfckpt_tui.app.widgets.base.search_input import SearchInput
from tfckpt_tui.app.widgets.run.progress import ProgressBar


def action_binding(action: str, method: str, description: str, tooltip: str) -> Binding:
    """Returns the binding of a page with the key of an action of the dashboard.

    A page is declared before the actions are, so it gets their keys when it is opened.
    """
    return Binding(action, method, description, tooltip=tooltip, id=action)


class Page(Screen[None]):
    """A full screen about one subject.

    A subclass yields a `KeyBar`. The bindings that are shown fill it, and their tooltips are the
    help. Bindings that are not shown are alternatives to these.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "help", tooltip="Shows this help."),
        Binding("escape", "back", "back", key_display="esc", tooltip="Closes this screen."),
        Binding("q", "close", "Back", show=False),
    ]

    caption = ""
    """The subject of the screen, for the title of its help."""

    @property
    def run_app(self) -> RunApp:
        """The app."""
        return run_app_of(self)

    def on_mount(self) -> None:
        """Shows the keys, and commands in progress above them."""
        keys = self.run_app.default_keys
        self._bindings = BindingsMap(
            replace(binding, key=keys.get(binding.id or "", binding.key))
            for _, binding in self._bindings
        )
        self.mount(ProgressBar(id="progress"), before=self.query_one(KeyBar))
        self.update_keys()

    def update_keys(self) -> None:
        """Shows the keys that do something now."""
        self.query_one(KeyBar).show_hints(self.key_hints())

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
        from tfckpt_tui.app.screens.help import HelpScreen, help_of_keys

        shown = self.shown_bindings()
        explained = {_method_of(binding) for binding in shown}
        keys = {
            key
            for key, active in self.active_bindings.items()
            if active.node is not self or _method_of(active.binding) not in explained
        }
        lines = help_of_keys(self.caption, shown, keys, self.app.size.width)
        self.app.push_screen(HelpScreen(lines))

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
