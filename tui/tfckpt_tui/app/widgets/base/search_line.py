"""The line in which a search is typed; it is there only while somebody searches."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input


class SearchLine(Input):
    """Tells each change while typing; enter keeps the search and hands the focus back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, so that a key typed right behind it finds the line closed already.
        Binding("enter", "keep", "Keep", show=False, priority=True),
    ]

    class Searched(Message):
        """The text that is searched for changed; empty, nothing is searched for."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, placeholder: str, focus_after: str) -> None:
        """Makes a line that is hidden.

        Args:
            placeholder: Says what can be typed.
            focus_after: Selects the widget that gets the focus when the line is closed.
        """
        super().__init__(placeholder=placeholder, id="search")
        self._focus_after = focus_after
        self.display = False

    def open(self) -> None:
        """Shows the line and lets the person type."""
        self.display = True
        # `focus` would come after a key that is typed right behind.
        self.screen.set_focus(self)

    def leave(self) -> bool:
        """Ends the search; returns whether there was one, being typed or kept."""
        was_searching = bool(self.display or self.value)
        self.value = ""
        self._close()
        return was_searching

    def action_keep(self) -> None:
        """Goes on showing what was found, without the line."""
        self._close()

    @on(Input.Changed)
    def _tell(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched(event.value))

    def _close(self) -> None:
        if self.display:
            self.display = False
            self.screen.set_focus(self.screen.query_one(self._focus_after, Widget))
