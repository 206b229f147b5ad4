"""What a point of a run has beside metrics. Each quantity is declared here, once.

Series, charts, reports and `metrics` are made from `QUANTITIES`. To add one, add an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from tfckpt_tui.formats import units


class Quantity(msgspec.Struct, frozen=True, eq=False):
    """A quantity that is no metric, which may have any name.

    Attributes:
        name: Its name.
        field: Its field of a `SeriesPoint`.
        show: Formats a value.
        from_zero: Whether the axis of its chart starts at zero.
    """

    name: str
    field: str
    show: Callable[[float | None], str]
    from_zero: bool = True


THROUGHPUT = Quantity(
    "throughput", "examples_per_second", lambda value: units.rate(value, " examples")
)
STEP_TIME = Quantity("step time", "step_seconds", units.step_time)

QUANTITIES = (THROUGHPUT, STEP_TIME)
"""All, in the order in which each part shows them."""

values_of = attrgetter(*(quantity.field for quantity in QUANTITIES))
"""Returns the values of a point, in the order of `QUANTITIES`."""


def quantity_words(name: str) -> Callable[[float | None], str]:
    """Returns what formats the values of the quantity with a name, or of a metric."""
    return {quantity.name: quantity.show for quantity in QUANTITIES}.get(name, units.metric)
