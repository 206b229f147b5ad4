"""Derives the state of a checkpoint from the files of its directory.

Terms: I is an index file that has the digest in the record, or whose blocks all match their
checksums. T is the temporary directory in which TensorFlow writes (`NAME_temp`). S are the files
that this library writes in `saving/`. A file is *fresh* if it changed in the last minute, or in the
last ten on a network file system.
The first rule that applies decides:

1. *trashed*: no index, and an interrupted prune or undo has moved it.
2. *writing*: T or S is fresh, and there is no index, or no I, or a file in T is newer than the
   index (a save under the same name). Without T, S counts only while its trainer may live. Also:
   fresh data files without an index that TensorFlow's state file does not list. TensorFlow writes
   data files first and the state file last.
   A command of this library marks T with its process: T counts while that process lives.
3. *orphaned*: no index, and T or S is left of a killed save or command.
4. *incomplete*: no index, or an empty one.
5. *corrupt* or *incomplete*: a stored verification result of exactly these files has an error;
   incomplete if a file is missing or too short. It overrides the record: damage may come later.
6. *unreadable*: the operating system refuses to read the index (permissions, a failing disk), or
   permissions forbid to read a data file that I counts, or a worker's own state that the record
   names. Each scan tries again. Also: one of them is a pointer of Git LFS.
7. *unsupported*: the index says that its data is big-endian, or needs a newer reader.
8. *corrupt*: the index is not I, or its content is invalid. Or a file in T and a data file are
   newer than the index: a save under the same name was killed, and index and data do not match.
9. *incomplete*: a data file that I counts is missing or too short, or a worker's own state that
   the record names.
10. *verified*: a stored verification result of these files has no error. Or the record has the
   sizes that the files have now, and no file is newer than it. A record is written only after
   all bytes were read back and matched.
11. *complete*: everything else.

A checkpoint that is verified or complete by these rules is *inexact* if its record and the copy of
it cannot be used.

A symbolic link counts as the file that it leads to. A link to no file is a missing file, and one
out of the directory by an absolute path an unreadable one. A checkpoint whose files are all
links to those of another checkpoint has the state of that one. It is not restored under its own
name, because the link may change before the restore reads it.

Files that have only the names of a checkpoint have no state: `ownership` tells them.

Only complete, verified and inexact checkpoints can be restored. A scan never reads data files:
rules 5 and 10 use stored results.

The caller chooses how deep a scan goes, see `Depth`. Reading a whole index takes long with
thousands of tensors, and opening ten thousand indexes takes most of a second. A verdict says if
it put something off. Until a later scan, its state follows from names, sizes and stored results:
complete if all counted data files are present, verified if a stored result says so. Names and
sizes show killed saves, missing files and empty indexes. They do not show damage within an index.

The rules follow the write order of TensorFlow, observed by system call and by killing it at each
step, and that of `tfckpt_trainer.training.checkpoint.saves.saver`.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import Index, IndexReader, index_path, shard_path
from tfckpt_trainer.bundle.links import NOT_FETCHED, NotFetchedError, check_fetched, stat_inside
from tfckpt_trainer.bundle.recognition import is_of_cache
from tfckpt_trainer.bundle.table import read_table
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileFact
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.packed_record import PackedRecord
from tfckpt_trainer.catalog.directory.stored_results import holds_for
from tfckpt_trainer.catalog.directory.symbolic_links import link_problem
from tfckpt_trainer.errors import (
    BundleError,
    DamagedFileError,
    UnsupportedBundleError,
    reason_of,
)
from tfckpt_trainer.machine.permissions import BY_EFFECTIVE_ID
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import FileFacts, FoundFault, VerificationRecord
from tfckpt_trainer.rundir.records.results import ActionResult
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in, identity_of

QUIET_SECONDS = 60.0
"""After this long without a change nobody writes any more, on a disk of this machine."""

QUIET_SECONDS_NETWORK = 600.0
"""The same where other machines write, whose clocks and caches are their own."""

CLOCK_SLACK_SECONDS = 2.0
"""File systems stamp times coarsely, and not from the clock that stamped the record."""

RECORD_UNUSABLE = "record-unusable"
"""Kind of the finding that a checkpoint has no record that can be used, and had one."""

WITHOUT_RECORD = (
    "Its record cannot be used. A restore brings back the model and the optimizer, but not the "
    "input position and the random states."
)
"""What is lost if the record of a checkpoint is damaged, and its copy too."""

_MISSING = {"index-missing", "shard-missing", "shard-not-plain", "record-missing"}
"""Kinds of findings about files that are missing, or have something else in their place."""

_CUT = {*_MISSING, "index-empty", "shard-short", "record-short"}
"""Kinds of findings about missing bytes rather than wrong ones."""


class Depth(IntEnum):
    """How much of an index a scan reads."""

    NAMES = 0
    """Nothing."""
    BLOCKS = 1
    """Its checksums and its header: about a tenth of a millisecond."""
    SIZES = 2
    """All of it, if that is needed to know the sizes of the data files."""


NO_RESULTS: Mapping[str, ActionResult] = {}
"""The same for all checkpoints for which users' own actions found nothing."""


class CheckpointEvidence(msgspec.Struct, frozen=True, gc=False):
    """What is known about one checkpoint before its files are opened.

    Attributes:
        files: Its files in the run directory.
        aside: Its files in `saving/`, from a running or interrupted save of this library.
        record: Its record, if there is one that can be used.
        has_bad_record: Whether there is one that cannot be used.
        listed: Whether TensorFlow's state file lists it.
        in_transit: Whether a prune or undo that runs, or was interrupted, moved some of its files.
        trainer_gone: Whether the trainer that wrote `aside` has certainly ended.
        writer_gone: Whether the command that writes in T has ended; None if that is unknown, or if
            another program writes there.
        verification: The newest stored verification result.
        results: What users' own actions found for these files, by action, the oldest first.
    """

    files: CheckpointFiles
    aside: CheckpointFiles | None = None
    record: PackedRecord | None = None
    has_bad_record: bool = False
    listed: bool = False
    in_transit: bool = False
    trainer_gone: bool = False
    writer_gone: bool | None = None
    verification: VerificationRecord | None = None
    results: Mapping[str, ActionResult] = msgspec.field(default_factory=lambda: NO_RESULTS)


class StateVerdict(msgspec.Struct, frozen=True, gc=False):
    """The state of a checkpoint, its number of data files, and its problem if it has one.

    Attributes:
        holds: Whether it stays valid as long as no file changes.
        deferred: Whether a deeper scan may find another state.
        lacks_file: Whether a file is missing, which may be there under another name.
        verified_at: When these files were last verified; None if never.
        not_finite_tensors: Number of tensors with NaN or infinite values; None if unknown.
    """

    state: CheckpointState
    shards: int
    problem: str = ""
    holds: bool = True
    deferred: bool = False
    lacks_file: bool = False
    verified_at: float | None = None
    not_finite_tensors: int | None = None


def quiet_seconds_of(root: Path) -> float:
    """Returns for how many seconds after its last change a file counts as fresh."""
    return QUIET_SECONDS_NETWORK if is_network_file_system(root) else QUIET_SECONDS


def derive_state(
    root: Path,
    evidence: CheckpointEvidence,
    *,
    now: float,
    quiet: Callable[[], float] = lambda: QUIET_SECONDS,
    depth: Depth = Depth.SIZES,
) -> StateVerdict | None:
    """Applies the rules; returns None for a checkpoint that was pruned or deleted meanwhile.

    Args:
        root: The run directory.
        evidence: What is known about the checkpoint.
        now: Seconds since the epoch.
        quiet: Returns for how many seconds a file is fresh after its last change. Of complete
            checkpoints, that does not matter.
        depth: How much may be read.
    """
    if depth is Depth.NAMES and _is_usual(evidence):
        return _PUT_OFF
    verdict = _state_of_files(root, evidence, _Moment(now, quiet), depth)
    if not verdict.state.restorable and _has_gone(root, evidence):
        return None
    if evidence.has_bad_record and verdict.state.restorable:
        state = CheckpointState.INEXACT
        return msgspec.structs.replace(verdict, state=state, problem=WITHOUT_RECORD)
    return verdict


_PUT_OFF = StateVerdict(CheckpointState.COMPLETE, 1, deferred=True)


def _is_usual(evidence: CheckpointEvidence) -> bool:
    """Whether nothing is known of a checkpoint but an index and one data file."""
    is_alone = evidence.record is None and evidence.verification is None
    return is_alone and not evidence.has_bad_record and evidence.files.is_usual


def _has_gone(root: Path, evidence: CheckpointEvidence) -> bool:
    """Whether the index was there and is not any more. Prunes and deletions move it first."""
    if evidence.files.index is None:
        return False
    try:
        os.lstat(root / evidence.files.index.name)
    except FileNotFoundError:
        return True
    return False


def _state_of_files(
    root: Path, evidence: CheckpointEvidence, moment: _Moment, depth: Depth
) -> StateVerdict:
    index = evidence.files.index
    if index is None:
        return _without_index(root, evidence, moment)
    if _is_being_written_again(evidence, index, moment):
        return _for_now(evidence, CheckpointState.WRITING, "It is being written again.")
    holding = _holding_verification(root, evidence)
    if holding is not None and holding.fault is not None:
        return _found_fault(evidence, holding, holding.fault)
    recorded = evidence.record.files if evidence.record is not None else []
    if depth is Depth.NAMES:
        return _with_index(root, evidence, index, holding, recorded, None, depth)
    try:
        content = _read_index(root, index, recorded)
        return _with_index(root, evidence, index, holding, recorded, content, depth)
    except (BundleError, DamagedFileError, OSError) as error:
        return _unreadable(root / evidence.files.name, evidence, index, error, moment)


def state_for_fault(fault: FoundFault) -> CheckpointState:
    """Returns the state that an error found by a verification implies."""
    if fault.kind in {CheckpointState.UNREADABLE, CheckpointState.UNSUPPORTED}:
        return CheckpointState(fault.kind)
    return CheckpointState.INCOMPLETE if fault.kind in _CUT else CheckpointState.CORRUPT


class _Moment(msgspec.Struct, frozen=True):
    """The time of a scan, and for how many seconds before it a change is fresh."""

    now: float
    quiet: Callable[[], float]

    def is_recent(self, at: float) -> bool:
        """Whether a change at that time may be part of a running save."""
        # A time far in the future comes from a clock that was set back.
        return abs(self.now - at) <= self.quiet()


def _without_index(root: Path, evidence: CheckpointEvidence, moment: _Moment) -> StateVerdict:
    files, aside = evidence.files, evidence.aside
    under_way = aside is not None or files.temporary_at is not None
    if evidence.in_transit:
        problem = "A prune or undo moves it, or was interrupted; then the next one brings it back."
        return _for_now(evidence, CheckpointState.TRASHED, problem)
    by_link = link_problem(files, f"{files.name}.index")
    if by_link is not None:
        return StateVerdict(by_link[0], len(files.shards), by_link[1])
    was_saved = evidence.record is not None or evidence.listed
    gone = evidence.trainer_gone and files.temporary_at is None
    cut_off = gone or evidence.writer_gone is True
    is_active = evidence.writer_gone is False or _is_fresh(evidence, moment)
    if (under_way or not was_saved) and not cut_off and is_active:
        return _for_now(evidence, CheckpointState.WRITING, "It is being written.")
    if under_way:
        # A start finishes what is in `saving/`, and nothing else.
        follows = "Prune it to free its space."
        if aside is not None:
            follows = "The next start completes it or removes it."
        problem = f"Its save was cut off. {follows}"
        if files.writer:
            problem = f"The command that wrote or deleted it was ended. Run it again. {follows}"
        return _for_now(evidence, CheckpointState.ORPHANED, problem)
    problem = _missing(root, f"{files.name}.index")
    shards = len(files.shards)
    return StateVerdict(CheckpointState.INCOMPLETE, shards, problem, holds=False, lacks_file=True)


def _missing(root: Path, name: str) -> str:
    """Returns what is in the place of a file of a checkpoint."""
    there = os.path.lexists(root / name)
    return f"{name} is not a regular file." if there else f"{name} is missing."


def _is_being_written_again(evidence: CheckpointEvidence, index: FileFact, moment: _Moment) -> bool:
    # Not the time of the directory itself, which changes when TensorFlow removes the parts.
    at = evidence.files.part_at
    return at is not None and at > index.modified_at and moment.is_recent(at)


class _IndexContent(msgspec.Struct, frozen=True):
    """What an index says, after it was checked.

    Attributes:
        shard_count: The number of data files.
        reader: Reads all of it; None if the index has the digest in the record.
    """

    shard_count: int
    reader: IndexReader | None


def _read_index(root: Path, index: FileFact, recorded: Sequence[FileFacts]) -> _IndexContent:
    """Reads an index, and checks it: by its digest in the record, else by its own checksums.

    Raises:
        BundleError: The index is damaged.
        OSError: It cannot be read.
    """
    path = f"{root}/{index.name}"
    content = read_table(path)
    own = FileFacts(name=index.name, size=len(content), crc32c=crc32c(content))
    if own in recorded:
        start = f"{index.name.removesuffix('.index')}.data-"
        count = sum(one.name.startswith(start) for one in recorded)
        if count:
            return _IndexContent(count, None)
    reader = IndexReader.checked(path, content)
    if is_of_cache(reader.first_name):
        raise BundleError(index.name, None, "is of a cache of tf.data")
    return _IndexContent(reader.shard_count, reader)


def _with_index(
    root: Path,
    evidence: CheckpointEvidence,
    index: FileFact,
    verification: VerificationRecord | None,
    recorded: Sequence[FileFacts],
    content: _IndexContent | None,
    depth: Depth,
) -> StateVerdict:
    """Judges a checkpoint with an index.

    Args:
        root: The run directory.
        evidence: What is known about the checkpoint.
        index: The index.
        verification: The stored verification result, if it holds for these files.
        recorded: The files that its record names.
        content: What the index says; None if it was not read.
        depth: How much may be read.
    """
    files, record, shards = evidence.files, evidence.record, evidence.files.shards
    count = _likely_count(shards) if content is None else content.shard_count
    deferred = content is None
    if not index.size:
        return StateVerdict(CheckpointState.INCOMPLETE, count, f"{index.name} is empty.")
    present = []
    for number in range(count):
        fact = shards.get((number, count))
        if fact is None:
            name = shard_path(root / files.name, number, count).name
            missing = CheckpointState.INCOMPLETE, _missing(root, name)
            state, problem = link_problem(files, name) or missing
            return StateVerdict(state, count, problem, deferred=deferred, lacks_file=True)
        present.append(fact)
    own = [] if deferred else worker_state_files(files.name, recorded)
    doubtful = [*(fact.name for fact in present if fact.is_doubtful), *(one.name for one in own)]
    denied = next((name for name in doubtful if _is_denied(root / name)), None)
    if denied is not None:
        refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root / denied))
        problem = f"{denied} cannot be read: {reason_of(refused)}."
        return _for_now(evidence, CheckpointState.UNREADABLE, problem)
    if _is_mixed(files, index, present):
        problem = "A later save of the same name was cut off: index and data do not match."
        return StateVerdict(CheckpointState.CORRUPT, count, problem, deferred=deferred)
    problem, own_at = _look_at_worker_state(root, own)
    if problem:
        return StateVerdict(CheckpointState.INCOMPLETE, count, problem, lacks_file=True)
    if verification is not None:
        is_lost = record is None and any(
            finding.kind == RECORD_UNUSABLE for finding in verification.findings
        )
        return StateVerdict(
            CheckpointState.INEXACT if is_lost else CheckpointState.VERIFIED,
            count,
            WITHOUT_RECORD if is_lost else "",
            deferred=deferred,
            verified_at=verification.verified_at,
            not_finite_tensors=verification.not_finite,
        )
    latest = record.saved_at + CLOCK_SLACK_SECONDS if record is not None else 0.0
    if record is not None and own_at <= latest and _as_recorded(files, recorded, latest):
        state = CheckpointState.VERIFIED
        return StateVerdict(state, count, deferred=deferred, verified_at=record.saved_at)
    if content is None or depth is not Depth.SIZES:
        return StateVerdict(CheckpointState.COMPLETE, count, deferred=True)
    reader = content.reader or IndexReader.checked(f"{root}/{index.name}")
    problem = _problem_of_sizes(root, present, reader.read())
    state = CheckpointState.INCOMPLETE if problem else CheckpointState.COMPLETE
    return StateVerdict(state, count, problem)


def _problem_of_sizes(root: Path, present: list[FileFact], index: Index) -> str:
    """Returns which data file is too short; empty if none is."""
    for fact, size in zip(present, index.shard_sizes(), strict=True):
        if fact.size != size:
            check_fetched(root / fact.name)
        if fact.size < size:
            return f"{fact.name} has {fact.size} bytes of {size}."
    return ""


def _is_denied(path: Path) -> bool:
    """Whether there is a file that this process may not read."""
    may_read = os.access(path, os.R_OK, effective_ids=BY_EFFECTIVE_ID)
    return not may_read and os.path.lexists(path)


def _is_mixed(files: CheckpointFiles, index: FileFact, present: list[FileFact]) -> bool:
    """Whether a save of the same name was killed after its data files and before its index."""
    if files.part_at is None or files.part_at <= index.modified_at:
        return False
    return any(fact.modified_ns > index.modified_ns for fact in present)


def _likely_count(shards: Mapping[tuple[int, int], FileFact]) -> int:
    """Returns the number of data files that the file names imply."""
    if len(shards) == 1 and (0, 1) in shards:
        return 1
    counts = Counter([count for _, count in shards])
    whole = [count for count, there in counts.items() if count == there]
    return max(whole or counts, default=1) or 1


def _found_fault(
    evidence: CheckpointEvidence, verification: VerificationRecord, fault: FoundFault
) -> StateVerdict:
    """Returns the verdict of a stored verification result with an error."""
    return StateVerdict(
        state_for_fault(fault),
        len(evidence.files.shards),
        f"{fault.message.rstrip('.')}.",
        lacks_file=fault.kind in _MISSING,
        verified_at=verification.verified_at,
    )


def _holding_verification(root: Path, evidence: CheckpointEvidence) -> VerificationRecord | None:
    record = evidence.verification
    holds = record is not None and holds_for(record, evidence.files.facts, root)
    return record if holds else None


def _unreadable(
    prefix: Path, evidence: CheckpointEvidence, index: FileFact, error: Exception, moment: _Moment
) -> StateVerdict:
    if isinstance(error, NotFetchedError):
        name = Path(error.filename).name
        problem = f"`git lfs pull` fetches {name}: {NOT_FETCHED}."
        return StateVerdict(CheckpointState.UNREADABLE, len(evidence.files.shards), problem)
    if evidence.files.temporary_at is not None and _is_fresh(evidence, moment):
        return _for_now(evidence, CheckpointState.WRITING, "It is being written.")
    is_gone = isinstance(error, OSError) and error.errno in {errno.ENOENT, errno.ESTALE}
    if is_gone or _identity_at_end(index_path(prefix)) != index.identity:
        # It was replaced while it was read.
        return _for_now(evidence, CheckpointState.WRITING, "It changed during the scan.")
    if isinstance(error, OSError):
        # Permissions may change without a change of the file.
        place, root = Path(os.fspath(error.filename or "")), prefix.parent
        unread = place.relative_to(root) if place.is_relative_to(root) else index.name
        problem = f"{unread} cannot be read: {reason_of(error)}."
        return _for_now(evidence, CheckpointState.UNREADABLE, problem)
    shards = len(evidence.files.shards)
    if not index.size:
        return StateVerdict(CheckpointState.INCOMPLETE, shards, f"{index.name} is empty.")
    unsupported = isinstance(error, UnsupportedBundleError)
    state = CheckpointState.UNSUPPORTED if unsupported else CheckpointState.CORRUPT
    return StateVerdict(state, shards, f"{str(error).rstrip('.')}.")


def _identity_at_end(path: Path) -> Identity | None:
    """Returns the identity of a file, after following a symbolic link."""
    try:
        seen = stat_inside(path)
    except FileNotFoundError:
        return None
    return identity_in(seen)


def _for_now(evidence: CheckpointEvidence, state: CheckpointState, problem: str) -> StateVerdict:
    """Returns a verdict that may change with time, without a change of files."""
    shards = len(evidence.files.shards)
    if evidence.aside is not None:
        shards += len(evidence.aside.shards)
    return StateVerdict(state, shards, problem, holds=False)


def _is_fresh(evidence: CheckpointEvidence, moment: _Moment) -> bool:
    return any(
        moment.is_recent(at)
        for files in (evidence.files, evidence.aside)
        if files is not None
        for at in (files.temporary_at, *(fact.modified_at for fact in files.facts))
        if at is not None
    )


def worker_state_files(name: str, recorded: Sequence[FileFacts]) -> list[FileFacts]:
    """Returns the files of the workers' own state that the record of a checkpoint names."""
    place = f".tfckpt/workers/{name}/"
    return [
        facts
        for facts in recorded
        if facts.name.startswith(place) and is_plain_name(facts.name.removeprefix(place))
    ]


def _look_at_worker_state(root: Path, own: Sequence[FileFacts]) -> tuple[str, float]:
    """Looks at the files of the workers' own state.

    Returns:
        Which one differs from the record, empty if none does; and when one changed last.
    """
    changed_at = 0.0
    for facts in own:
        identity = identity_of(root / facts.name)
        if identity is None:
            return f"{facts.name} is missing.", changed_at
        if identity[0] != facts.size:
            check_fetched(root / facts.name)
            return f"{facts.name} has {identity[0]} bytes of {facts.size}.", changed_at
        changed_at = max(changed_at, identity[1] / 1e9)
    return "", changed_at


def _as_recorded(files: CheckpointFiles, recorded: Sequence[FileFacts], latest: float) -> bool:
    sizes = {facts.name: facts.size for facts in recorded}
    for fact in files.facts:
        if sizes.get(fact.name) != fact.size or fact.modified_at > latest:
            return False
    return True
