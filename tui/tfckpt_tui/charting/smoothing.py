"""Smoothing of curves: the debiased exponential moving average of TensorBoard."""

from __future__ import annotations

from msgspec.structs import replace

from tfckpt_tui.charting.curves import Curve, Place

WEIGHTS = (0.0, 0.6, 0.9, 0.97, 0.99)
"""The weights that the chart page offers; 0 does not smooth."""


def smoothed(curve: Curve, weight: float) -> Curve:
    """Returns a curve whose points are the moving average of its values so far.

    Values that are not finite stay gaps, and the average continues after them.

    Args:
        curve: The curve.
        weight: The part of the average that stays at each point, 0 to less than 1.
    """
    if not weight:
        return curve
    last, unseen, share = 0.0, 1.0, 1 - weight
    points: list[Place] = []
    add = points.append
    for x, y in curve.points:
        if y is None:
            add((x, None))
            continue
        last = last * weight + share * y
        # The average began at 0; this takes that 0 out of it.
        unseen *= weight
        add((x, last / (1 - unseen)))
    return replace(curve, points=tuple(points))
