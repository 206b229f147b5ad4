"""What a declared column of a list has, whatever the list is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

ItemT = TypeVar("ItemT")


class ListCell(msgspec.Struct, frozen=True):
    """How a list of the app shows a column.

    Attributes:
        title: Heading.
        width: Minimum width in cells.
        rank: Columns with the highest rank are left out first; 0 is always shown. The list of
            checkpoints leaves out those before whose texts are all the same.
        align: `<` left or `>` right.
        stretch: Share of the spare width, relative to other columns.
        style: Name of the style of the text.
        widest: Width up to which the column grows to fit its texts, by the width of the list. Such
            a column is left out when all its texts are empty. By default it does not grow.
    """

    title: str
    width: int
    rank: int = 0
    align: str = ">"
    stretch: int = 0
    style: str = "value"
    widest: Callable[[int], int] | None = None


def right_aligned(cells: Iterable[ListCell | None]) -> set[int]:
    """Returns which columns of a printed table are aligned to the right; None is a number."""
    return {place for place, cell in enumerate(cells) if cell is None or cell.align == ">"}


class JsonField(msgspec.Struct, frozen=True):
    """A field of each element of a list in JSON.

    Attributes:
        name: Its name.
        kind: Its type, for the schema.
        meaning: What it is, for the reference.
    """

    name: str
    kind: Any
    meaning: str


class ListColumn(msgspec.Struct, Generic[ItemT], frozen=True):
    """One fact about what a list holds, and how each part of the product shows it.

    A column appears only in the parts that it declares.

    Attributes:
        key: Unique name.
        text: The text in all lists, at a time in seconds since the epoch; safe to show.
        cell: Column of the app's list.
        cell_text: Text in the app's list, if it differs.
        command: Heading in the table of the command.
    """

    key: str
    text: Callable[[ItemT, float], str]
    cell: ListCell | None = None
    cell_text: Callable[[ItemT, float], str] | None = None
    command: str = ""


def table_of(
    columns: Iterable[ListColumn[ItemT]], items: Iterable[ItemT], at: float
) -> tuple[Sequence[str], Iterable[Sequence[str]], set[int]]:
    """Returns the headings and rows of a printed table, and which columns are aligned to the right.

    Args:
        columns: The declared columns.
        items: What is listed.
        at: The time now, in seconds since the epoch.
    """
    shown = [column for column in columns if column.command]
    rows = [[column.text(item, at) for column in shown] for item in items]
    return [column.command for column in shown], rows, right_aligned(c.cell for c in shown)


def record_of(name: str, sentence: str, fields: Iterable[JsonField]) -> type[msgspec.Struct]:
    """Returns the record of an element of a list in JSON.

    Args:
        name: Name of the record.
        sentence: What it is.
        fields: Its fields, in their order.
    """
    fields = list(fields)
    meanings = "\n".join(f"    {field.name}: {field.meaning}" for field in fields)
    return msgspec.defstruct(
        name,
        [(field.name, field.kind) for field in fields],
        namespace={"__doc__": f"{sentence}\n\nAttributes:\n{meanings}"},
        frozen=True,
    )
