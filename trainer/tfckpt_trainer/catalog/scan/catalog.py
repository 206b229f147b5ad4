"""All checkpoints of a directory, found by incremental scans of its files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.checkpoint_files import (
    CheckpointFiles,
    size_of_directory,
    written_at,
)
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.history import (
    ResumePoint,
    RunHistory,
    in_order_of_use,
    latest_of,
    resume_point_from,
)
from tfckpt_trainer.catalog.directory.save_directories import parts_directory
from tfckpt_trainer.catalog.directory.saved_model import is_in_saved_model
from tfckpt_trainer.catalog.directory.symbolic_links import linked_checkpoint, with_target_state
from tfckpt_trainer.catalog.scan.annotations import Annotations
from tfckpt_trainer.catalog.scan.evidence_reader import EvidenceReader
from tfckpt_trainer.catalog.scan.order import in_order
from tfckpt_trainer.catalog.scan.ownership import (
    Ownership,
    names_of_others,
    ownership_of,
)
from tfckpt_trainer.catalog.scan.states import (
    CheckpointEvidence,
    Depth,
    StateVerdict,
    derive_state,
    quiet_seconds_of,
)
from tfckpt_trainer.rundir.paths import RunDirectory, parse_numbered_name
from tfckpt_trainer.rundir.records.results import values_of
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.storage.owners import user_name

if TYPE_CHECKING:
    from tfckpt_trainer.catalog.directory.other_formats import OtherFile
    from tfckpt_trainer.catalog.directory.version_one import VersionOne
    from tfckpt_trainer.catalog.scan.lineage import BranchTips
    from tfckpt_trainer.catalog.scan.observation import Diagnostic, Observer

INDEX_BYTES_PER_SCAN = 4 << 20
"""Bytes of indexes that one scan reads: about 20,000 tensors, a fifth of a second."""

QUICK_INDEXES = 256
"""Indexes that a quick scan opens: about 20 milliseconds."""

QUICK_RECORDS = 512
"""Records that a quick scan reads: about 30 milliseconds."""

CHECKPOINTS_PER_SHARE = 4096
"""To list so many takes about as long as the indexes and records of a quick scan.

In a larger directory, later quick scans read as many times more. The first one does not."""

NEWEST_WATCHED = 64
"""How many of the newest checkpoints have their files checked in each scan."""


class Catalog:
    """Scans one directory repeatedly; what did not change is not read twice.

    Args:
        run: The run directory.
        only: The only checkpoints to look for. By default all, which `diagnostics`, `branch_tips`
            and `Checkpoint.is_head` need.
        entries: The names of their files, if these are known: the directory is not listed.

    Attributes:
        resumed: What a cold start resumes from, as of the last scan; None if there is nothing.
        shared_bytes: Bytes of files that other files of the checkpoints have too, as hard links.
        has_changed: Whether the last scan found anything that the one before did not.
        version_one: The checkpoints in TensorFlow's V1 format, which is not supported, as of the
            last `diagnostics`.
        other_files: Files of other formats, newest first, as of the last `diagnostics`.
    """

    def __init__(
        self,
        run: RunDirectory,
        only: AbstractSet[str] | None = None,
        entries: AbstractSet[str] | None = None,
    ) -> None:
        self._run = run
        self._quiet = cache(partial(quiet_seconds_of, run.root))
        self._annotations = Annotations(run)
        self._reader = EvidenceReader(run, only, entries)
        self._damaged: frozenset[str] = frozenset()
        self._known: dict[str, Checkpoint] = {}
        self._result: tuple[Checkpoint, ...] = ()
        self._others: set[str] = set()
        self._owners: AbstractSet[int] | None = None
        self.resumed: ResumePoint | None = None
        self.shared_bytes = 0
        self.has_changed = False
        self.version_one: Sequence[VersionOne] = ()
        self.other_files: Sequence[OtherFile] = ()
        # Checkpoints whose state has to be derived again: because a file changed, because the
        # state changes with time, and because not all was read (newest first).
        self._changed: set[str] = set()
        self._unsettled: set[str] = set()
        self._deferred: dict[str, None] = {}

    @property
    def deferred(self) -> int:
        """How many checkpoints, records and results later scans have to read; see `scan`."""
        return len(self._deferred) + self._reader.deferred

    @property
    def others(self) -> frozenset[str]:
        """The names of what is named like a checkpoint and is none, as of the last scan."""
        return frozenset(self._others)

    @property
    def latest(self) -> Checkpoint | None:
        """The newest checkpoint according to TensorFlow's state file, as of the last scan."""
        state = self._annotations.state
        name = state.latest_name if state is not None else None
        return next((checkpoint for checkpoint in self._result if checkpoint.name == name), None)

    @property
    def newer_records(self) -> tuple[str, ...]:
        """Which release is needed for each record of a newer one, as of the last scan."""
        return tuple(self._reader.records.newer.values())

    def scan(
        self, now: float, *, quick: bool = False, opens_usual: bool = True
    ) -> tuple[Checkpoint, ...]:
        """Returns all checkpoints, newest first.

        Checkpoints with a record are in the order in which they were saved, listed ones in the
        order of the state file; these and all others are merged by time. In a directory with
        records, step numbers do not count: after going back, a run saves small numbers late.
        Without records, unlisted checkpoints of one prefix are ordered by step; see
        `catalog.scan.order`. Checkpoints that are being written come first.

        A first scan with many large indexes compares the sizes of data files only for the newest
        checkpoints. Later scans check the others.

        Args:
            now: Seconds since the epoch.
            quick: Whether to open only as many indexes and records as take no noticeable time,
                of the newest checkpoints. Later scans read the others. Until then their state
                follows from names and sizes, and their order from their times.
            opens_usual: Whether to open the indexes of checkpoints that are nothing but an index
                and one data file. False for a caller that reads them anyway: then the state of
                such a checkpoint follows from names, sizes and stored results.

        Raises:
            OSError: The directory cannot be read.
        """
        self._owners = self._run.owners()
        newest = [checkpoint.name for checkpoint in self._result[:NEWEST_WATCHED]]
        share = max(1, len(self._result) // CHECKPOINTS_PER_SHARE)
        at_most = QUICK_RECORDS * share if quick else None
        self._changed |= self._reader.refresh(newest, self._unsettled, at_most)
        # A record may change that no checkpoint has any more.
        has_changed = bool(self._changed)
        is_changed = self._annotations.refresh()
        some = _Budget(QUICK_INDEXES * share, opens_usual)
        all_of_them = _Budget(None, opens_usual)
        is_changed |= self._derive_states(now, some if quick else all_of_them, some)
        damaged = frozenset(self._reader.records.damaged)
        is_changed |= damaged != self._damaged
        self._damaged = damaged
        if is_changed:
            self._result = self._annotated()
            self.shared_bytes = self._count_shared_bytes()
        self.has_changed = has_changed or is_changed
        return self._result

    def diagnostics(self, now: float) -> tuple[Diagnostic, ...]:
        """Returns the diagnostics of the directory at the last scan.

        Args:
            now: Seconds since the epoch.
        """
        # Imported here, as the observer: `status`, and each command that acts, does without them.
        from tfckpt_trainer.catalog.scan.diagnostics import diagnostics

        annotations = self._annotations
        observed = self._observer.observe(
            self._reader.files,
            self._result,
            self._others,
            annotations.state,
            annotations.condition,
            annotations.identity,
            self._reader.records.newer,
            self._reader.damaged_prunes,
            now,
        )
        self.version_one = observed.version_one
        self.other_files = observed.neighbours.others
        return diagnostics(observed, now, self._quiet())

    @cached_property
    def _observer(self) -> Observer:
        from tfckpt_trainer.catalog.scan.observation import Observer

        return Observer(self._run)

    def refuse_newer(self) -> None:
        """Raises a `RefusedError` if a newer release wrote a record that the last scan read."""
        self._reader.records.refuse_newer()

    def branch_tips(self, trash: Iterable[TrashManifest]) -> BranchTips:
        """Returns the tips of the branches as of the last scan.

        Args:
            trash: What is in the trash now.
        """
        # Imported here: a list of checkpoints shows no branch beyond them.
        from tfckpt_trainer.catalog.scan.lineage import find_branch_tips

        records = self._reader.records.found.values()
        # What is no checkpoint has a name that no save can take.
        return find_branch_tips(self._result, records, self._others, trash, self._annotations.head)

    def evidence(self, name: str) -> CheckpointEvidence:
        """Returns what the last scan found for checkpoint `name`.

        Raises:
            KeyError: There is no such checkpoint.
        """
        evidence = self._evidence(name) if name in self._known else None
        if evidence is None:
            raise KeyError(name)
        return evidence

    def _evidence(self, name: str) -> CheckpointEvidence | None:
        return self._reader.read(name, is_listed=name in self._annotations.listed)

    def _derive_states(self, now: float, budget: _Budget, for_deferred: _Budget) -> bool:
        """Derives the states again that may have changed; returns whether any checkpoint did."""
        is_changed = False
        due, waiting = self._changed | self._unsettled, self._deferred
        self._unsettled, self._deferred = set(), {}
        # The newest first: they matter most if the budget runs out.
        for name in sorted(due, key=self._reader.modified_at, reverse=True):
            waiting.pop(name, None)
            evidence = self._evidence(name)
            if evidence is None:
                self._others.discard(name)
                is_changed |= self._known.pop(name, None) is not None
            else:
                is_changed |= self._derive_one(evidence, now, budget) or name in self._changed
        # These are not new, so they must not delay the caller.
        for name in waiting:
            evidence = self._evidence(name) if not for_deferred.is_spent else None
            if evidence is not None:
                is_changed |= self._derive_one(evidence, now, for_deferred)
            else:
                self._deferred[name] = None
        self._changed = set()
        return is_changed

    def _derive_one(self, evidence: CheckpointEvidence, now: float, budget: _Budget) -> bool:
        """Derives one state; returns whether the checkpoint changed."""
        name = evidence.files.name
        verdict = derive_state(
            self._run.root, evidence, now=now, quiet=self._quiet, depth=budget.depth_of(evidence)
        )
        before = self._known.get(name)
        if verdict is None:
            self._unsettled.add(name)
            return self._known.pop(name, None) is not None
        budget.spend(evidence, verdict)
        if not verdict.holds:
            self._unsettled.add(name)
        if verdict.deferred:
            self._deferred[name] = None
        found = _describe(self._run, evidence, verdict, owners=self._owners)
        if found is None:
            is_new = name not in self._others
            self._others.add(name)
            return self._known.pop(name, None) is not None or is_new
        self._others.discard(name)
        if before is not None:
            found = _with_notes(found, _notes_of(before))
        self._known[name] = found
        return found != before

    def _annotated(self) -> tuple[Checkpoint, ...]:
        """Adds the list, the pins and the checkpoint that a start resumes from."""
        annotations = self._annotations
        listed, pins, managed = annotations.listed, annotations.pins, annotations.is_managed
        is_listing = annotations.state is not None
        ordered = in_order(self._known, listed, self._newest_saved())
        head = self._head(ordered.checkpoints)
        checkpoints = []
        # Taken out one after the other, so that replaced ones take no memory.
        ordered.checkpoints.reverse()
        while ordered.checkpoints:
            own = ordered.checkpoints.pop()
            name = own.name
            is_listed = name in listed
            is_unlisted = not is_listed and own.packed is None
            is_dropped = is_unlisted and (managed or (is_listing and self._has_graph(name)))
            notes = name in pins, name == head, is_listed, is_dropped, name in ordered.by_step
            if notes != _notes_of(own):
                own = self._known[name] = _with_notes(own, notes)
            checkpoints.append(self._describe_links(own) if own.links else own)
        return tuple(checkpoints)

    def _has_graph(self, name: str) -> bool:
        """Whether a checkpoint has a graph file, which only a `Saver` writes.

        One that keeps a single checkpoint, and one every few hours, lists as many as
        `tf.train.Checkpoint.save` does.
        """
        files = self._reader.files.files.get(name)
        return files is not None and files.graph is not None

    def _newest_saved(self) -> str:
        """Returns the newest checkpoint in the state file, unless a restore put it there."""
        state, head = self._annotations.state, self._annotations.head
        latest = latest_of(state)
        return "" if head is not None and head.checkpoint == latest else latest

    def _describe_links(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns a checkpoint of links with the state of its target."""
        files = self._reader.files.files.get(checkpoint.name) or CheckpointFiles(checkpoint.name)
        return with_target_state(checkpoint, self._known.get(linked_checkpoint(files)))

    def _count_shared_bytes(self) -> int:
        scanned = self._reader.files.files
        files = [one for name in self._known if (one := scanned.get(name)) is not None]
        # Few files have other names; a set of all inodes would take 30 MB for 100,000 checkpoints.
        linked = {inode for one in files if one.is_shared for inode, _ in one.sizes_by_inode}
        seen: set[int] = set()
        shared = 0
        for one in files if linked else ():
            for inode, size in one.sizes_by_inode:
                if inode in seen:
                    shared += size
                elif inode in linked:
                    seen.add(inode)
        return shared

    def _head(self, ordered: Sequence[Checkpoint]) -> str:
        """Returns what a cold start resumes from, without checkpoints that cannot be restored."""
        if is_in_saved_model(self._run.root):
            return ""
        used = in_order_of_use(ordered, self._annotations.head)
        restorable = [c.name for c in used if c.restorable and not c.stranger]
        history = RunHistory(
            records=self._reader.records.found,
            head=self._annotations.head,
            latest=latest_of(self._annotations.state),
            damaged=self._damaged,
            head_is_damaged=self._annotations.head_is_damaged,
            has_others=any(c.packed is None and self._is_committed(c.name) for c in ordered),
        )
        self.resumed = resume_point_from(history, self._is_committed)
        if self.resumed is not None and self.resumed.checkpoint in restorable:
            return self.resumed.checkpoint
        return restorable[0] if restorable else ""

    def _is_committed(self, name: str) -> bool:
        files = self._reader.files.files.get(name)
        return name in self._known and files is not None and files.has_index


def scan_checkpoints(
    run: RunDirectory,
    names: AbstractSet[str],
    now: float,
    entries: AbstractSet[str] | None = None,
) -> dict[str, Checkpoint]:
    """Scans some checkpoints alone, which is quick in a directory with any number of them.

    Whether they are pinned, listed or the head is not determined.

    Args:
        run: The run directory.
        names: The checkpoints.
        now: Seconds since the epoch.
        entries: The names of their files, if these are known: the directory is not listed.

    Returns:
        The checkpoints by name, without those whose state only a scan of the whole directory
        tells, because they have no index or link to another checkpoint.

    Raises:
        OSError: The directory cannot be read.
    """
    reader = EvidenceReader(run, names, entries)
    reader.refresh([], [])
    quiet = cache(partial(quiet_seconds_of, run.root))
    owners = run.owners()
    checkpoints = {}
    for name in names:
        evidence = reader.read(name, is_listed=False)
        if evidence is not None and evidence.files.index is not None and not evidence.files.links:
            verdict = derive_state(run.root, evidence, now=now, quiet=quiet)
            found = (
                _describe(run, evidence, verdict, owners=owners) if verdict is not None else None
            )
            if found is not None:
                checkpoints[name] = found
    return checkpoints


_Notes = tuple[bool, bool, bool, bool, bool]
"""What of a checkpoint follows from other files or checkpoints."""


def _notes_of(checkpoint: Checkpoint) -> _Notes:
    return (
        checkpoint.pinned,
        checkpoint.is_head,
        checkpoint.listed,
        checkpoint.dropped_by_manager,
        checkpoint.is_placed_by_step,
    )


def _with_notes(checkpoint: Checkpoint, notes: _Notes) -> Checkpoint:
    pinned, is_head, listed, dropped_by_manager, is_placed_by_step = notes
    return replace(
        checkpoint,
        pinned=pinned,
        is_head=is_head,
        listed=listed,
        dropped_by_manager=dropped_by_manager,
        is_placed_by_step=is_placed_by_step,
    )


class _Budget:
    """How much one scan may still read."""

    def __init__(self, indexes: int | None, opens_usual: bool) -> None:
        self._indexes = indexes
        self._bytes = INDEX_BYTES_PER_SCAN
        self._opens_usual = opens_usual

    def depth_of(self, evidence: CheckpointEvidence) -> Depth:
        """How deep the scan of a checkpoint may go."""
        return self.depth if self._opens_usual or not evidence.files.is_usual else Depth.NAMES

    @property
    def depth(self) -> Depth:
        """How deep the scan of the next checkpoint may go."""
        if self._indexes is not None and self._indexes <= 0:
            return Depth.NAMES
        return Depth.SIZES if self._bytes > 0 else Depth.BLOCKS

    @property
    def is_spent(self) -> bool:
        """Whether deferred checkpoints have to wait for a later scan."""
        return self.depth is not Depth.SIZES

    def spend(self, evidence: CheckpointEvidence, verdict: StateVerdict) -> None:
        """Subtracts what a verdict cost."""
        if self.depth is Depth.NAMES:
            return
        if self._indexes is not None and evidence.files.has_index:
            self._indexes -= 1
        if verdict.state is CheckpointState.COMPLETE and not verdict.deferred:
            index = evidence.files.index
            self._bytes -= index.size if index is not None else 0


_NO_METRICS: Mapping[str, float] = {}
_NAMES_ALONE = (
    "Its files have the names of a save that was cut off. Nothing else shows that they are one: "
    "look at them before you prune it."
)


def _own_size(run: RunDirectory, evidence: CheckpointEvidence, verdict: StateVerdict) -> int:
    """Returns the bytes of what a prune of a checkpoint moves, but for its parts and records."""
    files = evidence.files
    size = files.size + (evidence.aside.size if evidence.aside is not None else 0)
    if files.graph is None and files.shard_counts <= {verdict.shards}:
        return size
    # The index was read for the verdict, unless it is put off, or damaged.
    count = None if verdict.state is CheckpointState.CORRUPT else verdict.shards
    others = names_of_others(run.root, evidence, count)
    return size - sum(fact.size for fact in files.index_first if fact.name in others)


def _stranger(run: RunDirectory, evidence: CheckpointEvidence, owners: AbstractSet[int]) -> str:
    """Returns the owner of a checkpoint whose files belong to none of `owners`, or nothing."""
    with suppress(OSError):
        owner = os.lstat(index_path(run.root / evidence.files.name)).st_uid
        return "" if owner in owners else user_name(owner)
    return ""


def _describe(
    run: RunDirectory,
    evidence: CheckpointEvidence,
    verdict: StateVerdict,
    *,
    owners: AbstractSet[int] | None,
) -> Checkpoint | None:
    """Returns the checkpoint of this state; None if the files are no checkpoint."""
    ownership = ownership_of(run.root, evidence, verdict)
    if ownership is Ownership.NONE:
        return None
    is_proven = ownership is Ownership.PROVEN
    files, record = evidence.files, evidence.record
    stranger = _stranger(run, evidence, owners) if owners is not None else ""
    size = _own_size(run, evidence, verdict)
    if files.temporary_at is not None and verdict.state is CheckpointState.ORPHANED:
        size += size_of_directory(parts_directory(run.root, files.name))
    found = values_of(evidence.results) if evidence.results else _NO_METRICS
    if record is not None:
        return Checkpoint(
            name=files.name,
            step=record.step,
            branch=record.branch,
            state=verdict.state,
            size=size + record.worker_bytes,
            shards=verdict.shards,
            saved_at=record.saved_at,
            parent=record.parent,
            sequence=record.sequence,
            trigger=record.trigger,
            metrics={**found, **record.metrics} if found else record.metrics,
            results=evidence.results,
            is_proven=is_proven,
            lacks_file=verdict.lacks_file,
            stranger=stranger,
            problem=verdict.problem,
            verified_at=verdict.verified_at,
            not_finite_tensors=verdict.not_finite_tensors,
            packed=record,
            links=files.links,
        )
    parsed = parse_numbered_name(files.name)
    is_by_name = not is_proven and verdict.state is CheckpointState.ORPHANED
    return Checkpoint(
        name=files.name,
        step=parsed.step if parsed else None,
        branch=parsed.branch if parsed else 0,
        state=verdict.state,
        size=size,
        shards=verdict.shards,
        saved_at=written_at(files, evidence.aside),
        metrics=found,
        results=evidence.results,
        is_proven=is_proven,
        lacks_file=verdict.lacks_file,
        stranger=stranger,
        problem=_NAMES_ALONE if is_by_name else verdict.problem,
        verified_at=verdict.verified_at,
        not_finite_tensors=verdict.not_finite_tensors,
        links=files.links,
    )
