"""Checks that the disk has room for a checkpoint, and explains what to do if not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saves.save_protocol import AFTER_ERROR
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.state.variables import byte_size
from tfckpt_trainer.training.state.walk import Found
from tfckpt_trainer.words.counts import size

MARGIN_BYTES = 16 << 20
"""Disk space that stays free after a save."""


class DiskSpace:
    """Compares the free space of the run directory with the size of a checkpoint.

    Attributes:
        worker_bytes: Size of the workers' own state in the last checkpoint, such as the buffers of
            their input pipelines.
    """

    def __init__(
        self,
        run: RunDirectory,
        shared: SharedState,
        options: SaveOptions,
        make_room: Callable[[int], int],
    ) -> None:
        """Creates the check.

        Args:
            run: The run directory.
            shared: What is saved.
            options: What happens to training if a save does not fit.
            make_room: Empties the trash until so many bytes are free, if the policy allows it;
                returns how many were freed.
        """
        self._run = run
        self._shared = shared
        self._waits = options.when_full != "go-on"
        self._make_room = make_room
        self.worker_bytes = 0

    def missing_bytes(self) -> int:
        """Returns how many bytes are missing for one more save; 0 or less if it fits."""
        return self._missing(self._shared.size + self.worker_bytes)

    def reserve(self, record: CheckpointRecord, found: Iterable[Found]) -> str:
        """Makes room for a save if that is needed and allowed.

        Args:
            record: What is known of the checkpoint.
            found: All state of the script.

        Returns:
            Why the save does not fit; empty if it fits.
        """
        stored = (one.thing for one in found if one.tracked and one.rule.is_variable)
        needed = sum(map(byte_size, stored)) + self.worker_bytes
        missing = self._missing(needed)
        if missing > 0 and self._make_room(missing):
            missing = self._missing(needed)
        return self._refusal(record, needed, missing) if missing > 0 else ""

    def _missing(self, needed: int) -> int:
        return needed + MARGIN_BYTES - shutil.disk_usage(self._run.root).free

    def _refusal(self, record: CheckpointRecord, needed: int, missing: int) -> str:
        free = needed + MARGIN_BYTES - missing
        trashed = trashed_bytes(self._run)
        trash = f"The trash holds {size(trashed)}. " if trashed else ""
        return (
            f"{record.name} needs about {size(needed)}, and {size(MARGIN_BYTES)} have to stay "
            f"free; {size(free)} are free in {self._run.root}. {trash}"
            f"{self._consequence(record)}"
        ).rstrip()

    def _consequence(self, record: CheckpointRecord) -> str:
        """Returns how the refusal changes training; empty if it does not."""
        if record.trigger in {"preemption", "interrupt", AFTER_ERROR}:
            return "Training ends without a save of its last steps."
        if record.trigger in {"stop", "end"}:
            return "The run waits for room, saves by itself, and ends then."
        # A command asks for a single save; only scheduled saves wait for room.
        return "Training waits." if self._waits and record.command is None else ""
