"""Detects metrics that become NaN or infinite, and then looks for such values in checkpoints."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tfckpt_trainer.catalog.directory.checkpoints import may_be_finite, newest_finite
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_values
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.machine.priority import lower_priority
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import NotFiniteMetric

RECOVERED_AFTER = 20
"""Finite values in a row after which a metric has recovered: NaN is a new event then."""

MOST_CHECKED = 3
"""Checkpoints that are read at most. Only the step before the first NaN can spoil one."""


@dataclass
class _Episode:
    """A metric that is or was not finite; `finite` counts its finite values since then."""

    metric: NotFiniteMetric
    finite: int = 0


class FiniteWatch:
    """Follows the metrics of each step. The heartbeat reads `current` and `take_begun`.

    Attributes:
        current: The metrics whose newest value is not finite.
    """

    def __init__(self) -> None:
        self._episodes: dict[str, _Episode] = {}
        self._begun: deque[NotFiniteMetric] = deque()
        self.current: tuple[NotFiniteMetric, ...] = ()

    def step_done(self, step: int, metrics: Mapping[str, float]) -> None:
        """Looks at the metrics that were reported in a step."""
        changed = False
        for name, value in metrics.items():
            if not math.isfinite(value):
                changed |= self._is_broken(name, str(value), step)
            elif name in self._episodes:
                changed |= self._recovers(name)
        if changed:
            self._update()

    def restored(self, metrics: Sequence[NotFiniteMetric]) -> None:
        """Takes the metrics that were not finite when the restored checkpoint was saved."""
        self._episodes = {metric.name: _Episode(metric) for metric in metrics}
        self._update()

    def take_begun(self) -> list[NotFiniteMetric]:
        """Returns the metrics that became NaN or infinite since the last call."""
        taken = []
        while self._begun:
            taken.append(self._begun.popleft())
        return taken

    def _is_broken(self, name: str, value: str, step: int) -> bool:
        """Records a value that is not finite; returns whether `current` changes."""
        episode = self._episodes.get(name)
        if episode is None:
            metric = NotFiniteMetric(name=name, value=value, step=step)
            self._episodes[name] = _Episode(metric)
            self._begun.append(metric)
            return True
        was_finite, episode.finite = episode.finite > 0, 0
        if was_finite or episode.metric.value != value:
            since = step if was_finite else episode.metric.step
            episode.metric = NotFiniteMetric(name=name, value=value, step=since)
            return True
        return False

    def _recovers(self, name: str) -> bool:
        """Counts a finite value; returns whether `current` changes."""
        episode = self._episodes[name]
        episode.finite += 1
        if episode.finite >= RECOVERED_AFTER:
            del self._episodes[name]
        return episode.finite == 1

    def _update(self) -> None:
        # Replaced as a whole, because another thread reads it.
        self.current = tuple(
            episode.metric for episode in self._episodes.values() if not episode.finite
        )


def check_values(run: RunDirectory, on_not_finite: Callable[[str, int], None]) -> None:
    """Reads the newest checkpoints with finite metrics, until one has finite values.

    The results are stored. Alerts and retention use them. Runs in a thread of its own.

    Args:
        run: The run directory.
        on_not_finite: Called with a checkpoint and the number of its tensors that are not finite.
    """
    lower_priority()
    # A checkpoint may be pruned or saved again meanwhile: then it stays unchecked.
    with suppress(TfckptError, OSError):
        for _ in range(MOST_CHECKED):
            found = Catalog(run).scan(time.time(), quick=True)
            # If a metric that is rarely reported was NaN in all, their values may be finite.
            checkpoint = newest_finite(found) or next(filter(may_be_finite, found), None)
            if checkpoint is None or checkpoint.not_finite_tensors is not None:
                return
            verification = verify_values(run, checkpoint.name)
            if verification is None:
                return
            if verification.not_finite:
                on_not_finite(checkpoint.name, len(verification.not_finite))
