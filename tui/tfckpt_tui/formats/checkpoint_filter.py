"""The filter language of lists of checkpoints: `step>1000 state:verified pinned branch:2`.

Words with spaces between them must all hold. A word is one of

- a comparison, `FIELD>NUMBER` with `<`, `<=`, `>`, `>=` or `=`: of `step`, `branch`, `size` (as in
  `size>1GB`), `shards`, `age` (as in `age<2h`), or any metric (`loss<0.5`), which a checkpoint
  without the value never fulfils;
- `state:WORD`, `name:TEXT`, `why:TEXT` (why it was saved), `branch:N`;
- `pinned`, `marked`, `current`, `restorable`;
- any other text, which is looked for in the name.

A `-` before a word turns it round.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Set
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.errors import UsageError

FLAGS = ("pinned", "marked", "current", "restorable")
TEXTS = ("state", "name", "why", "branch")
NUMBERS = ("step", "branch", "size", "shards", "age")

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
_SIZES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15}
_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 3600.0}


@dataclass(frozen=True)
class Seen:
    """What a filter is asked about: a checkpoint, at a time, in a list with marks."""

    checkpoint: Checkpoint
    at: float
    marked: Set[str] = frozenset()


_Test = Callable[[Seen], bool]


@dataclass(frozen=True)
class Filter:
    """What a person typed, and what it asks for."""

    text: str
    tests: tuple[_Test, ...] = ()

    def matches(self, checkpoint: Checkpoint, at: float, marked: Set[str] = frozenset()) -> bool:
        """Whether a checkpoint fulfils every word.

        Args:
            checkpoint: The checkpoint.
            at: Seconds since the epoch, for its age.
            marked: The names of those that the person marked.
        """
        seen = Seen(checkpoint, at, marked)
        return all(test(seen) for test in self.tests)


def parse_filter(text: str) -> Filter:
    """Returns the filter that `text` stands for; an empty text lets everything through.

    Raises:
        UsageError: A word makes no sense.
    """
    return Filter(text, tuple(_turned(word) for word in text.split()))


def _turned(word: str) -> _Test:
    if len(word) > 1 and word.startswith("-"):
        test = _parse_word(word[1:])
        return lambda seen: not test(seen)
    return _parse_word(word)


def _parse_word(word: str) -> _Test:
    if word in FLAGS:
        return _flag(word)
    found = _WORD.fullmatch(word)
    if found is None:
        wanted = word.casefold()
        return lambda seen: wanted in seen.checkpoint.name.casefold()
    field, sign, value = found["field"], found["sign"], found["value"]
    if sign == ":":
        return _text(field, value)
    return _comparison(word, field, _COMPARISONS[sign], value)


def _flag(word: str) -> _Test:
    if word == "pinned":
        return lambda seen: seen.checkpoint.pinned
    if word == "marked":
        return lambda seen: seen.checkpoint.name in seen.marked
    if word == "current":
        return lambda seen: seen.checkpoint.is_head
    return lambda seen: seen.checkpoint.restorable


def _text(field: str, value: str) -> _Test:
    wanted = value.casefold()
    if field == "state":
        known = [state.value for state in CheckpointState]
        # A state is known by its first letters, so that a filter is true while it is typed.
        if not any(state.startswith(wanted) for state in known):
            raise UsageError(f"{value!r} is no state; there are {', '.join(known)}.")
        return lambda seen: seen.checkpoint.state.value.startswith(wanted)
    if field == "name":
        return lambda seen: wanted in seen.checkpoint.name.casefold()
    if field == "why":
        return lambda seen: wanted in seen.checkpoint.trigger.casefold()
    if field == "branch":
        return lambda seen: str(seen.checkpoint.branch) == value or not value
    raise UsageError(f"{field!r} is no field; there are {', '.join(TEXTS)}.")


def _comparison(
    word: str, field: str, compare: Callable[[float, float], bool], value: str
) -> _Test:
    if not value:
        # It is being typed.
        return lambda seen: True
    units = _SIZES if field == "size" else _AGES if field == "age" else {"": 1.0}
    limit = _number(word, value, units)

    def test(seen: Seen) -> bool:
        found = _value(seen, field)
        return found is not None and not math.isnan(found) and compare(found, limit)

    return test


def _number(word: str, value: str, units: dict[str, float]) -> float:
    found = _NUMBER.fullmatch(value)
    unit = found["unit"].casefold() if found is not None else ""
    if found is None or unit not in units:
        example = {len(_SIZES): "size>1GB", len(_AGES): "age<2h"}.get(len(units), "step>1000")
        raise UsageError(f"{word!r} is not understood; a comparison is as in {example}.")
    return float(found["digits"].replace("_", "").replace(",", "")) * units[unit]


def _value(seen: Seen, field: str) -> float | None:
    checkpoint = seen.checkpoint
    if field not in NUMBERS:
        return checkpoint.metrics.get(field)
    if field == "age":
        return seen.at - checkpoint.saved_at
    number = {
        "step": checkpoint.step,
        "branch": checkpoint.branch,
        "size": checkpoint.size,
        "shards": checkpoint.shards,
    }[field]
    return None if number is None else float(number)
