"""Slurm's short forms of lists: `node[1-3,7],login` and `2(x3),1`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product

from tfckpt_trainer.errors import UsageError

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")

MOST_HOSTS = 65536
"""Longest list that is expanded; a longer one is a mistake."""


def expand_hosts(text: str) -> tuple[str, ...]:
    """Expands a list of hosts, in Slurm's order.

    Raises:
        UsageError: The list is invalid.
    """
    hosts: list[str] = []
    for entry in _entries(text):
        choices: list[list[str]] = []
        position = 0
        for match in _PART.finditer(entry):
            if match.start() != position:
                raise _invalid(text)
            position = match.end()
            choices.append([match[2]] if match[2] else _numbers(match[1], text))
        if position != len(entry) or not choices:
            raise _invalid(text)
        # No more than it takes to see that the list is too long.
        hosts += islice(map("".join, product(*choices)), MOST_HOSTS + 1)
        if len(hosts) > MOST_HOSTS:
            raise _invalid(text)
    return tuple(hosts)


def expand_counts(text: str) -> tuple[int, ...]:
    """Expands tasks per node: `2(x3),1` gives 2, 2, 2, 1.

    Raises:
        UsageError: The list is invalid.
    """
    counts: list[int] = []
    for entry in text.split(","):
        match = _COUNT.fullmatch(entry)
        times = int(match[2] or 1) if match else 0
        if match is None or not 0 < times <= MOST_HOSTS:
            raise _invalid(text)
        counts += [int(match[1])] * times
    return tuple(counts)


def _entries(text: str) -> Iterator[str]:
    """Splits at the commas outside of brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _numbers(text: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _invalid(whole)
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MOST_HOSTS:
            raise _invalid(whole)
        # Leading zeros count: `[08-10]` is 08, 09, 10.
        numbers += (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return numbers


def _invalid(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a list that Slurm writes; expected one such as node[1-3] or 2(x3),1."
    )
