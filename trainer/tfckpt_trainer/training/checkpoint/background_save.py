"""One save that is written while training goes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load_if_there, store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training.checkpoint.save_protocol import SaveOutcome, SaveRequest, Vote
from tfckpt_trainer.training.loop.worker_group import WorkerGroup

LOOK_SECONDS = 0.02
"""How often the chief looks whether the others have written their parts."""

NICENESS = 10
"""Of the thread that writes, where training needs all processors."""


class BackgroundSave:
    """Each worker writes its part in a thread and leaves its vote in a file beside it.

    The chief's thread waits for all votes and commits. So a checkpoint counts as soon as it is
    safe, however long a step takes, and no collective is needed before it is.

    Attributes:
        request: What is saved.
        outcome: On the chief, what became of it; None while it is under way.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        request: SaveRequest,
        do_part: Callable[[], Vote],
        decide: Callable[[list[Vote]], SaveOutcome],
    ) -> None:
        """Takes what is to be done.

        Args:
            run: Where.
            group: The workers, who all begin the save together.
            request: What is saved.
            do_part: Writes this worker's part; its values are taken already.
            decide: Makes a checkpoint of all parts, or nothing; called on the chief.
        """
        self.request = request
        self.outcome: SaveOutcome | None = None
        self._files = [
            run.saving_directory / f"{request.name}.vote-{index}" for index in range(group.size)
        ]
        self._group = group
        self._do_part = do_part
        self._decide = decide
        self._mute = ""
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tfckpt-save", daemon=True)

    def begin(self) -> None:
        """Starts to write."""
        self._thread.start()

    @property
    def wants_attention(self) -> bool:
        """Whether all workers should settle it: it is done, or this one cannot tell of its part."""
        return self.outcome is not None or bool(self._mute)

    def settle(self) -> SaveOutcome:
        """Waits until it is done, and returns what became of it; all workers call it together.

        Raises:
            tf.errors.OpError: A peer is gone.
        """
        if not self._group.is_chief:
            self._thread.join()
        mute = [said["mute"] for said in self._group.gather({"mute": self._mute}) if said["mute"]]
        if mute and self._group.is_chief:
            self._mute = "; ".join(mute)
            self._given_up.set()
        self._thread.join()
        told = self._group.gather(asdict(self.outcome) if self.outcome else {})[0]
        return SaveOutcome(**told)

    def wait(self, seconds: float) -> None:
        """Waits for it alone, at the end of a process that the others may have left."""
        self._thread.join(seconds)

    def _work(self) -> None:
        _yield_to_training()
        vote = self._do_part()
        if self._group.is_chief:
            self.outcome = self._decide(self._votes(vote))
            with suppress(OSError):
                # What cannot be removed does no harm; the next save removes it.
                for path in self._files:
                    path.unlink(missing_ok=True)
            return
        try:
            store(self._files[self._group.index], vote)
        except OSError as error:
            self._mute = vote.problem or f"worker {self._group.index}: {error}"

    def _votes(self, mine: Vote) -> list[Vote]:
        """Waits for the votes of all workers."""
        votes: dict[int, Vote] = {self._group.index: mine}
        while len(votes) < self._group.size:
            for index, path in enumerate(self._files):
                if index not in votes and (vote := _read(path)) is not None:
                    votes[index] = vote
            if len(votes) < self._group.size and self._given_up.wait(LOOK_SECONDS):
                return [*votes.values(), Vote(problem=self._mute)]
        return [votes[index] for index in range(self._group.size)]


def _yield_to_training() -> None:
    """Lowers the priority of this thread; only Linux gives each thread its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _read(path: Path) -> Vote | None:
    try:
        return load_if_there(path, Vote)
    except DamagedFileError as error:
        return Vote(problem=f"{path.name} cannot be read: {error}")
