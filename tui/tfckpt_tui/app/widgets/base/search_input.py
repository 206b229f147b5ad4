"""The search line, which is visible only while it is used."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input


class SearchInput(Input):
    """Posts each change of the search; enter keeps the search and closes the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, so that the line is closed before the next key arrives.
        Binding("enter", "keep", "Keep", show=False, priority=True),
    ]

    class Searched(Message):
        """The search text changed; an empty text ends the search."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, placeholder: str, focus_after: str, *, text: str = "") -> None:
        """Creates a hidden search line.

        Args:
            placeholder: Hint shown in the empty line.
            focus_after: Selector of the widget that gets the focus when the line closes.
            text: The search to begin with.
        """
        super().__init__(text, placeholder=placeholder, id="search")
        self._focus_after = focus_after
        self.display = False

    def open(self) -> None:
        """Shows the line and gives it the focus."""
        self.display = True
        # `focus` would take effect after the next key.
        self.screen.set_focus(self)

    def leave(self) -> bool:
        """Ends the search; returns whether there was one."""
        was_searching = bool(self.display or self.value)
        self.value = ""
        self._close()
        return was_searching

    def action_keep(self) -> None:
        """Closes the line and keeps the search."""
        self._close()

    @on(Input.Changed)
    def _tell(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched(event.value))

    def _close(self) -> None:
        if self.display:
            self.display = False
            self.screen.set_focus(self.screen.query_one(self._focus_after, Widget))


def search_binding(description: str, tooltip: str) -> Binding:
    """Returns the binding that opens a search line.

    It has priority, so that characters typed right after the key reach the line.
    """
    return Binding("slash", "search", description, tooltip=tooltip, priority=True)
