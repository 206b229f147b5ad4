"""Numbers with units as short text: sizes, times, rates, metrics and counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tfckpt_trainer.words.counts import count as count
from tfckpt_trainer.words.counts import noun as noun
from tfckpt_trainer.words.counts import size as size
from tfckpt_trainer.words.counts import three_digits
from tfckpt_trainer.words.times import local_time as local_time

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def finite(number: float | None) -> float | None:
    """Returns a number, or None if it is not finite."""
    return number if number is not None and math.isfinite(number) else None


def duration(seconds: float) -> str:
    """Returns a duration in its two largest units: `850 ms`, `12 s`, `3 min 20 s`, `2 d 4 h`."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    for large, name, small, small_name in (
        (_MINUTE, "min", 1, "s"),
        (_HOUR, "h", _MINUTE, "min"),
        (_DAY, "d", _HOUR, "h"),
    ):
        if whole < large * (60 if large < _HOUR else 24 if large == _HOUR else math.inf):
            first, rest = divmod(whole, large)
            second = rest // small
            return f"{int(first)} {name}" + (f" {int(second)} {small_name}" if second else "")
    raise AssertionError("the last unit has no end")


def age(seconds: float) -> str:
    """Returns an age in one unit: `now`, `12s`, `3m`, `2h`, `5d`."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 1:
        return "now"
    for limit, unit, letter in ((_MINUTE, 1, "s"), (_HOUR, _MINUTE, "m"), (_DAY, _HOUR, "h")):
        if seconds < limit:
            return f"{int(seconds // unit)}{letter}"
    return f"{int(seconds // _DAY)}d"


def ago(seconds: float) -> str:
    """Returns how long ago something was: `just now`, `12s ago`, `3m ago`."""
    text = age(seconds)
    return "just now" if text == "now" else f"{text} ago"


def step_time(seconds: float | None) -> str:
    """Returns a step time with three digits: `4.90 ms`, `1.25 s`; `–` if unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.9995:
        return f"{three_digits(seconds * 1000)} ms"
    return f"{three_digits(seconds)} s"


def rate(per_second: float | None, unit: str = "") -> str:
    """Returns a rate with three digits: `848/s`, `12.4k/s`; `–` if unknown."""
    if per_second is None or not math.isfinite(per_second):
        return "–"
    value, letters = per_second, iter(("", "k", "M", "G"))
    letter = next(letters)
    while abs(value) >= 999.5 and letter != "G":
        value /= 1000
        letter = next(letters)
    return f"{three_digits(value)}{letter}{unit}/s"


def metric(value: float | None) -> str:
    """Returns a metric with four digits; None is `NaN`."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 3
        return f"{value:.{min(digits, 4)}f}"
    return f"{value:.2e}"


def processes(cluster: Mapping[str, Sequence[str]], workers: int) -> str:
    """Returns `2 workers`, or `2 workers, 1 parameter server`.

    Args:
        cluster: Addresses of the processes, by job.
        workers: Number of workers, used if there are no parameter servers.
    """
    if "ps" not in cluster:
        return count(workers, "worker")
    servers = count(len(cluster["ps"]), "parameter server")
    return f"{count(len(cluster.get('worker', ())), 'worker')}, {servers}"


def nice_step(rough: float) -> float:
    """Returns the next round number (1, 2 or 5 times a power of ten), at least `rough`."""
    if not 0 < rough < math.inf:
        return rough
    size = 10.0 ** math.floor(math.log10(rough))
    return next((size * nice for nice in (1, 2, 5) if size * nice >= rough), size * 10)
