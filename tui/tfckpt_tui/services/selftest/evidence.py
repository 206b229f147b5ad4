"""What the self-test found, before it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.rundir.event_log import Tail, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.selftest import (
    KilledWorker,
    RecordedStep,
    killed_file,
    steps_file,
)
from tfckpt_trainer.rundir.storage.documents import load_if_exists

Steps = tuple[RecordedStep, ...]


@dataclass(frozen=True)
class Evidence:
    """What one training left.

    Attributes:
        steps: The recorded steps of each worker, in the order in which they were trained.
        killed: The worker that was killed; None if none was.
        restarts: Restarts in the event log.
        records: Records of the checkpoints, oldest first.
        verified: Results of verifying them, by name.
    """

    steps: tuple[Steps, ...]
    killed: KilledWorker | None = None
    restarts: int = 0
    records: tuple[CheckpointRecord, ...] = ()
    verified: dict[str, Verified] = field(default_factory=dict)

    def lines(self) -> Iterator[RecordedStep]:
        """Yields the steps of all workers, of the chief first."""
        for steps in self.steps:
            yield from steps


def read_evidence(run: RunDirectory, directory: Path, workers: int) -> Evidence:
    """Reads what a training left, and verifies its checkpoints.

    Args:
        run: The run directory.
        directory: Where the workers recorded their steps.
        workers: Number of workers.

    Raises:
        TfckptError: A file is damaged.
    """
    records = sorted(Records(run).look().values(), key=lambda record: record.sequence)
    found = ((record.name, verify_checkpoint(run, record.name)) for record in records)
    return Evidence(
        steps=tuple(
            tuple(Tail(steps_file(directory, worker), RecordedStep).read_new())
            for worker in range(workers)
        ),
        killed=load_if_exists(killed_file(directory), KilledWorker),
        restarts=sum(entry.kind is JournalKind.RESTART for entry in read_entries(run)),
        records=tuple(records),
        verified={name: one for name, one in found if one is not None},
    )
