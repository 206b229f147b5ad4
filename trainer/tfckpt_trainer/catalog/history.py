"""What was noted of saves and restores: records, the last restore, and where a start goes on."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file
from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.documents import Documents
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.journal import Tail
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records import CheckpointRecord, Head, SaveOverhead


@dataclass(frozen=True)
class Continuation:
    """Where a cold start goes on: from which checkpoint, on which branch.

    Attributes:
        sequence: The highest place in the order of saves and restores so far.
    """

    checkpoint: str
    branch: int
    sequence: int


class Records(Documents[CheckpointRecord]):
    """The records of a run, read again only where a file was replaced.

    To each is added what was measured after it was written.
    """

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run.records_directory, CheckpointRecord)
        self._new_overheads = Tail(run.overheads, SaveOverhead)
        self._overheads: dict[tuple[str, int], SaveOverhead] = {}

    def refresh(self, at_most: int | None = None) -> set[str]:
        """Looks again; see `Documents.refresh`."""
        changed = super().refresh(at_most)
        measured = set()
        for overhead in self._new_overheads.read_new():
            self._overheads[overhead.checkpoint, overhead.sequence] = overhead
            measured.add(overhead.checkpoint)
        for name in changed | measured:
            record = self.found.get(name)
            overhead_of = self._overheads.get((name, record.sequence)) if record else None
            if record is not None and record.cost is not None and overhead_of is not None:
                cost = replace(
                    record.cost,
                    slowing_seconds=overhead_of.slowing_seconds,
                    slowing_steps=overhead_of.slowing_steps,
                )
                self.found[name] = replace(record, cost=cost)
        return changed | (measured & self.found.keys())


def continuation(run: RunDirectory) -> Continuation | None:
    """Returns where a cold start goes on, or None where there is nothing to go on from.

    It is the checkpoint that was saved or restored last, of those that were committed. A
    directory without records follows TensorFlow's state file. Whether it can be restored is
    for the start to find out: the next one to try is the next newest of the catalog.
    """
    records = Records(run).look()
    committed = {name for name in records if index_path(run.root / name).is_file()}
    return continuation_from(records, read_head(run), read_list(run), committed)


def continuation_from(
    records: Mapping[str, CheckpointRecord],
    head: Head | None,
    state: StateFile | None,
    committed: Container[str],
) -> Continuation | None:
    """The rule of `continuation`, from what was read.

    Args:
        records: By name.
        head: The last restore.
        state: TensorFlow's state file.
        committed: The names that have an index: a record alone is a save that was cut off.
    """
    saves = [record for record in records.values() if record.name in committed]
    newest = max(saves, key=lambda record: (record.sequence, record.name), default=None)
    highest = max((record.sequence for record in records.values()), default=0)
    if head is not None:
        highest = max(highest, head.sequence)
        if newest is None or head.sequence > newest.sequence:
            return Continuation(head.checkpoint, head.branch, highest)
    if newest is not None:
        return Continuation(newest.name, newest.branch, highest)
    if state is not None and state.latest_name:
        said = parse_checkpoint_name(state.latest_name)
        return Continuation(state.latest_name, said.branch if said else 0, highest)
    return None


def in_order_of_use(checkpoints: Sequence[Checkpoint], head: Head | None) -> list[Checkpoint]:
    """Returns checkpoints in the order in which a start tries them, if the first choice is bad.

    That is newest first, but the one that was restored last comes before all that had been saved
    before that restore: training had given those up for it.

    Args:
        checkpoints: Newest first.
        head: The last restore.
    """
    restored = [c for c in checkpoints if head is not None and c.name == head.checkpoint]
    if head is None or not restored:
        return list(checkpoints)
    others = [c for c in checkpoints if c.name != head.checkpoint]
    for place, checkpoint in enumerate(others):
        if checkpoint.sequence is not None and checkpoint.sequence < head.sequence:
            return [*others[:place], *restored, *others[place:]]
    return list(checkpoints)


def read_head(run: RunDirectory) -> Head | None:
    """Returns the last restore, or None where there was none or its note is damaged."""
    try:
        return load_if_there(run.head_file, Head)
    except DamagedFileError:
        return None


def read_list(run: RunDirectory) -> StateFile | None:
    """Returns TensorFlow's list of checkpoints, or None where there is none to be used."""
    try:
        return read_state_file(run.state_file)
    except DamagedFileError:
        return None


def entries_of(directory: Path) -> list[os.DirEntry[str]]:
    """Returns what is in `directory`, which need not exist."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
