"""What a declared column of a list has, whatever the list is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec


class ListCell(msgspec.Struct, frozen=True):
    """How a list of the app shows a column.

    Attributes:
        title: Heading.
        width: Minimum width in cells.
        rank: Columns with the highest rank are left out first, after those whose texts are all
            the same; 0 is always shown.
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
