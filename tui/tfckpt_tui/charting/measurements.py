"""The measurements that charts can draw: metrics, throughput and step time."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from tfckpt_tui.charting.series import Key, Other
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


THROUGHPUT = Measurement(
    "throughput",
    Other.THROUGHPUT,
    lambda value: units.rate(value, " examples"),
    from_zero=True,
)
STEP_TIME = Measurement("step time", Other.STEP_TIME, units.step_time, from_zero=True)


def named(name: str, metrics: Collection[str]) -> Measurement:
    """Returns the measurement with a name; the main metric for `loss`, if there is no such metric.

    Args:
        name: A metric, `throughput` or `step time`.
        metrics: The metrics that are reported.
    """
    others = {other.name: other for other in (THROUGHPUT, STEP_TIME)}
    return others.get(name) or metric(main_of(metrics) if name == "loss" else name)


def measurements(metrics: Collection[str]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, throughput, step time."""
    first = main_of(metrics)
    return [
        *(metric(name) for name in (first, *sorted({*metrics} - {first}))),
        THROUGHPUT,
        STEP_TIME,
    ]
