"""All checkpoints of a directory, by an incremental look at its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.retention.pins import pinned_names
from tfckpt_trainer.catalog.retention.trash import TrashReader
from tfckpt_trainer.catalog.scan.checkpoint_files import Files, Identity, Look, identity_of
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.scan.diagnostics import Condition, Diagnostic, diagnostics
from tfckpt_trainer.catalog.scan.history import (
    Continuation,
    History,
    Records,
    continuation,
    continuation_from,
    in_order_of_use,
    look_at_head,
    read_list,
)
from tfckpt_trainer.catalog.scan.linked import alias_of, described
from tfckpt_trainer.catalog.scan.seeing import Seeing
from tfckpt_trainer.catalog.scan.states import Depth, Evidence, Verdict, judge, quiet_seconds_of
from tfckpt_trainer.catalog.verification.remembered import Verifications
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.files import read_bounded
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name

INDEX_BYTES_PER_SCAN = 4 << 20
"""Of whole indexes read in one look: about 20,000 tensors, a fifth of a second."""

INDEXES_IN_HASTE = 256
"""Indexes opened in one look in haste: about 20 milliseconds."""

RECORDS_IN_HASTE = 512
"""Records read in one look in haste: about 30 milliseconds."""

NEWEST_WATCHED = 64
"""Of so many the files are looked at each time, in a directory of however many files."""


class _Known(msgspec.Struct, frozen=True):
    """What the last look found of one checkpoint."""

    evidence: Evidence
    verdict: Verdict
    checkpoint: Checkpoint


class Catalog:
    """Looks at one directory again and again; what did not change is not read twice."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._quiet = quiet_seconds_of(run.root)
        self._seeing = Seeing(run)
        self._look = Look(run.root)
        self._look_aside = Look(run.saving_directory)
        self._trash = TrashReader(run)
        self._records = Records(run)
        self._verifications = Verifications(run)
        self._around = _Around(run)
        self._in_transit: frozenset[str] = frozenset()
        self._damaged: frozenset[str] = frozenset()
        self._known: dict[str, _Known] = {}
        self._result: tuple[Checkpoint, ...] = ()
        # Names to be judged: because something changed, because the state may pass by itself,
        # and because not all of it was read, the newest first.
        self._changed: set[str] = set()
        self._passing: set[str] = set()
        self._put_off: dict[str, None] = {}

    @property
    def put_off(self) -> int:
        """How many checkpoints and records the next scans read further; see `scan`."""
        return len(self._put_off) + self._records.put_off

    def scan(self, now: float, *, in_haste: bool = False) -> tuple[Checkpoint, ...]:
        """Returns all checkpoints, newest first.

        Those with a record come in the order in which they were saved, listed ones in the order
        of the state file, and both and the rest are merged by their times. Numbers say nothing:
        a run that went back saves small numbers late. What is being written comes before all.

        Where the indexes are many and large, a first look takes their data files for long
        enough, except the newest ones'; the following looks compare the rest bit by bit.

        Args:
            now: Seconds since the epoch.
            in_haste: Whether to open only so many indexes and records as take no noticeable
                time, those of the newest, and to put off the others to the next looks. Until
                then they are what names and sizes say, in the order of their times.

        Raises:
            OSError: The directory cannot be read.
        """
        self._find_changes(in_haste)
        is_other = self._around.refresh()
        is_other |= self._judge(now, in_haste)
        damaged = frozenset(self._records.damaged)
        is_other |= damaged != self._damaged
        self._damaged = damaged
        if is_other:
            self._result = self._finished()
        return self._result

    def diagnostics(self, now: float) -> tuple[Diagnostic, ...]:
        """Returns diagnostics of the directory as the last scan saw it.

        Args:
            now: Seconds since the epoch.
        """
        around = self._around
        seen = self._seeing.look(
            self._look, self._result, around.state, around.condition, around.identity, now
        )
        return diagnostics(seen, now, self._quiet)

    def evidence(self, name: str) -> Evidence:
        """Returns what the last look found of checkpoint `name`.

        Raises:
            KeyError: It found no such checkpoint.
        """
        return self._known[name].evidence

    def _find_changes(self, in_haste: bool) -> None:
        newest = [checkpoint.name for checkpoint in self._result[:NEWEST_WATCHED]]
        # Our commit goes from aside into view: looked at in this order, it is seen in one place.
        self._changed |= self._look_aside.refresh(newest, missing_ok=True)
        self._changed |= self._look.refresh([*newest, *self._passing])
        in_transit = self._trash.in_transit()
        self._changed |= in_transit ^ self._in_transit
        self._in_transit = in_transit
        self._changed |= self._records.refresh(RECORDS_IN_HASTE if in_haste else None)
        self._changed |= self._verifications.refresh()

    def _judge(self, now: float, in_haste: bool) -> bool:
        """Judges what needs it; returns whether any checkpoint is another than it was."""
        is_other = False
        due = []
        for name in self._changed | self._passing:
            evidence = self._evidence(name)
            self._put_off.pop(name, None)
            if evidence is not None:
                due.append(evidence)
            elif self._known.pop(name, None) is not None:
                is_other = True
        # The newest first: they are what the allowance for reading is best spent on.
        due.sort(key=_modified_at, reverse=True)
        self._passing = set()
        allowance = _Allowance(in_haste)
        for evidence in due:
            is_other |= self._judge_one(evidence, now, allowance)
        waiting = self._put_off
        self._put_off = {
            evidence.files.name: None for evidence in due if self._is_put_off(evidence)
        }
        # Nothing of this is new: it must not hold up those who look again and again.
        allowance = allowance if in_haste else _Allowance(in_haste=True)
        for name in waiting:
            evidence = self._known[name].evidence
            if not allowance.is_spent:
                is_other |= self._judge_one(evidence, now, allowance)
            if self._is_put_off(evidence):
                self._put_off[name] = None
        self._changed = set()
        return is_other

    def _evidence(self, name: str) -> Evidence | None:
        aside = self._look_aside.files.get(name)
        files = self._look.files.get(name)
        if files is None:
            if aside is None:
                return None
            files = Files(name)
        return Evidence(
            files=files,
            aside=aside,
            record=self._records.found.get(name),
            # It matters only there; a list is written anew with each save.
            listed=files.index is None and name in self._around.listed,
            in_transit=name in self._in_transit,
            verification=self._verifications.of(name),
        )

    def _judge_one(self, evidence: Evidence, now: float, allowance: _Allowance) -> bool:
        """Returns whether it is another than it was."""
        name = evidence.files.name
        verdict = judge(self._run.root, evidence, now=now, quiet=self._quiet, depth=allowance.depth)
        allowance.spend(evidence, verdict)
        if not verdict.holds:
            self._passing.add(name)
        before = self._known.get(name)
        if before is not None and before.evidence == evidence and before.verdict == verdict:
            return False
        self._known[name] = _Known(evidence, verdict, _describe(evidence, verdict))
        return True

    def _is_put_off(self, evidence: Evidence) -> bool:
        return self._known[evidence.files.name].verdict.put_off

    def _finished(self) -> tuple[Checkpoint, ...]:
        """Adds what the directory says around the files: list, pins, where a start goes on."""
        listed, pins, managed = self._around.listed, self._around.pins, self._around.is_managed
        ordered = _in_order([known.checkpoint for known in self._known.values()], listed)
        head = self._head(ordered)
        checkpoints = []
        for own in ordered:
            checkpoint, name = self._describe_links(own), own.name
            pinned, is_head, is_listed = name in pins, name == head, name in listed
            let_go = managed and not is_listed and checkpoint.record is None
            if (pinned, is_head, is_listed, let_go) != (
                checkpoint.pinned,
                checkpoint.is_head,
                checkpoint.listed,
                checkpoint.let_go,
            ):
                known = self._known[name]
                own = replace(
                    known.checkpoint,
                    pinned=pinned,
                    is_head=is_head,
                    listed=is_listed,
                    let_go=let_go,
                )
                checkpoint = self._describe_links(own)
                self._known[name] = _Known(known.evidence, known.verdict, own)
            checkpoints.append(checkpoint)
        return tuple(checkpoints)

    def _describe_links(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns one that is made of links with the state of what it links to."""
        if not checkpoint.links:
            return checkpoint
        files = self._known[checkpoint.name].evidence.files
        target = self._known.get(alias_of(files))
        return described(checkpoint, target.checkpoint if target is not None else None)

    def _head(self, ordered: Sequence[Checkpoint]) -> str:
        """Returns what a cold start goes on from, passing over what cannot be restored."""
        used = in_order_of_use(ordered, self._around.head)
        restorable = [checkpoint.name for checkpoint in used if checkpoint.restorable]
        history = History(
            records=self._records.found,
            head=self._around.head,
            state=self._around.state,
            damaged=self._damaged,
            head_is_damaged=self._around.head_is_damaged,
        )
        committed = {name for name in history.names if self._is_committed(name)}
        wanted = continuation_from(history, committed)
        if wanted is not None and wanted.checkpoint in restorable:
            return wanted.checkpoint
        return restorable[0] if restorable else ""

    def _is_committed(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known.evidence.files.index is not None


class _Allowance:
    """How much may still be read in one look."""

    def __init__(self, in_haste: bool) -> None:
        self._indexes = INDEXES_IN_HASTE if in_haste else None
        self._bytes = INDEX_BYTES_PER_SCAN

    @property
    def depth(self) -> Depth:
        """How deep the next one may be looked at."""
        if self._indexes is not None and self._indexes <= 0:
            return Depth.NAMES
        return Depth.SIZES if self._bytes > 0 else Depth.BLOCKS

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left with which what was put off could be read."""
        return self.depth is not Depth.SIZES

    def spend(self, evidence: Evidence, verdict: Verdict) -> None:
        """Takes off what a verdict cost."""
        index = evidence.files.index
        if index is None:
            return
        if self._indexes is not None:
            self._indexes -= 1
        if verdict.state is CheckpointState.COMPLETE and not verdict.put_off:
            self._bytes -= index.size


class _Around:
    """What the directory says of its checkpoints besides their files.

    Attributes:
        listed: The places of those that TensorFlow's state file lists, by name.
        condition: Of that file.
        identity: Of that file; None where there is none.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.identity: Identity | None = None
        self.state: StateFile | None = None
        self.condition = Condition.MISSING
        self.listed: dict[str, int] = {}
        self.pins: frozenset[str] = frozenset()
        self.head, self.head_is_damaged = look_at_head(run)

    @property
    def is_managed(self) -> bool:
        """Whether a manager of TensorFlow's wrote the list; `Checkpoint.save` notes no time."""
        return self.state is not None and self.state.last_preserved is not None

    def refresh(self) -> bool:
        """Looks again; returns whether anything is another than it was."""
        identity = identity_of(self._run.state_file)
        is_other = identity != self.identity
        if is_other:
            self.identity = identity
            self.state = read_list(self._run)
            self.condition = _condition(self._run, self.state)
            names = self.state.names if self.state is not None else ()
            self.listed = {name: place for place, name in enumerate(names)}
        pins, (head, damaged) = pinned_names(self._run), look_at_head(self._run)
        is_other |= (pins, head, damaged) != (self.pins, self.head, self.head_is_damaged)
        self.pins, self.head, self.head_is_damaged = pins, head, damaged
        return is_other


def _condition(run: RunDirectory, state: StateFile | None) -> Condition:
    if state is not None:
        return Condition.GOOD
    try:
        content = read_bounded(run.state_file)
    except FileNotFoundError:
        return Condition.MISSING
    except (DamagedFileError, OSError):
        return Condition.UNREADABLE
    lines = [line.strip() for line in content.splitlines()]
    is_empty = all(not line or line.startswith(b"#") for line in lines)
    return Condition.EMPTY if is_empty else Condition.DAMAGED


def _describe(evidence: Evidence, verdict: Verdict) -> Checkpoint:
    files, record = evidence.files, evidence.record
    size = files.size + (evidence.aside.size if evidence.aside is not None else 0)
    if record is not None:
        return Checkpoint(
            name=files.name,
            step=record.step,
            branch=record.branch,
            state=verdict.state,
            size=size,
            shards=verdict.shards,
            saved_at=record.saved_at,
            parent=record.parent,
            sequence=record.sequence,
            trigger=record.trigger,
            metrics=record.metrics,
            problem=verdict.problem,
            verified_at=verdict.verified_at,
            record=record,
            links=files.links,
        )
    said = parse_checkpoint_name(files.name)
    return Checkpoint(
        name=files.name,
        step=said.step if said else None,
        branch=said.branch if said else 0,
        state=verdict.state,
        size=size,
        shards=verdict.shards,
        saved_at=_modified_at(evidence),
        problem=verdict.problem,
        verified_at=verdict.verified_at,
        links=files.links,
    )


def _in_order(checkpoints: Iterable[Checkpoint], listed: Mapping[str, int]) -> Sequence[Checkpoint]:
    """Sorts newest first; an order that was written down is never turned round by a clock."""
    by_name = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    times = {name: checkpoint.saved_at for name, checkpoint in by_name.items()}
    recorded = [(c.sequence, c.name) for c in by_name.values() if c.sequence is not None]
    recorded.sort()
    only_listed = [n for n in listed if n in by_name and by_name[n].sequence is None]
    for known_order in ([name for _, name in recorded], only_listed):
        latest = float("-inf")
        for name in known_order:
            latest = times[name] = max(latest, times[name])
    keys = []
    for name, checkpoint in by_name.items():
        sequence = -1 if checkpoint.sequence is None else checkpoint.sequence
        writing = checkpoint.state is CheckpointState.WRITING
        keys.append((writing, times[name], sequence, listed.get(name, -1), name))
    keys.sort(reverse=True)
    return [by_name[key[-1]] for key in keys]


def _modified_at(evidence: Evidence) -> float:
    index = evidence.files.index
    if index is not None:
        return index.modified_at
    newest = 0.0
    for files in (evidence.files, evidence.aside):
        if files is not None:
            times = [fact.modified_at for fact in files.facts]
            times += [link.modified_at for link in files.links]
            newest = max(newest, files.temporary_at or 0.0, *times)
    return newest


__all__ = ["Catalog", "Continuation", "Records", "continuation"]
