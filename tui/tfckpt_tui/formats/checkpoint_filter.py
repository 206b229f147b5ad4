"""The filter language of checkpoint lists: `step>1000 state:verified -pinned branch:2`.

A row matches if it matches every word. A word is one of:

- a comparison, `FIELD>NUMBER`, with `<`, `<=`, `>`, `>=` or `=`. The field is a column with numbers
  (`step`, `size>1GB`, `age<2h`) or any metric (`loss<0.5`). Unknown values never match.
- `FIELD:TEXT` for a column with words: `state:verified`, `name:b1`, `why:command`, `branch:2`,
  `parent:ckpt-300`.
- `pinned`, `current`, `marked` or `restorable`.
- any other text, which the name must contain.

A `-` before a word negates it. The fields are declared in `checkpoint_columns`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Container, Iterable

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats import checkpoint_columns
from tfckpt_tui.formats.checkpoint_columns import PLAIN, CheckpointColumn, CheckpointRow, Units

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
# Compiled when they are used: most lists are not filtered.
_WORD = r"(?s)(?P<field>[^\s<>=:]+)(?P<sign>>=|<=|>|<|=|:)(?P<value>.*)"
_NUMBER = r"(?P<digits>[-+]?[0-9][0-9_,]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)(?P<unit>[A-Za-z]*)"

_Test = Callable[[CheckpointRow], bool]


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter, and the text it was parsed from."""

    text: str
    tests: tuple[_Test, ...] = ()

    def matches(
        self, checkpoint: Checkpoint, now: float, marked: Container[str] = frozenset()
    ) -> bool:
        """Whether a checkpoint matches every word.

        Args:
            checkpoint: The checkpoint.
            now: Time at which its age is measured, in seconds since the epoch.
            marked: Names of the marked checkpoints.
        """
        row = CheckpointRow(checkpoint, now, checkpoint.name in marked)
        return all(test(row) for test in self.tests)

    def choose(
        self, checkpoints: Iterable[Checkpoint], now: float, marked: Container[str]
    ) -> list[Checkpoint]:
        """Returns the checkpoints that match every word."""
        rows = [
            CheckpointRow(checkpoint, now, checkpoint.name in marked) for checkpoint in checkpoints
        ]
        for test in self.tests:
            rows = list(filter(test, rows))
        return [row.checkpoint for row in rows]

    def find_unknown_metrics(self, checkpoints: Iterable[Checkpoint]) -> list[str]:
        """Returns the compared metrics that none of the checkpoints has."""
        matches = [_as_field(word) for word in self.text.split()]
        compared = dict.fromkeys(word["field"] for word in matches if word and word["sign"] != ":")
        metrics = {name for checkpoint in checkpoints for name in checkpoint.metrics}
        return [name for name in compared if name not in {*metrics, *_number_columns()}]


def parse_filter(text: str) -> Filter:
    """Returns the filter that `text` describes; an empty text matches everything.

    Raises:
        UsageError: A word is invalid.
    """
    return Filter(text, tuple(_parse_word(word) for word in text.split()))


def parse_complete_filter(text: str) -> Filter:
    """Returns the filter that `text` describes, of which nothing is still being typed.

    Raises:
        UsageError: A word is invalid, or lacks its value.
    """
    wanted = parse_filter(text)
    for word in text.split():
        match = _as_field(word)
        if match is None or match["value"]:
            continue
        field, is_text = match["field"], match["sign"] == ":"
        column = (_text_columns() if is_text else _number_columns()).get(field)
        declared = column and (column.text_filter if is_text else column.number_filter)
        example = declared.example if declared else f"{field}>0.5"
        raise UsageError(f"{word!r} has no value. Write it like this: {example}.")
    return wanted


def comparable_fields(checkpoints: Iterable[Checkpoint]) -> list[str]:
    """Returns the fields and metrics that a filter of these checkpoints can compare."""
    metrics = {name for checkpoint in checkpoints for name in checkpoint.metrics}
    return [*_number_columns(), *sorted(metrics - _number_columns().keys())]


def filter_help() -> str:
    """Returns the words of a filter, in sentences, with an example for each field."""
    columns = checkpoint_columns.COLUMNS
    comparisons = [c.number_filter.example for c in columns if c.number_filter]
    texts = [c.text_filter.example for c in columns if c.text_filter]
    return (
        f"Comparisons: {', '.join(comparisons)}, and any metric, as in loss<0.5. "
        f"Texts: {', '.join(texts)}. Flags: {', '.join(_flags())}. "
        "Any other word is a part of the name. A - before a word negates it."
    )


def _parse_word(word: str) -> _Test:
    if len(word) > 1 and word.startswith("-"):
        test = _parse_positive(word[1:])
        return lambda row: not test(row)
    return _parse_positive(word)


def _parse_positive(word: str) -> _Test:
    flag = _flags().get(word)
    if flag is not None:
        return flag
    match = re.fullmatch(_WORD, word)
    if match is None:
        wanted = word.casefold()
        return lambda row: wanted in row.checkpoint.name.casefold()
    field, sign, value = match["field"], match["sign"], match["value"]
    if sign == ":":
        return _parse_text(field, value)
    return _parse_comparison(word, field, _COMPARISONS[sign], value)


def _as_field(word: str) -> re.Match[str] | None:
    """Returns the parts of `FIELD>NUMBER` or `FIELD:TEXT`, without a negation."""
    return re.fullmatch(_WORD, word[1:] if len(word) > 1 and word.startswith("-") else word)


def _flags() -> dict[str, _Test]:
    flags: dict[str, _Test] = {
        "marked": lambda row: row.marked,
        "restorable": lambda row: row.checkpoint.restorable,
    }
    return flags | {c.flag: _truth(c) for c in checkpoint_columns.COLUMNS if c.flag}


def _truth(column: CheckpointColumn) -> _Test:
    return lambda row: bool(column.value(row.checkpoint))


def _parse_text(field: str, value: str) -> _Test:
    columns = _text_columns()
    column = columns.get(field)
    if column is None or column.text_filter is None:
        raise _not_text(field, value)
    wanted = value.casefold()
    choices = column.text_filter.choices

    def text_of(row: CheckpointRow) -> str:
        text = column.value(row.checkpoint)
        return "" if text is None else str(text).casefold()

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
    column = _number_columns().get(field)
    if column is None:
        _check_is_metric(field)
    if not value:
        # The number is still being typed.
        return lambda row: True
    declared = column.number_filter if column is not None else None
    units = declared.units if declared is not None else PLAIN
    limit = _parse_number(value, units)
    if limit is None:
        example = declared.example if declared is not None else f"{field}>0.5"
        raise UsageError(f"{word!r} is not a valid comparison. Write it like this: {example}.")

    def test(row: CheckpointRow) -> bool:
        metrics = row.checkpoint.metrics
        number = metrics.get(field) if column is None else column.filter_number(row)
        return number is not None and not math.isnan(number) and compare(number, limit)

    return test


def _parse_number(value: str, units: Units) -> float | None:
    """Returns the number in the base unit; None if `value` is not a number with such a unit."""
    match = re.fullmatch(_NUMBER, value)
    factor = units.factors.get(match["unit"].casefold()) if match is not None else None
    if match is None or factor is None:
        return None
    return float(match["digits"].replace("_", "").replace(",", "")) * factor


def _text_columns() -> dict[str, CheckpointColumn]:
    return {c.text_filter.field: c for c in checkpoint_columns.COLUMNS if c.text_filter}


def _number_columns() -> dict[str, CheckpointColumn]:
    return {c.number_filter.field: c for c in checkpoint_columns.COLUMNS if c.number_filter}


def _not_text(field: str, value: str) -> UsageError:
    """Returns the error for `FIELD:TEXT` with a field that is not text."""
    if field in _flags():
        return UsageError(f"{field!r} takes no value. Write it like this: {field}.")
    column = _number_columns().get(field)
    declared = column.number_filter if column is not None else None
    number = _parse_number(value, declared.units if declared is not None else PLAIN)
    if number is not None:
        # Any other name may be a metric.
        return UsageError(f"{field!r} takes a comparison. Write it like this: {field}>={value}.")
    if declared is not None:
        return UsageError(f"{field!r} takes a comparison. Write it like this: {declared.example}.")
    return UsageError(f"{field!r} is not a field. Use one of: {', '.join(_text_columns())}.")


def _check_is_metric(field: str) -> None:
    """Checks that a field to compare, which is no column with numbers, can be a metric.

    Raises:
        UsageError: It is a column with words, or a flag.
    """
    column = _text_columns().get(field)
    if column is not None and column.text_filter is not None:
        example = column.text_filter.example
        raise UsageError(f"{field!r} is text. Write it like this: {example}.")
    if field in _flags():
        raise UsageError(f"{field!r} takes no value. Write it like this: {field}.")
