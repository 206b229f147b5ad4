"""When a run saves, and what it keeps, if its script gives no save option."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.rules import BestBy

EVERY_SECONDS = 600.0
"""A run that is killed loses at most so many seconds."""

KEPT = 3
"""How many of the newest of these checkpoints stay."""

_BY_DEFAULT = "by default, "
"""How the triggers of these saves begin. Only their checkpoints are pruned."""

AT_END_OF_EPOCH = f"{_BY_DEFAULT}at the end of an epoch"
EVERY_TEN_MINUTES = f"{_BY_DEFAULT}every {EVERY_SECONDS / 60:g} min"


@dataclass(frozen=True)
class ByDefault:
    """The value of a save option that a script does not give.

    Attributes:
        epoch_steps: Steps of an epoch, after each of which to save; None if there are none.
        watched: The metric by which the best checkpoint stays; None for none.
    """

    epoch_steps: int | None = None
    watched: BestBy | None = None

    @property
    def policy(self) -> Policy:
        """What is kept of these saves, and everything else."""
        return Policy(rules=[KeepDefaultSaves(self.watched)])

    def __str__(self) -> str:
        epochs = "at the end of each epoch and " if self.epoch_steps is not None else ""
        best = f" and the best {self.watched.metric}" if self.watched is not None else ""
        return (
            f"{epochs}every {EVERY_SECONDS / 60:g} min, by default; the last {KEPT}{best} of "
            "these stay"
        )


BY_DEFAULT = ByDefault()


class KeepDefaultSaves:
    """Keeps the newest ones and the best one of the saves by default, and all other checkpoints."""

    def __init__(self, watched: BestBy | None) -> None:
        self._watched = watched

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[Checkpoint, str]]:
        """See `RetentionRule`. Nothing is the best as long as no checkpoint has the metric."""
        own = [c for c in checkpoints if c.trigger.startswith(_BY_DEFAULT)]
        names = {checkpoint.name for checkpoint in own}
        for checkpoint in checkpoints:
            if checkpoint.name not in names:
                yield checkpoint, "not saved by default"
        for checkpoint in own[:KEPT]:
            yield checkpoint, f"one of the last {KEPT}"
        if self._watched is not None and not self._watched.unmet(own):
            yield from self._watched.kept(own)

    def __str__(self) -> str:
        return "the default"
