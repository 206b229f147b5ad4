"""Numbers with their noun, bytes, and few of many names, the same in messages and on screens."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """Returns a number of bytes with three digits: `999 B`, `1.71 MB`, `123 GB`."""
    value, unit = float(count), 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    return f"{three_digits(value) if unit else f'{value:.0f}'} {_UNITS[unit]}"


def three_digits(value: float) -> str:
    """Returns a number with three digits: `1.71`, `17.1`, `171`; one from 1,000 on with all."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


MOST_NAMED = 10
"""How many names a message gives, if nothing else limits it: two or three lines of a terminal."""

MOST_JOINED = 3
"""How many names a sentence joins."""


def count(number: int, singular: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 checkpoint`, `3 checkpoints`."""
    return f"{number:,} {noun(number, singular, plural)}"


def all_of(number: int, singular: str, plural: str = "") -> str:
    """Returns the beginning of a sentence on all things: `The only worker`, `All 2 workers`."""
    return f"The only {singular}" if number == 1 else f"All {count(number, singular, plural)}"


def all_are(number: int, singular: str) -> str:
    """Returns the same with its verb: `The only restart is`, `All 3 restarts are`."""
    return f"{all_of(number, singular)} {noun(number, 'is', 'are')}"


def noun(number: int, singular: str, plural: str = "") -> str:
    """Returns the noun for a number: `checkpoint`, `checkpoints`."""
    return singular if number == 1 else plural or f"{singular}s"


def few_of(
    names: Sequence[str], most: int = MOST_NAMED, *, total: int = 0, separator: str = ", "
) -> str:
    """Returns names; of many, the first ones and how many more there are: `a, b and 3 more`.

    Args:
        names: All names, or the first ones.
        most: How many to give.
        total: How many there are, if `names` are not all.
        separator: What stands between two.
    """
    more = max(total, len(names)) - min(most, len(names))
    return separator.join(names[:most]) + (f" and {more:,} more" if more else "")


def join_names(names: Sequence[str]) -> str:
    """Joins names in a sentence: `a, b and c`; of more, `a, b, c and 2 more`."""
    if 1 < len(names) <= MOST_JOINED:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return few_of(names, MOST_JOINED)


def first_lines(lines: Sequence[str], most: int) -> list[str]:
    """Returns lines; of many, the first ones and one that says how many more there are."""
    more = len(lines) - most
    return [*lines[:most], f"and {more:,} more"] if more > 0 else list(lines)
