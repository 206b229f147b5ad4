"""A pane of text lines."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine


class TextPane(ListPane[StyledLine]):
    """Shows lines of text, which scroll if they do not fit."""

    has_cursor = False

    def __init__(self, *, boxed: bool = True, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.boxed = boxed
        self._title: Sequence[Span] = ()
        self._note: Sequence[Span] = ()

    def show_lines(
        self, lines: Sequence[StyledLine], title: Sequence[Span] = (), note: Sequence[Span] = ()
    ) -> None:
        """Replaces the lines, the title and the note."""
        self._title, self._note = title, note
        self.show_rows(lines)

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return self._title

    def note(self) -> Sequence[Span]:
        """Returns the text at the right of the upper edge."""
        return self._note

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one line."""
        del width
        return self.rows[row]
