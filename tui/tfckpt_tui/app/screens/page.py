"""The base of the whole screens beside the dashboard: their keys stand in a footer and a help."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_tui.app.widgets.base.keybar import KeyBar, KeyHint
from tfckpt_tui.app.widgets.base.search_input import SearchInput

if TYPE_CHECKING:
    from tfckpt_tui.app.app import TfckptApp


def search_binding(description: str, tooltip: str) -> Binding:
    """Returns the binding that opens a search line.

    With priority, so that what is typed right behind it goes into the line already.
    """
    return Binding("slash", "search", description, tooltip=tooltip, priority=True)


_AT_THE_END = {"help", "back"}


class Page(Screen[None]):
    """One subject on the whole screen.

    A subclass yields a `KeyBar`. Its bindings that are shown fill it, and their tooltips are the
    help; a binding that is not shown is another way to what the footer has already.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "help", tooltip="Shows this."),
        Binding("escape", "back", "back", key_display="esc", tooltip="Back to where you were."),
        Binding("q", "close", "Back", show=False),
    ]

    caption = ""
    """What the screen is about, for its help."""

    @property
    def tfckpt(self) -> TfckptApp:
        """The app, by its own type."""
        return cast("TfckptApp", self.app)

    def on_mount(self) -> None:
        """Shows the keys."""
        self.query_one(KeyBar).show_hints(self.key_hints())

    def shown_bindings(self) -> list[Binding]:
        """Returns this screen's bindings that can be used now, each once."""
        by_action: dict[str, Binding] = {}
        for active in self.active_bindings.values():
            if active.node is self and active.binding.show and active.enabled:
                by_action.setdefault(active.binding.action, active.binding)
        return list(by_action.values())

    def key_hints(self) -> list[KeyHint]:
        """Returns what the footer shows."""
        return [
            KeyHint(
                binding.action,
                key_of(binding),
                binding.description,
                is_last=binding.action in _AT_THE_END,
            )
            for binding in self.shown_bindings()
        ]

    def action_help(self) -> None:
        """Shows the keys of this screen."""
        from tfckpt_tui.app.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.tfckpt.config, self.caption, self.shown_bindings()))

    def action_back(self) -> None:
        """Ends a search, or closes the screen."""
        if not any(line.leave() for line in self.query(SearchInput)):
            self.dismiss()

    def action_close(self) -> None:
        """Closes the screen."""
        self.dismiss()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the key that opens the search line to the line while it is open."""
        if action == "search" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Opens the search line."""
        self.query_one(SearchInput).open()

    @on(KeyBar.Chosen)
    async def _press(self, event: KeyBar.Chosen) -> None:
        event.stop()
        await self.run_action(event.action)


def key_of(binding: Binding) -> str:
    """Returns the key as it is written on the keyboard."""
    return binding.key_display or format_key(binding.key)
