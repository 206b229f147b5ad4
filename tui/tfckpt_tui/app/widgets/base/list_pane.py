"""A pane with a scrolling list of rows and a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose, column_of
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten
from tfckpt_tui.formats.list_columns import ListColumn
from tfckpt_tui.formats.text import clean

RowT = TypeVar("RowT")


class ListPane(Pane, Generic[RowT], can_focus=True):
    """A list that draws only its visible rows.

    The cursor stays on the row with the same key when other rows are added or removed, or on the
    first one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
    ]

    has_cursor = True
    """Whether one row is selected. Without a cursor the arrow keys scroll."""

    follows_first = False
    """Whether the cursor stays on the first row, until the user moves it or acts on a row."""

    title = ""
    """The subject of the list."""

    declared: Sequence[ListColumn[Any]] = ()
    """The columns, where they are declared for all parts of the product."""

    columns: Sequence[Column] = ()
    """The columns, if `cells` makes their texts; none if `row_line` draws the rows without."""

    at = 0.0
    """The time for which the rows are shown, in seconds since the epoch."""

    class Moved(Message):
        """The cursor moved to another row."""

        def __init__(self, list_pane: ListPane[Any]) -> None:
            super().__init__()
            self.list_pane = list_pane

        @property
        def control(self) -> ListPane[Any]:
            """The list whose cursor moved."""
            return self.list_pane

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "declared" in vars(cls):
            cls.columns = tuple(
                column_of(c.key, c.cell) for c in cls.declared if c.cell is not None
            )

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._rows: Sequence[RowT] = ()
        self._cursor = 0
        self._top = 0
        self._key: str | None = None

    # -- for subclasses ----------------------------------------------------------------------

    def heading_clicked(self, x: int) -> None:
        """Handles a click on the headings of the columns, `x` cells from the left."""

    def row_key(self, row: int) -> str:
        """Returns the key of a row; in a list with a cursor, it stays the same across updates."""
        return str(row)

    def find_row(self, key: str) -> int | None:
        """Returns the row with `key`, if there is one."""
        return next((r for r in range(self.row_count()) if self.row_key(r) == key), None)

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit into `width`."""
        return choose(self.columns, width)

    def cells(self, row: RowT, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of one row by the key of their column."""
        del layout
        cells = {}
        for column in self.declared:
            if column.cell is not None:
                text = (column.cell_text or column.text)(row, self.at)
                cells[column.key] = ((text, column.cell.style),)
        return cells

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one row."""
        layout = self.column_layout(width)
        return layout.row(self.cells(self.rows[row], layout))

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the lines above the rows, which do not scroll."""
        return (self.column_layout(width).head(),) if self.columns and self.rows else ()

    def why_empty(self) -> str:
        """Returns why there are no rows."""
        return ""

    def empty_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the lines to show if there are no rows."""
        return (line((shorten(self.why_empty(), width), "muted")),)

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return ((self.title, "title"),) if self.title else ()

    # -- behaviour ---------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[RowT]:
        """What is listed, one row each."""
        return self._rows

    @property
    def selected(self) -> RowT | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    def show_rows(self, rows: Sequence[RowT]) -> None:
        """Lists other rows."""
        self._rows = rows
        self.rows_changed()
        self.repaint()

    def row_count(self) -> int:
        """Returns the number of rows."""
        return len(self.rows)

    @property
    def cursor(self) -> int:
        """The row the cursor is on."""
        return self._cursor

    @property
    def top(self) -> int:
        """The first visible row."""
        return self._top

    def visible_rows(self) -> int:
        """Returns how many rows fit."""
        width, height = self.inner_size
        return max(1, height - len(self.head_lines(width)))

    def rows_changed(self) -> None:
        """Moves the cursor back to its row after the rows changed."""
        before = self._key
        if self.follows_first and self._top == 0:
            self._cursor = 0
        elif self._key is not None:
            row = self.find_row(self._key)
            if row is not None:
                # New rows above must not move the rows that the user is looking at.
                if self._top > 0:
                    self._top += row - self._cursor
                self._cursor = row
        self._clamp()
        if self.follows_first and before not in {None, self._key}:
            self.post_message(self.Moved(self))

    def hold_cursor(self) -> None:
        """Keeps the cursor on its row when others come above it."""
        self.follows_first = False

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the head lines and the visible rows."""
        head = list(self.head_lines(width))
        count = self.row_count()
        if count == 0:
            return [*head, *self.empty_lines(width)]
        rows = max(1, height - len(head))
        self._top = max(0, min(self._top, count - rows))
        lines = []
        for row in range(self._top, min(count, self._top + rows)):
            shown = self.row_line(row, width)
            if self.has_cursor and row == self._cursor:
                style = "cursor" if self.has_focus else "selected"
                shown = StyledLine(shown.spans, style)
            lines.append(shown)
        return [*head, *lines]

    def scrollbar(self, height: int) -> tuple[int, int] | None:
        """Returns the position of the thumb, unless all rows are visible."""
        width, _ = self.inner_size
        head = len(self.head_lines(width))
        rows, count = max(1, height - head), self.row_count()
        if count <= rows:
            return None
        length = max(1, rows * rows // count)
        start = round(self._top / (count - rows) * (rows - length))
        return head + start, length

    def move_to(self, row: int) -> None:
        """Moves the cursor to `row` and scrolls it into view."""
        before = self._cursor
        self.hold_cursor()
        self._cursor = row
        self._clamp()
        self._bring_into_view()
        self.repaint()
        if self._cursor != before:
            self.post_message(self.Moved(self))

    def scroll_rows(self, rows: int) -> None:
        """Scrolls without moving the cursor."""
        self._top = max(0, min(self._top + rows, self.row_count() - self.visible_rows()))
        self.repaint()

    def action_move(self, rows: int) -> None:
        """Moves the cursor by rows."""
        if self.has_cursor:
            self.move_to(self._cursor + rows)
        else:
            self.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Moves the cursor by pages."""
        self.action_move(pages * max(1, self.visible_rows() - 1))

    def action_edge(self, last: int) -> None:
        """Moves the cursor to the first or the last row."""
        self.action_move(self.row_count() if last else -self.row_count())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls with the wheel."""
        self.scroll_rows(3)
        event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls with the wheel."""
        self.scroll_rows(-3)
        event.stop()

    def on_click(self, event: events.Click) -> None:
        """Selects the row under the mouse, or sorts by the column of a heading.

        A double click on a row does what enter does.
        """
        width, _ = self.inner_size
        head = len(self.head_lines(width))
        y = event.y - self.inner_offset[1]
        if 0 <= y < head:
            self.heading_clicked(event.x - self.inner_offset[0])
            return
        row = y - head + self._top
        if self.has_cursor and self._top <= row < self.row_count():
            self.move_to(row)
            if event.chain == 2:
                self.app.simulate_key("enter")

    def on_focus(self) -> None:
        """Shows the focus."""
        self.repaint()

    def on_blur(self) -> None:
        """Hides the focus."""
        self.repaint()

    def on_resize(self) -> None:
        """Keeps the cursor visible."""
        if self.has_cursor:
            self._bring_into_view()
            self.repaint()

    def _clamp(self) -> None:
        count = self.row_count()
        self._cursor = max(0, min(self._cursor, count - 1))
        self._key = self.row_key(self._cursor) if count else None

    def _bring_into_view(self) -> None:
        rows = self.visible_rows()
        if self._cursor < self._top:
            self._top = self._cursor
        elif self._cursor >= self._top + rows:
            self._top = self._cursor - rows + 1


def match_note(matches: int, total: int, needle: str) -> Sequence[Span]:
    """Returns how many rows of a list match a search."""
    return ((f"{matches:,} of {total:,} match ", "label"), (clean(needle), "accent"))


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
