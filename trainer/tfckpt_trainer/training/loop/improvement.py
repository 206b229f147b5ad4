"""Whether a metric improved: then a save is due."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.loop.position import Position
from tfckpt_trainer.training.loop.worker_group import WorkerGroup


class Improvement:
    """Watches one metric, and agrees with all workers that it improved.

    The best value so far is part of the position: it is saved, and restored with a checkpoint.

    Attributes:
        metric: Which.
    """

    def __init__(self, rule: str, group: WorkerGroup, position: Position) -> None:
        """Reads the rule `METRIC:min` or `METRIC:max`.

        Raises:
            UsageError: It has another form.
        """
        self.metric, _, mode = (part.strip() for part in rule.rpartition(":"))
        if not self.metric or mode not in {"min", "max"}:
            raise UsageError(
                f"save_on_improvement is {rule!r}; expected METRIC:min or METRIC:max, such as "
                "validation_loss:min."
            )
        self._mode: Literal["min", "max"] = "min" if mode == "min" else "max"
        self._group = group
        self._position = position

    def trigger(self, newest: Mapping[str, float], *, is_reduced: bool) -> str:
        """Returns the reason for a save if the metric is better than ever; empty if not.

        Args:
            newest: What was reported in this step, of the same names on all workers.
            is_reduced: Whether its values come from an all-reduce, so that all workers have
                the same bits. Otherwise the chief's value decides.
        """
        value = newest.get(self.metric)
        if value is None:
            return ""
        better = self._is_better(value)
        if not is_reduced:
            better = self._group.any(better and self._group.is_chief)
        if not better:
            return ""
        self._position.best[self.metric] = value
        return f"{self.metric} improved to {value:.6g}"

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        best = self._position.best.get(self.metric)
        if best is None:
            return True
        return value < best if self._mode == "min" else value > best
