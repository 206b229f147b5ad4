"""How a training run saves: in the foreground or beside training, in one file or in several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfckpt_trainer.errors import UsageError


@dataclass(frozen=True)
class SaveOptions:
    """How checkpoints are written; when, is said beside it.

    Attributes:
        background: Take the values at the step, and write them while training goes on. The
            checkpoint counts once it is flushed, verified and recorded. The last save of a run
            is always in the foreground.
        when_busy: What becomes of a save that is due while an earlier one is being written:
            `queue` does it once that is done, with the step of then; `skip` leaves it out.
        spread: Have each worker write a part of the shared state. All must write to one file
            system.
        largest_shard: Bytes of tensors in one file, at most; a larger tensor is cut by its
            first dimension. None is one file for each writer.
        when_full: What follows where a save does not fit on the disk: `go-on` trains on without
            it; `pause` waits until there is room, and saves then.
    """

    background: bool = False
    when_busy: Literal["queue", "skip"] = "queue"
    spread: bool = False
    largest_shard: int | None = None
    when_full: Literal["go-on", "pause"] = "go-on"

    @property
    def in_parts(self) -> bool:
        """Whether values and writing are apart, so that TensorFlow's own save does not do."""
        return self.background or self.spread or self.largest_shard is not None

    def check(self) -> None:
        """Refuses what makes no sense.

        Raises:
            UsageError: It names the option and its value.
        """
        if self.when_busy not in {"queue", "skip"}:
            raise UsageError(f"when_busy is {self.when_busy!r}; expected 'queue' or 'skip'.")
        if self.when_full not in {"go-on", "pause"}:
            raise UsageError(f"when_full is {self.when_full!r}; expected 'go-on' or 'pause'.")
        if self.largest_shard is not None and self.largest_shard < 1:
            raise UsageError(f"largest_shard is {self.largest_shard}; it must be at least 1 byte.")
