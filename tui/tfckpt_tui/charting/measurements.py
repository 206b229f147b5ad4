"""The measurements that charts can draw: metrics, and the other quantities."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from tfckpt_tui.charting import quantities
from tfckpt_tui.charting.quantities import QUANTITIES, Quantity
from tfckpt_tui.charting.series import Key
from tfckpt_tui.formats import units
from tfckpt_tui.formats.metric_names import main_of


class Measurement(msgspec.Struct, frozen=True):
    """A quantity that a chart can draw.

    Attributes:
        name: Its name.
        key: What it is called in a series.
        show: Formats a value.
        from_zero: Whether the axis starts at zero.
    """

    name: str
    key: Key
    show: Callable[[float | None], str] = units.metric
    from_zero: bool = False


def metric(name: str) -> Measurement:
    """Returns a metric as a measurement."""
    return Measurement(name, name)


def _of(quantity: Quantity) -> Measurement:
    return Measurement(quantity.name, quantity, quantity.show, quantity.from_zero)


THROUGHPUT, STEP_TIME = _of(quantities.THROUGHPUT), _of(quantities.STEP_TIME)


def named(name: str, metrics: Collection[str]) -> Measurement:
    """Returns the measurement with a name; the main metric for `loss`, if there is no such metric.

    Args:
        name: A metric, or another quantity.
        metrics: The metrics that are reported.
    """
    for quantity in QUANTITIES:
        if quantity.name == name:
            return _of(quantity)
    return metric(main_of(metrics) if name == "loss" else name)


def measurements(metrics: Collection[str]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, then the other quantities."""
    first = main_of(metrics)
    names = (first, *sorted({*metrics} - {first}))
    return [*map(metric, names), *map(_of, QUANTITIES)]
