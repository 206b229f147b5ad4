"""A save that is written while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.machine.priority import lower_priority
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load_if_exists, store
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveOutcome, SaveVote
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

POLL_SECONDS = 0.02
"""How often the chief looks for the votes of the other workers."""


class BackgroundSave:
    """Each worker writes its part in a thread, then stores its vote in a file beside it.

    The chief's thread waits for all votes and commits. So the checkpoint counts as soon as it is
    safe, however long a step takes, and the commit needs no collective.

    Attributes:
        record: What is saved.
        outcome: On the chief, the result; None while the save is in progress.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        record: CheckpointRecord,
        write_part: Callable[[], SaveVote],
        decide: Callable[[list[SaveVote]], SaveOutcome],
    ) -> None:
        """Prepares the save; `start` starts its thread.

        Args:
            run: The run directory.
            group: The workers, who all start the save together.
            record: What is saved.
            write_part: Writes this worker's part, whose values were copied before.
            decide: Commits the save or removes it; called on the chief.
        """
        self.record = record
        self.outcome: SaveOutcome | None = None
        self._vote_files = [
            run.saving_directory / f"{record.name}.vote-{index}" for index in range(group.size)
        ]
        self._group = group
        self._write_part = write_part
        self._decide = decide
        self._unsent = SaveVote()
        self._unsent_of_all: list[SaveVote] = []
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tfckpt-save", daemon=True)

    def start(self) -> None:
        """Starts writing."""
        self._thread.start()

    @property
    def needs_sync(self) -> bool:
        """Whether all workers should call `finish`: it is done, or a vote could not be stored."""
        return self.outcome is not None or bool(self._unsent.problem)

    def finish(self) -> SaveOutcome:
        """Waits for the end of the save and returns the result. All workers call it together.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        if not self._group.is_chief:
            self._thread.join()
        unsent = [vote for vote in self._group.all_gather(self._unsent) if vote.problem]
        if unsent and self._group.is_chief:
            self._unsent_of_all = unsent
            self._given_up.set()
        self._thread.join()
        outcome = self._group.broadcast(self.outcome, SaveOutcome)
        assert outcome is not None
        return outcome

    def wait(self, seconds: float) -> None:
        """Waits for this worker's part alone, when the process ends without the others."""
        self._thread.join(seconds)

    def _work(self) -> None:
        lower_priority()
        vote = self._write_part()
        if self._group.is_chief:
            self.outcome = self._decide(self._collect_votes(vote))
            with suppress(OSError):
                # Remaining files do no harm; the next save removes them.
                for path in self._vote_files:
                    delete_file(path)
            return
        try:
            store(self._vote_files[self._group.index], vote)
        except OSError as error:
            self._unsent = vote if vote.problem else SaveVote.against(self._group.index, error)

    def _collect_votes(self, own: SaveVote) -> list[SaveVote]:
        """Waits for the votes of all workers."""
        votes: dict[int, SaveVote] = {self._group.index: own}
        while len(votes) < self._group.size:
            for index, path in enumerate(self._vote_files):
                if index not in votes and (vote := _read_vote(path)) is not None:
                    votes[index] = vote
            if len(votes) < self._group.size and self._given_up.wait(POLL_SECONDS):
                return [*votes.values(), *self._unsent_of_all]
        return [votes[index] for index in range(self._group.size)]


def _read_vote(path: Path) -> SaveVote | None:
    try:
        return load_if_exists(path, SaveVote)
    except DamagedFileError as error:
        return SaveVote(problem=f"{path.name} cannot be read: {error}")
