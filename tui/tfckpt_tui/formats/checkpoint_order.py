"""Orders of a list of checkpoints: by any column, what has no value always last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint

_Value = float | str | None


@dataclass(frozen=True)
class Order:
    """By which column, and whether the largest comes first."""

    column: str
    descending: bool

    def apply(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Returns checkpoints in this order; of equal ones the earlier stays first."""
        value = COLUMNS[self.column].value
        known = [c for c in checkpoints if _is_known(value(c))]
        rest = [c for c in checkpoints if not _is_known(value(c))]
        return [*sorted(known, key=value, reverse=self.descending), *rest]  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Sorting:
    value: Callable[[Checkpoint], _Value]
    descending: bool
    """How it is sorted first: what is looked for is seldom the smallest number."""


COLUMNS = {
    "step": _Sorting(lambda c: c.step, descending=True),
    "age": _Sorting(lambda c: -c.saved_at, descending=False),
    "size": _Sorting(lambda c: c.size, descending=True),
    "loss": _Sorting(lambda c: c.metrics.get("loss"), descending=False),
    "state": _Sorting(lambda c: c.state.value, descending=False),
    "name": _Sorting(lambda c: c.name, descending=False),
    "branch": _Sorting(lambda c: c.branch, descending=True),
    "shards": _Sorting(lambda c: c.shards, descending=True),
    "duration": _Sorting(
        lambda c: c.record.duration_seconds if c.record is not None else None, descending=True
    ),
}
"""By the keys of the columns of the history, in the order in which they are gone through."""


def next_order(order: Order | None, places: int) -> Order | None:
    """Returns the order so many columns further; None, the history's own, is one of them."""
    names: list[str | None] = [None, *COLUMNS]
    place = names.index(order.column if order is not None else None)
    name = names[(place + places) % len(names)]
    return Order(name, COLUMNS[name].descending) if name is not None else None


def _is_known(value: _Value) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))
