"""Which metric of a run comes first."""

from __future__ import annotations

from collections.abc import Collection


def main_of(names: Collection[str]) -> str:
    """Returns the metric to draw first: `loss`, or else another loss, or else any other metric."""
    if not names or "loss" in names:
        return "loss"
    return min(names, key=lambda name: ("loss" not in name, name))
