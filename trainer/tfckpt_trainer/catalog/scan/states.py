"""The rules that decide the state of a checkpoint from what lies in the directory.

Let I be an index file of which every block matches its checksum, T the temporary directory in
which TensorFlow writes (`NAME_temp`), S the files that our library writes aside (`saving/`).
*Fresh* is what was changed in the last minute, on a network file system in the last ten. The
first rule that applies decides.

1. *trashed*: no index, and a prune or an undo that was cut off has it in hand.
2. *writing*: T or S is fresh, and there is no index, or no I, or a file in T is newer than the
   index (a save of the same name goes on). Or there are fresh data files alone, which come first,
   and TensorFlow's state file does not list it, which is written last.
3. *orphaned*: no index, and it is a save that was killed: T or S is there, or our record, which
   is written just before the commit.
4. *incomplete*: no index, or an empty one.
5. A verification of ours that holds, which is one that read exactly the files that are there,
   and none was changed or replaced since: with an error among its findings *corrupt*, or
   *incomplete* where that is a missing or cut file. It beats the record: damage may come later.
6. *unreadable*: the operating system does not give the index to whoever looks (its permissions,
   a failing disk). What is in it is unknown, and each look asks again.
7. *corrupt*: an index that is not I, or whose content makes no sense; or a file in T and a data
   file are newer than the index: a save of the same name was killed midway, and index and data
   are of different saves.
8. *incomplete*: a data file that I counts is missing or shorter than I needs, or a worker's own
   state that our record names is.
9. *verified*: a verification that holds found no error; or our record, which is written only
   after every byte was read back and matched, has the sizes that the files have now, and none
   of them is newer than it.
10. *complete*: the rest.

A symbolic link counts as the file of the same directory to which it leads. One that leads to
none is a missing file, and one that leads out of the directory an unreadable file. A checkpoint
of which all files are links to those of another has the state of that one, and is not restored
by its own name: the link may lead somewhere else by then.

Only complete and verified can be restored. The content of data files is not read here; that is
what verifying is for, and rules 5 and 9 go by what it wrote down.

How far a look goes is up to who looks, see `Depth`: reading a whole index takes long where
there are thousands of tensors, and opening ten thousand of them takes most of a second. What
was put off is marked in the verdict, and the state is then what the names, the sizes and our
own notes say: complete where all data files that one of them counts are there, verified where
a note says so, and the rest waits for a later look. A killed save, a missing file and an empty
index show in the names and sizes already; damage within an index does not.

Sources: the write order of TensorFlow, observed system call by system call and kill by kill,
and that of `tfckpt_trainer.training.checkpoint.saver`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfckpt_trainer.bundle.index import index_path, read_index, read_shard_count, shard_path
from tfckpt_trainer.bundle.links import stat_inside
from tfckpt_trainer.bundle.structure import UNREADABLE
from tfckpt_trainer.catalog.scan.checkpoint_files import FileFact, Files, Identity, identity_of
from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.linked import broken
from tfckpt_trainer.catalog.verification.remembered import holds_for
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.filesystems import is_network_file_system
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FoundFault,
    VerificationRecord,
)

QUIET_SECONDS = 60.0
"""After this long without a change nobody writes any more, on a disk of this machine."""

QUIET_SECONDS_NETWORK = 600.0
"""The same where other machines write, whose clocks and caches are their own."""

CLOCK_SLACK_SECONDS = 2.0
"""File systems stamp times coarsely, and not from the clock that stamped the record."""

_CUT = {
    "index-missing", "index-empty", "shard-missing", "shard-not-plain", "shard-short",
    "record-missing", "record-short",
}  # fmt: skip
"""Kinds of findings that speak of missing bytes and not of wrong ones."""


class Depth(IntEnum):
    """How much of an index is read."""

    NAMES = 0
    """Nothing."""
    BLOCKS = 1
    """Its checksums and its header, which takes a tenth of a millisecond."""
    SIZES = 2
    """All of it, where that is needed to know how long the data files must be."""


class Evidence(msgspec.Struct, frozen=True):
    """What is known of one checkpoint without opening a file of it.

    Attributes:
        files: In the run directory.
        aside: In our `saving/` directory, where a save of our library is under way or was cut.
        record: Ours, where there is one.
        listed: Whether TensorFlow's state file lists it.
        in_transit: Whether a prune or an undo that was cut off has it in hand.
        verification: What reading all of it found, if that was of these files.
    """

    files: Files
    aside: Files | None = None
    record: CheckpointRecord | None = None
    listed: bool = False
    in_transit: bool = False
    verification: VerificationRecord | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The state of a checkpoint, how many data files it has, and what is wrong with it.

    Attributes:
        holds: Whether it stays true as long as no file changes.
        put_off: Whether a deeper look may come to another state.
        verified_at: When all its bytes were last read and compared, if these files ever were.
    """

    state: CheckpointState
    shards: int
    problem: str = ""
    holds: bool = True
    put_off: bool = False
    verified_at: float | None = None


def quiet_seconds_of(root: Path) -> float:
    """Returns after how long without a change nobody writes any more in a directory."""
    return QUIET_SECONDS_NETWORK if is_network_file_system(root) else QUIET_SECONDS


def judge(
    root: Path,
    evidence: Evidence,
    *,
    now: float,
    quiet: float = QUIET_SECONDS,
    depth: Depth = Depth.SIZES,
) -> Verdict:
    """Applies the rules.

    Args:
        root: The run directory.
        evidence: What lies there.
        now: Seconds since the epoch.
        quiet: After so many seconds without a change nobody writes any more.
        depth: How much may be read to find out.
    """
    index, moment = evidence.files.index, _Moment(now, quiet)
    if index is None:
        return _without_index(evidence, moment)
    if _is_being_written_again(evidence, index, moment):
        return _passing(evidence, CheckpointState.WRITING, "It is being written again.")
    fault = _found_fault(root, evidence)
    if fault is not None:
        return fault
    if depth is Depth.NAMES:
        return _with_index(root, evidence, index, None, depth)
    prefix = root / evidence.files.name
    try:
        count = read_shard_count(prefix)
        return _with_index(root, evidence, index, count, depth)
    except (TfckptError, OSError) as error:
        return _unreadable(prefix, evidence, index, error, moment)


def state_by(fault: FoundFault) -> CheckpointState:
    """Returns the state of a checkpoint in which verifying found this error."""
    if fault.kind == UNREADABLE:
        return CheckpointState.UNREADABLE
    return CheckpointState.INCOMPLETE if fault.kind in _CUT else CheckpointState.CORRUPT


class _Moment(NamedTuple):
    """When a look is taken, and how much earlier nothing is fresh any more."""

    now: float
    quiet: float

    def is_recent(self, at: float) -> bool:
        """Whether a change at that time may be part of what still goes on."""
        # A time far in the future is a clock that was set back, not a write.
        return abs(self.now - at) <= self.quiet


def _without_index(evidence: Evidence, moment: _Moment) -> Verdict:
    files, aside = evidence.files, evidence.aside
    under_way = aside is not None or files.temporary_at is not None
    if evidence.in_transit:
        problem = "A prune or an undo of it was cut off; the next one finishes it."
        return _passing(evidence, CheckpointState.TRASHED, problem)
    by_link = broken(files, f"{files.name}.index")
    if by_link is not None:
        return Verdict(by_link[0], len(files.shards), by_link[1])
    was_saved = evidence.record is not None or evidence.listed
    if (under_way or not was_saved) and _is_fresh(evidence, moment):
        return _passing(evidence, CheckpointState.WRITING, "It is being written.")
    if under_way or evidence.record is not None:
        return _passing(evidence, CheckpointState.ORPHANED, "Its save was cut off.")
    problem = f"{files.name}.index is missing."
    return _passing(evidence, CheckpointState.INCOMPLETE, problem)


def _is_being_written_again(evidence: Evidence, index: FileFact, moment: _Moment) -> bool:
    # Not the time of the directory itself: that changes once more when the parts are removed.
    at = evidence.files.part_at
    return at is not None and at > index.modified_at and moment.is_recent(at)


def _with_index(
    root: Path, evidence: Evidence, index: FileFact, counted: int | None, depth: Depth
) -> Verdict:
    """Judges by the number of data files that the index has, where that is known."""
    files, record, shards = evidence.files, evidence.record, evidence.files.shards
    count = _likely_count(shards) if counted is None else counted
    put_off = depth is Depth.NAMES
    if not index.size:
        return Verdict(CheckpointState.INCOMPLETE, count, f"{index.name} is empty.")
    present = []
    for number in range(count):
        fact = shards.get((number, count))
        if fact is None:
            name = shard_path(root / files.name, number, count).name
            missing = CheckpointState.INCOMPLETE, f"{name} is missing."
            state, problem = broken(files, name) or missing
            return Verdict(state, count, problem, put_off=put_off)
        present.append(fact)
    if _is_mixed(files, index, present):
        problem = "A later save over it was cut off: index and data are of different saves."
        return Verdict(CheckpointState.CORRUPT, count, problem, put_off=put_off)
    problem = _problem_of_worker_state(root, record) if record is not None and not put_off else ""
    if problem:
        return Verdict(CheckpointState.INCOMPLETE, count, problem)
    verified_at = _verified_at(root, evidence)
    if verified_at is not None:
        state = CheckpointState.VERIFIED
        return Verdict(state, count, put_off=put_off, verified_at=verified_at)
    if depth is not Depth.SIZES:
        return Verdict(CheckpointState.COMPLETE, count, put_off=True)
    for fact, size in zip(present, read_index(root / files.name).shard_sizes(), strict=True):
        if fact.size < size:
            problem = f"{fact.name} has {fact.size} bytes of {size}."
            return Verdict(CheckpointState.INCOMPLETE, count, problem)
    return Verdict(CheckpointState.COMPLETE, count)


def _is_mixed(files: Files, index: FileFact, present: list[FileFact]) -> bool:
    """Whether a save of the same name put data in place, and was killed before its index."""
    if files.part_at is None or files.part_at <= index.modified_at:
        return False
    return any(fact.modified_ns > index.modified_ns for fact in present)


def _likely_count(shards: Mapping[tuple[int, int], FileFact]) -> int:
    """Returns of how many data files a checkpoint is, as far as their names tell."""
    if len(shards) == 1 and (0, 1) in shards:
        return 1
    counts = Counter([count for _, count in shards])
    whole = [count for count, there in counts.items() if count == there]
    return max(whole or counts, default=1) or 1


def _found_fault(root: Path, evidence: Evidence) -> Verdict | None:
    """Returns what a verification that holds says against a checkpoint."""
    verification = _holding_verification(root, evidence)
    fault = verification.fault if verification is not None else None
    if verification is None or fault is None:
        return None
    return Verdict(
        state_by(fault),
        len(evidence.files.shards),
        f"{fault.message.rstrip('.')}.",
        verified_at=verification.verified_at,
    )


def _verified_at(root: Path, evidence: Evidence) -> float | None:
    verification, record = _holding_verification(root, evidence), evidence.record
    if verification is not None:
        return verification.verified_at
    if record is not None and _as_recorded(evidence.files, record):
        return record.saved_at
    return None


def _holding_verification(root: Path, evidence: Evidence) -> VerificationRecord | None:
    found = evidence.verification
    holds = found is not None and holds_for(found, evidence.files.facts, root)
    return found if holds else None


def _unreadable(
    prefix: Path, evidence: Evidence, index: FileFact, error: Exception, moment: _Moment
) -> Verdict:
    if evidence.files.temporary_at is not None and _is_fresh(evidence, moment):
        return _passing(evidence, CheckpointState.WRITING, "It is being written.")
    if _identity_at_end(index_path(prefix)) != index.identity:
        # It was replaced or deleted while it was read; the next look tells.
        return _passing(evidence, CheckpointState.WRITING, "It changed while it was looked at.")
    if isinstance(error, OSError):
        # What an operating system refuses it may grant later, with no file changed.
        problem = f"{index.name} cannot be read: {error.strerror}."
        return _passing(evidence, CheckpointState.UNREADABLE, problem)
    state = CheckpointState.INCOMPLETE if index.size == 0 else CheckpointState.CORRUPT
    return Verdict(state, len(evidence.files.shards), str(error))


def _identity_at_end(path: Path) -> Identity | None:
    """Returns the identity of a file, or of the file to which it is a link."""
    try:
        seen = stat_inside(path)
    except FileNotFoundError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ino


def _passing(evidence: Evidence, state: CheckpointState, problem: str) -> Verdict:
    shards = len(evidence.files.shards)
    if evidence.aside is not None:
        shards += len(evidence.aside.shards)
    return Verdict(state, shards, problem, holds=False)


def _is_fresh(evidence: Evidence, moment: _Moment) -> bool:
    return any(
        moment.is_recent(at)
        for files in (evidence.files, evidence.aside)
        if files is not None
        for at in (files.temporary_at, *(fact.modified_at for fact in files.facts))
        if at is not None
    )


def _problem_of_worker_state(root: Path, record: CheckpointRecord) -> str:
    """Returns which file of a worker's own state is not there as recorded, or nothing."""
    place = f".tfckpt/workers/{record.name}/"
    for facts in record.files:
        if facts.name.startswith(place) and is_plain_name(facts.name.removeprefix(place)):
            found = identity_of(root / facts.name)
            if found is None:
                return f"{facts.name} is missing."
            if found[0] != facts.size:
                return f"{facts.name} has {found[0]} bytes of {facts.size}."
    return ""


def _as_recorded(files: Files, record: CheckpointRecord) -> bool:
    recorded = {facts.name: facts.size for facts in record.files}
    latest = record.saved_at + CLOCK_SLACK_SECONDS
    return all(
        recorded.get(fact.name) == fact.size and fact.modified_at <= latest for fact in files.facts
    )
