"""Numbers of bytes as short text, the same in messages of the trainer and on screens."""

from __future__ import annotations

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
