"""A list whose rows can be sorted by its columns, and marked."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace
from rich.cells import cell_len

from tfckpt_tui.app.widgets.base.columns import Column
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.marks import Marks
from tfckpt_tui.formats.sort_order import Order, SortOrders
from tfckpt_tui.formats.text import clean

REACTION_SECONDS = 1.5
"""A key that is typed so soon after the selected row has gone was meant for that one."""

RowT = TypeVar("RowT")
ItemT = TypeVar("ItemT")


class TablePane(ListPane[RowT], Generic[RowT, ItemT]):
    """A list that is sorted and marked by keys and clicks.

    Its items are the rows that can be sorted and marked; it may have others.
    """

    def __init__(
        self,
        orders: SortOrders[ItemT],
        key_of: Callable[[ItemT], str],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Makes the list.

        Args:
            orders: How its items can be sorted.
            key_of: Returns the key of an item.
            id: ID of the widget.
        """
        super().__init__(id=id)
        self._orders = orders
        self._order: Order | None = None
        self._key_of = key_of
        self._marks = Marks(key_of)
        self._lost, self._lost_at = "", float("-inf")

    # -- for subclasses ----------------------------------------------------------------------

    @property
    def all_items(self) -> tuple[ItemT, ...]:
        """All items, shown or not."""
        raise NotImplementedError

    @property
    def shown_items(self) -> Sequence[ItemT]:
        """The items that are listed."""
        raise NotImplementedError

    @property
    def selected_item(self) -> ItemT | None:
        """The item under the cursor."""
        raise NotImplementedError

    def choose_rows(self) -> None:
        """Lists the rows anew, after the order changed."""
        raise NotImplementedError

    # -- behaviour ---------------------------------------------------------------------------

    @property
    def marked(self) -> tuple[ItemT, ...]:
        """The marked items, in the order of marking."""
        return self._marks.among(self.all_items)

    @property
    def marks_are_gone(self) -> bool:
        """Whether all marked items are gone: then nothing is chosen, not even the selected one."""
        return self._marks.are_gone(self.all_items)

    def take_lost(self) -> str:
        """Returns once that what was selected or marked has just gone, as sentences, or nothing.

        A key would act on something else then, which the user may not have seen.
        """
        lost, self._lost = self._lost, ""
        if not lost or time.monotonic() - self._lost_at >= REACTION_SECONDS:
            return ""
        return f"{lost} has just gone. Look at what is selected, and press the key again."

    def remove_marks(self, keys: Collection[str]) -> None:
        """Removes the marks of items that are elsewhere now."""
        had_marks = bool(self._marks)
        self._marks.remove(keys)
        if had_marks and not self._marks:
            self._lose("What was marked")

    def _lose(self, what: str) -> None:
        self._lost, self._lost_at = what, time.monotonic()

    def rows_changed(self) -> None:
        """Moves the cursor back to its item, or notes that it has gone."""
        before = self._key
        super().rows_changed()
        if before not in {None, self._key} and before not in map(self._key_of, self.all_items):
            self._lose(clean(before or ""))

    def move_to(self, row: int) -> None:
        """Moves the cursor to `row` and scrolls it into view."""
        self._lost = ""
        super().move_to(row)

    def toggle_mark(self) -> None:
        """Marks or unmarks the selected item, and moves to the next row."""
        item = self.selected_item
        if item is not None:
            self._marks.toggle(item)
            self.move_to(self.cursor + 1)
            self.repaint()

    def toggle_all_marks(self) -> None:
        """Marks all items that are listed; if they are marked already, removes all marks."""
        self._marks.toggle_all(self.shown_items)
        self.repaint()

    def unmark(self) -> None:
        """Removes all marks."""
        self._marks.clear()
        self.repaint()

    def restore_order(self, order: Order | None) -> None:
        """Takes the sort order of an earlier session, if the list still has its column."""
        if order is None or order.column in self._orders.columns:
            self._order = order

    def sort_next(self, places: int) -> None:
        """Moves `places` further through the sort orders."""
        self._order = self._orders.next(self._order, places)
        self.choose_rows()

    def reverse_order(self) -> bool:
        """Reverses the sort order; returns whether there is one."""
        if self._order is None:
            return False
        self._order = self._order.reversed
        self.choose_rows()
        return True

    def heading_clicked(self, x: int) -> None:
        """Sorts by a column; reverses the order at the second click, and ends it at the third."""
        column = self.column_layout(self.inner_size[0]).column_at(x)
        if column is not None:
            self._order = self._orders.clicked(self._order, column)
            self.choose_rows()

    def in_order(self, items: Sequence[ItemT]) -> Sequence[ItemT]:
        """Returns items in the sort order."""
        return self._orders.apply(self._order, items) if self._order is not None else items

    def is_order(self, column: str) -> bool:
        """Whether the items are sorted by a column."""
        return self._order is not None and self._order.column == column

    def with_arrow(self, column: Column) -> Column:
        """Returns a column; the sorted one has an arrow and is always shown."""
        order = self._order
        if order is None or not self.is_order(column.key):
            return column
        title = f"{column.title} {order.arrow}"
        return replace(column, title=title, rank=0, width=max(column.width, cell_len(title)))
