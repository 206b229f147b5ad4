"""Times as text. A time from a document may be any number, and not one of a calendar."""

from __future__ import annotations

import time
from collections.abc import Callable

DATE_AND_TIME = "%Y-%m-%d %H:%M:%S"

CLOCK = "%H:%M:%S"

UNKNOWN = "unknown"
"""The text of a time that no calendar has."""

_IMPOSSIBLE = (OverflowError, ValueError, OSError)


def local_time(at: float, form: str = DATE_AND_TIME, *, impossible: str = UNKNOWN) -> str:
    """Returns seconds since the epoch as local time.

    Args:
        at: The time.
        form: Its form, as `time.strftime` takes it.
        impossible: What to return for a time that no calendar has.
    """
    return _text_of(time.localtime, at, form, impossible)


def utc_time(at: float, form: str = DATE_AND_TIME, *, impossible: str = UNKNOWN) -> str:
    """Returns seconds since the epoch as universal time; see `local_time`."""
    return _text_of(time.gmtime, at, form, impossible)


def seconds_ahead_of_utc(at: float) -> int:
    """Returns by how much local time is ahead of universal time; 0 at an impossible time."""
    try:
        return time.localtime(at).tm_gmtoff
    except _IMPOSSIBLE:
        return 0


def _text_of(
    split: Callable[[float], time.struct_time], at: float, form: str, impossible: str
) -> str:
    try:
        return time.strftime(form, split(at))
    except _IMPOSSIBLE:
        return impossible
