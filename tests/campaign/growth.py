"""Whether what is open for long needs more and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple


class Used(NamedTuple):
    """What a process and a run directory use.

    Attributes:
        descriptors: Open files of the process.
        threads: Its threads.
        size: Its resident memory in bytes.
        names: Files and directories of the run.
    """

    descriptors: int
    threads: int
    size: int
    names: int


MORE = Used(descriptors=3, threads=3, size=24 << 20, names=2)
"""How much the last rounds may need beyond earlier ones. The first restore makes two files."""


def grown(kind: str, used: Sequence[Used]) -> Iterator[str]:
    """Yields what the second half of the rounds needs more than the first may explain."""
    quarter = len(used) // 4
    before, after = used[quarter : 2 * quarter], used[-quarter:]
    for field in Used._fields:
        was, is_now = (median(getattr(one, field) for one in part) for part in (before, after))
        if is_now > was + getattr(MORE, field):
            yield f"{kind}: {field} grew from {was:,.0f} to {is_now:,.0f} in {len(used)} rounds"
