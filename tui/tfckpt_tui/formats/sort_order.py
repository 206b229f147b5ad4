"""Sort orders of a list: by a column, with the largest or the smallest value first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

RowT = TypeVar("RowT")

SortValue = float | str | None
"""What rows are compared by; None if it is unknown."""


class Order(msgspec.Struct, frozen=True):
    """A sort order: the key of a column, and whether the largest value comes first."""

    column: str
    descending: bool

    @property
    def arrow(self) -> str:
        """The sign of its direction."""
        return "▼" if self.descending else "▲"

    @property
    def reversed(self) -> Order:
        """The same column in the other direction."""
        return replace(self, descending=not self.descending)


class ListOrder(msgspec.Struct, frozen=True):
    """How a user listed the rows: the text of the filter, and the order; None is its own."""

    filter: str = ""
    order: Order | None = None


class SortBy(msgspec.Struct, Generic[RowT], frozen=True):
    """How rows are sorted by a column.

    Attributes:
        value: Returns what rows are compared by; None or NaN if it is unknown.
        descending: Whether the largest value comes first, until the order is reversed.
    """

    value: Callable[[RowT], SortValue]
    descending: bool = True

    def key(self, row: RowT) -> SortValue:
        """Returns what a row is compared by; None if it is unknown."""
        value = self.value(row)
        return None if isinstance(value, float) and math.isnan(value) else value


class SortOrders(Generic[RowT]):
    """The sort orders of a list. None is the order of the list itself."""

    def __init__(self, columns: Mapping[str, SortBy[RowT]]) -> None:
        """Makes them.

        Args:
            columns: The columns that rows can be sorted by, in the order of `next`.
        """
        self.columns = columns

    def next(self, order: Order | None, places: int) -> Order | None:
        """Returns the sort order `places` further on."""
        names: list[str | None] = [None, *self.columns]
        place = names.index(order.column if order is not None else None)
        name = names[(place + places) % len(names)]
        return None if name is None else self._first(name)

    def clicked(self, order: Order | None, column: str) -> Order | None:
        """Returns the sort order after a click on a column: its own, the reverse, then none."""
        if column not in self.columns:
            return order
        first = self._first(column)
        if order is None or order.column != column:
            return first
        return first.reversed if order == first else None

    def apply(self, order: Order, rows: Sequence[RowT]) -> list[RowT]:
        """Returns the sorted rows; unknown values come last, equal ones keep their order."""
        key = self.columns[order.column].key
        known = [row for row in rows if key(row) is not None]
        unknown = [row for row in rows if key(row) is None]
        return [*sorted(known, key=key, reverse=order.descending), *unknown]  # type: ignore[arg-type]

    def _first(self, column: str) -> Order:
        return Order(column, self.columns[column].descending)
