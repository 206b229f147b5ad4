"""The filter language of checkpoint lists: `step>1000 state:verified -pinned branch:2`.

A row matches if it matches every word. A word is one of:

- a comparison, `FIELD>NUMBER`, with `<`, `<=`, `>`, `>=` or `=`. The field is a column with numbers
  (`step`, `size>1GB`, `age<2h`) or any metric (`loss<0.5`). Unknown values never match.
- `FIELD:TEXT` for a column with words: `state:verified`, `name:b1`, `why:command`, `branch:2`.
- `pinned`, `current`, `marked` or `restorable`.
- any other text, which the name must contain.

A `-` before a word negates it. The fields are declared in `checkpoint_columns`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Set
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats import checkpoint_columns
from tfckpt_tui.formats.checkpoint_columns import PLAIN, CheckpointColumn, Row, Units

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_WORD = re.compile(r"(?P<field>[^\s<>=:]+)(?P<sign>>=|<=|>|<|=|:)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(
    r"(?P<digits>[-+]?[0-9][0-9_,]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)(?P<unit>[A-Za-z]*)"
)

_Test = Callable[[Row], bool]


@dataclass(frozen=True)
class Filter:
    """A parsed filter, and the text it was parsed from."""

    text: str
    tests: tuple[_Test, ...] = ()

    def matches(self, checkpoint: Checkpoint, now: float, marked: Set[str] = frozenset()) -> bool:
        """Whether a checkpoint matches every word.

        Args:
            checkpoint: The checkpoint.
            now: Time at which its age is measured, in seconds since the epoch.
            marked: Names of the marked checkpoints.
        """
        row = Row(checkpoint, now, checkpoint.name in marked)
        return all(test(row) for test in self.tests)


def parse_filter(text: str) -> Filter:
    """Returns the filter that `text` describes; an empty text matches everything.

    Raises:
        UsageError: A word is invalid.
    """
    return Filter(text, tuple(_parse_word(word) for word in text.split()))


def _parse_word(word: str) -> _Test:
    if len(word) > 1 and word.startswith("-"):
        test = _parse_positive(word[1:])
        return lambda row: not test(row)
    return _parse_positive(word)


def _parse_positive(word: str) -> _Test:
    flag = _flags().get(word)
    if flag is not None:
        return flag
    found = _WORD.fullmatch(word)
    if found is None:
        wanted = word.casefold()
        return lambda row: wanted in row.checkpoint.name.casefold()
    field, sign, value = found["field"], found["sign"], found["value"]
    if sign == ":":
        return _parse_text(field, value)
    return _parse_comparison(word, field, _COMPARISONS[sign], value)


def _flags() -> dict[str, _Test]:
    flags: dict[str, _Test] = {
        "marked": lambda row: row.marked,
        "restorable": lambda row: row.checkpoint.restorable,
    }
    return flags | {c.flag: _truth(c) for c in checkpoint_columns.COLUMNS if c.flag}


def _truth(column: CheckpointColumn) -> _Test:
    return lambda row: bool(column.value(row.checkpoint))


def _parse_text(field: str, value: str) -> _Test:
    columns = {c.text_filter.field: c for c in checkpoint_columns.COLUMNS if c.text_filter}
    column = columns.get(field)
    if column is None or column.text_filter is None:
        raise UsageError(f"{field!r} is not a field. Use one of: {', '.join(columns)}.")
    wanted = value.casefold()
    choices = column.text_filter.choices

    def text_of(row: Row) -> str:
        return str(column.value(row.checkpoint)).casefold()

    if choices:
        # The first letters suffice, so that a filter is valid while it is typed.
        if not any(choice.startswith(wanted) for choice in choices):
            raise UsageError(f"{value!r} is not a {field}. Use one of: {', '.join(choices)}.")
        return lambda row: text_of(row).startswith(wanted)
    if column.text_filter.exact:
        return lambda row: text_of(row) == wanted or not wanted
    return lambda row: wanted in text_of(row)


def _parse_comparison(
    word: str, field: str, compare: Callable[[float, float], bool], value: str
) -> _Test:
    if not value:
        # The number is still being typed.
        return lambda row: True
    columns = {c.number_filter.field: c for c in checkpoint_columns.COLUMNS if c.number_filter}
    column = columns.get(field)
    units = column.number_filter.units if column is not None and column.number_filter else PLAIN
    limit = _parse_number(word, value, units)

    def test(row: Row) -> bool:
        metrics = row.checkpoint.metrics
        found = metrics.get(field) if column is None else column.filter_number(row)
        return found is not None and not math.isnan(found) and compare(found, limit)

    return test


def _parse_number(word: str, value: str, units: Units) -> float:
    found = _NUMBER.fullmatch(value)
    unit = found["unit"].casefold() if found is not None else ""
    if found is None or unit not in units.factors:
        raise UsageError(
            f"{word!r} is not a valid comparison. Write it like this: {units.example}."
        )
    return float(found["digits"].replace("_", "").replace(",", "")) * units.factors[unit]
