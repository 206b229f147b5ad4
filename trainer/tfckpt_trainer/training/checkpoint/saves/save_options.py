"""How a training run saves: in the foreground or background, in one file or in shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.storage.object_storage import refuse_url


@dataclass(frozen=True)
class SaveOptions:
    """How checkpoints are written. When they are written is up to the options of `TrainingRun`.

    Attributes:
        background: Copy the values at the step, and write them while training goes on. The
            checkpoint counts once it is flushed, verified and recorded. The last save of a run
            is always in the foreground.
        when_busy: What to do with a save that is due while another is being written. `queue`
            saves as soon as that is done, at the step reached by then; `skip` omits the save.
        spread: Have each worker write a part of the shared state. All workers must write to the
            same file system.
        largest_shard: Maximum bytes of tensors in one file. A larger tensor is split along its
            first dimension. None writes one file per writer.
        when_full: What to do if a save does not fit on the disk. `go-on` continues training
            without it; `pause` waits until there is space, and then saves. The last save of a
            run always waits.
        fallback_directory: Where the last save of a run goes if it fails in the run directory,
            also at a preemption. The next start moves it to the run directory. All workers must
            see the same directory, on another file system.
        require_exact: Refuse to train if an input pipeline, or the first step, prevents an exact
            resume. By default, as much as possible is saved, and the event log says what is
            missing.
        skip_input: After a restore, read and drop the elements that were read before, from
            pipelines of which only their number can be saved. By default these start over.
    """

    background: bool = False
    when_busy: Literal["queue", "skip"] = "queue"
    spread: bool = False
    largest_shard: int | None = None
    when_full: Literal["go-on", "pause"] = "go-on"
    fallback_directory: str | Path | None = None
    require_exact: bool = False
    skip_input: bool = False

    @property
    def needs_sharded_writer(self) -> bool:
        """Whether copying and writing are separate, which TensorFlow's own save cannot do."""
        return self.background or self.spread or self.largest_shard is not None

    def check(self) -> None:
        """Checks the values.

        Raises:
            UsageError: An option is invalid.
        """
        if self.when_busy not in {"queue", "skip"}:
            raise UsageError(f"when_busy is {self.when_busy!r}; expected 'queue' or 'skip'.")
        if self.when_full not in {"go-on", "pause"}:
            raise UsageError(f"when_full is {self.when_full!r}; expected 'go-on' or 'pause'.")
        if self.largest_shard is not None and self.largest_shard < 1:
            raise UsageError(f"largest_shard is {self.largest_shard}; it must be at least 1 byte.")
        if self.fallback_directory is not None:
            refuse_url(self.fallback_directory, "a fallback directory")
