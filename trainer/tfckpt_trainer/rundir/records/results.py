"""Values that users' own actions found for a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from tfckpt_trainer.rundir.storage.documents import SealedDocument

MOST_VALUES = 32
"""Number of values that one action may store for a checkpoint."""

MOST_ACTIONS = 64
"""Number of actions whose results are kept for a checkpoint."""

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_./@-]{0,63}$"
"""What the name of a value looks like: as those of metrics, so that filters can compare it."""

_Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one action found.

    Attributes:
        at: When it was done (seconds since the epoch).
        values: The values by name; only finite ones count.
    """

    at: float
    values: Annotated[dict[_Name, float], msgspec.Meta(max_length=MOST_VALUES)]


def values_of(results: Mapping[str, ActionResult]) -> dict[str, float]:
    """Returns the newest value of each name.

    Args:
        results: By action, the oldest first.
    """
    return {
        name: value
        for result in results.values()
        for name, value in result.values.items()
        if math.isfinite(value)
    }


class ResultsRecord(SealedDocument, frozen=True, kw_only=True):
    """`results/NAME.json`: what users' own actions found for a checkpoint.

    Attributes:
        name: Name of the checkpoint.
        index: Size, modification time in nanoseconds and inode of its index file. The results are
            valid only while these are unchanged.
        actions: What each action found last, by the name of the action.
    """

    name: str
    index: tuple[int, int, int]
    actions: Annotated[dict[_Name, ActionResult], msgspec.Meta(max_length=MOST_ACTIONS)]
