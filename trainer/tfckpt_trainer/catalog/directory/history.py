"""The recorded history of saves and restores, and which checkpoint a cold start resumes from."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, trained_first
from tfckpt_trainer.catalog.directory.document_set import Documents
from tfckpt_trainer.catalog.directory.packed_record import PackedRecord, RecordPacker
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SaveOverhead
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import encode, load_if_exists
from tfckpt_trainer.rundir.storage.files import list_directory
from tfckpt_trainer.rundir.storage.tail import Tail

_INDEX = ".index"


class ResumePoint(msgspec.Struct, frozen=True):
    """The checkpoint and the branch that a cold start resumes from.

    Attributes:
        branch: None if it is not recorded; then it is the branch that a restore creates.
        sequence: The highest position in the order of saves and restores so far.
        values: Hyperparameters that the start changes after the restore, by name.
    """

    checkpoint: str
    branch: int | None
    sequence: int
    values: Mapping[str, float] = {}


class Saved(msgspec.Struct, frozen=True, gc=False):
    """What of a record the history needs; see `CheckpointRecord`."""

    name: str
    step: int
    branch: int
    sequence: int
    derived: Derivation | None


class RunHistory(msgspec.Struct, frozen=True):
    """All records of saves and restores, and which of them are damaged.

    Attributes:
        records: The saves with a record, by checkpoint.
        head: The last restore.
        latest: The newest checkpoint according to TensorFlow's state file; empty if there is none.
        damaged: Checkpoints whose record and its copy cannot be read.
        head_is_damaged: Whether `head.json` and its copy cannot be read.
        has_others: Whether the directory has checkpoints without a record. Known if neither
            records of saves nor the state file name a checkpoint to start from.
    """

    records: Mapping[str, Saved | PackedRecord]
    head: Head | None
    latest: str
    damaged: AbstractSet[str] = frozenset()
    head_is_damaged: bool = False
    has_others: bool = False

    @property
    def needs_state_file(self) -> bool:
        """Whether damage may hide that the newest one in the state file was used last."""
        return self.head_is_damaged or self.latest in self.damaged


class Records(Documents[CheckpointRecord, PackedRecord]):
    """The records of a run, each with the save overhead that was measured after the save."""

    def __init__(self, run: RunDirectory, only: AbstractSet[str] | None = None) -> None:
        self._pack = RecordPacker().pack
        super().__init__(run.records_directory, CheckpointRecord, self._pack, only)
        self._new_overheads = Tail(run.overheads, SaveOverhead)
        self._overheads: dict[tuple[str, int], SaveOverhead] = {}

    def refresh(
        self, at_most: int | None = None, saved_at: Callable[[str], float] | None = None
    ) -> set[str]:
        """Reads new and replaced records; see `Documents.refresh`."""
        changed = super().refresh(at_most, saved_at)
        measured = set()
        for line in self._new_overheads.read_new():
            self._overheads[line.checkpoint, line.sequence] = line
            measured.add(line.checkpoint)
        for name in changed | measured if self._overheads else ():
            packed = self.found.get(name)
            overhead = self._overheads.get((name, packed.sequence)) if packed else None
            record = packed.unpack() if packed is not None and overhead is not None else None
            if record is not None and record.cost is not None and overhead is not None:
                cost = replace(
                    record.cost,
                    slowing_seconds=overhead.slowing_seconds,
                    slowing_steps=overhead.slowing_steps,
                )
                record = replace(record, cost=cost)
                self.found[name] = self._pack(record, encode(record))
        return changed | (measured & self.found.keys())


def resume_point(run: RunDirectory, latest: str | None = None) -> ResumePoint | None:
    """Returns what a cold start resumes from, or None if there is no checkpoint.

    It is the committed checkpoint that was saved or restored last. If the history is damaged or
    there are no records, it is the newest one in TensorFlow's state file. It may be damaged: the
    start then tries the next newest checkpoint of the catalog.

    Args:
        run: The run directory.
        latest: See `read_history`.
    """
    return resume_point_from(read_history(run, latest), partial(has_index, run))


def refuse_newer_release(run: RunDirectory) -> None:
    """Raises an error before a change, if a newer release wrote a document or record of a run.

    Raises:
        RefusedError: A newer release did, or a directory is a symbolic link.
        OSError: A document cannot be read.
    """
    run.require_changeable()
    records = Records(run)
    records.refresh()
    records.refuse_newer()


def read_history(run: RunDirectory, latest: str | None = None) -> RunHistory:
    """Reads the history of a run.

    Args:
        run: The run directory.
        latest: The newest checkpoint in TensorFlow's state file, if that was read just now.
    """
    records = Documents(run.records_directory, CheckpointRecord, _saved)
    records.refresh()
    head, head_is_damaged = load_head(run)
    if latest is None:
        latest = latest_of(read_state_list(run))
    return RunHistory(
        records.found,
        head,
        latest,
        records.damaged,
        head_is_damaged,
        has_others=not latest and _has_unrecorded(run, records.found),
    )


def _saved(record: CheckpointRecord, _text: bytes) -> Saved:
    return Saved(record.name, record.step, record.branch, record.sequence, record.derived)


def _has_unrecorded(run: RunDirectory, recorded: Container[str]) -> bool:
    names = [entry.name for entry in list_directory(run.root)]
    indexed = [name.removesuffix(_INDEX) for name in names if name.endswith(_INDEX)]
    return any(name not in recorded for name in indexed)


def has_index(run: RunDirectory, name: str) -> bool:
    """Whether a checkpoint is committed: a record alone is left from a killed save."""
    return bool(name) and index_path(run.root / name).is_file()


def resume_point_from(
    history: RunHistory, is_committed: Callable[[str], bool]
) -> ResumePoint | None:
    """Applies the rule of `resume_point` to a history.

    Args:
        history: The history.
        is_committed: Whether a checkpoint has an index; asked of as few as possible.
    """
    used_last = _used_last(history, is_committed)
    if history.needs_state_file and is_committed(history.latest):
        if used_last is not None and used_last.checkpoint == history.latest:
            return used_last
        # Every save and every restore makes its checkpoint the newest in the state file.
        return ResumePoint(history.latest, None, _highest_sequence(history))
    if used_last is not None:
        return used_last
    if history.latest:
        parsed = parse_checkpoint_name(history.latest)
        branch = parsed.branch if parsed else 0
        return ResumePoint(history.latest, branch, _highest_sequence(history))
    # Training saved the others, so one that was made from them is not where it ended.
    return None if history.has_others else _newest_derived(history, is_committed)


def _used_last(history: RunHistory, is_committed: Callable[[str], bool]) -> ResumePoint | None:
    """Returns what was saved or restored last, according to the readable records."""
    head, highest = history.head, _highest_sequence(history)
    saves = [record for record in history.records.values() if record.derived is None]
    saves.sort(key=lambda record: (record.sequence, record.name), reverse=True)
    newest = next((record for record in saves if is_committed(record.name)), None)
    if head is not None and (newest is None or head.sequence > newest.sequence):
        return ResumePoint(head.checkpoint, head.branch, highest, head.values)
    if newest is not None:
        return ResumePoint(newest.name, newest.branch, highest)
    return None


def _newest_derived(history: RunHistory, is_committed: Callable[[str], bool]) -> ResumePoint | None:
    """Returns the newest checkpoint made from others; a start uses it if there is nothing else."""
    made = [record for record in history.records.values() if is_committed(record.name)]
    newest = max(made, key=lambda record: (record.step, record.name), default=None)
    if newest is None:
        return None
    return ResumePoint(newest.name, newest.branch, _highest_sequence(history))


def _highest_sequence(history: RunHistory) -> int:
    places = [record.sequence for record in history.records.values()]
    if history.head is not None:
        places.append(history.head.sequence)
    return max(places, default=0)


def in_order_of_use(checkpoints: Sequence[Checkpoint], head: Head | None) -> list[Checkpoint]:
    """Returns checkpoints in the order in which a start tries them.

    The newest comes first, and those that were made from others come last. But the one that was
    restored last comes before all checkpoints that were saved before that restore, because the
    restore abandoned them.

    Args:
        checkpoints: Newest first.
        head: The last restore.
    """
    checkpoints = trained_first(checkpoints)
    if head is None:
        return checkpoints
    restored = [c for c in checkpoints if c.name == head.checkpoint]
    if not restored or (restored[0].sequence or 0) > head.sequence:
        # It was saved again since.
        return checkpoints
    others = [c for c in checkpoints if c.name != head.checkpoint]
    for place, checkpoint in enumerate(others):
        if checkpoint.sequence is not None and checkpoint.sequence < head.sequence:
            return [*others[:place], *restored, *others[place:]]
    return checkpoints


def read_head(run: RunDirectory) -> Head | None:
    """Returns the last restore, or None if there was none or its document is damaged."""
    return load_head(run)[0]


def load_head(run: RunDirectory) -> tuple[Head | None, bool]:
    """Returns the last restore if it can be read, and whether its document is damaged."""
    try:
        return load_if_exists(run.head_file, Head), False
    except DamagedFileError:
        return None, True


def read_state_list(run: RunDirectory) -> StateFile | None:
    """Returns TensorFlow's state file, or None if it is missing, damaged or of a stranger."""
    if run.stranger_of(run.state_file):
        return None
    try:
        return read_state_file(run.state_file)
    except DamagedFileError:
        return None


def latest_of(state: StateFile | None) -> str:
    """Returns the newest checkpoint according to a state file; empty if there is none."""
    return (state.latest_name or "") if state is not None else ""
