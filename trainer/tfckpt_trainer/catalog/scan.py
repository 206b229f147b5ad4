"""All checkpoints of a directory, by an incremental look at its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.files import Files, Look, look_if_there
from tfckpt_trainer.catalog.history import (
    Continuation,
    Records,
    continuation,
    continuation_from,
    read_head,
    read_list,
)
from tfckpt_trainer.catalog.pins import pinned_names
from tfckpt_trainer.catalog.states import Evidence, Verdict, judge
from tfckpt_trainer.catalog.trash import TrashLook
from tfckpt_trainer.catalog.verifications import Verifications
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records import CheckpointRecord

INDEX_BYTES_PER_SCAN = 4 << 20
"""Of whole indexes read in one look: about 20,000 tensors, a fifth of a second."""


@dataclass(frozen=True)
class _Known:
    """What the last look found of one checkpoint."""

    evidence: Evidence
    verdict: Verdict
    checkpoint: Checkpoint

    def holds_for(self, evidence: Evidence) -> bool:
        """Whether nothing can have changed, and nothing was put off."""
        return self.verdict.holds and self.verdict.sizes_known and self.evidence == evidence


class Catalog:
    """Looks at one directory again and again; what did not change is not read twice."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._look = Look(run.root)
        self._look_aside = Look(run.saving_directory)
        self._trash = TrashLook(run)
        self._records = Records(run)
        self._verifications = Verifications(run)
        self._known: dict[str, _Known] = {}
        self._index_bytes = 0

    def scan(self, now: float) -> tuple[Checkpoint, ...]:
        """Returns all checkpoints, newest first.

        Those with a record come in the order in which they were saved, listed ones in the order
        of the state file, and both and the rest are merged by their times. Numbers say nothing:
        a run that went back saves small numbers late. What is being written comes before all.

        Where the indexes are many and large, a first look takes their data files for long
        enough, except the newest ones'; the following looks compare the rest bit by bit.

        Args:
            now: Seconds since the epoch.

        Raises:
            OSError: The directory cannot be read.
        """
        # Our commit goes from aside into view: looked at in this order, it is seen in one place.
        aside = look_if_there(self._look_aside)
        found = self._look.take()
        in_transit = self._trash.in_transit()
        for name in aside:
            found.setdefault(name, Files(name))
        records = self._records.look()
        verifications = self._verifications.look()
        evidence = {
            name: Evidence(
                files,
                aside.get(name),
                records.get(name),
                name in in_transit,
                verifications.get(name),
            )
            for name, files in found.items()
        }
        self._judge(evidence, now)
        return self._finished(records)

    def evidence(self, name: str) -> Evidence:
        """Returns what the last look found of checkpoint `name`.

        Raises:
            KeyError: It found no such checkpoint.
        """
        return self._known[name].evidence

    def _judge(self, found: Mapping[str, Evidence], now: float) -> None:
        before, self._known, self._index_bytes = self._known, {}, 0
        # The newest first: they are what the allowance for whole indexes is best spent on.
        changed = []
        for name, evidence in found.items():
            known = before.get(name)
            if known is not None and known.holds_for(evidence):
                self._known[name] = known
            else:
                changed.append(evidence)
        # The newest first: they are what the allowance for whole indexes is best spent on.
        for evidence in sorted(changed, key=_modified_at, reverse=True):
            verdict = self._verdict(evidence, now)
            described = _describe(evidence, verdict)
            self._known[evidence.files.name] = _Known(evidence, verdict, described)

    def _verdict(self, evidence: Evidence, now: float) -> Verdict:
        index = evidence.files.index
        affordable = self._index_bytes < INDEX_BYTES_PER_SCAN
        verdict = judge(self._run.root, evidence, now=now, read_sizes=affordable)
        if index is not None and verdict.sizes_known and verdict.state is CheckpointState.COMPLETE:
            self._index_bytes += index.size
        return verdict

    def _finished(self, records: Mapping[str, CheckpointRecord]) -> tuple[Checkpoint, ...]:
        """Adds what the directory says around the files: list, pins, where a start goes on."""
        state, pins = read_list(self._run), pinned_names(self._run)
        listed = {name: place for place, name in enumerate(state.names)} if state else {}
        ordered = _in_order([known.checkpoint for known in self._known.values()], listed)
        head = self._head(ordered, records, state)
        checkpoints = []
        for checkpoint in ordered:
            name = checkpoint.name
            facts = name in pins, name == head, name in listed
            if facts != (checkpoint.pinned, checkpoint.is_head, checkpoint.listed):
                pinned, is_head, is_listed = facts
                checkpoint = replace(checkpoint, pinned=pinned, is_head=is_head, listed=is_listed)
                self._known[name] = replace(self._known[name], checkpoint=checkpoint)
            checkpoints.append(checkpoint)
        return tuple(checkpoints)

    def _head(
        self,
        ordered: Sequence[Checkpoint],
        records: Mapping[str, CheckpointRecord],
        state: StateFile | None,
    ) -> str:
        """Returns what a cold start goes on from, passing over what cannot be restored."""
        restorable = [checkpoint.name for checkpoint in ordered if checkpoint.restorable]
        committed = {n for n, known in self._known.items() if known.evidence.files.index}
        wanted = continuation_from(records, read_head(self._run), state, committed)
        if wanted is not None and wanted.checkpoint in restorable:
            return wanted.checkpoint
        return restorable[0] if restorable else ""


def _describe(evidence: Evidence, verdict: Verdict) -> Checkpoint:
    files, record = evidence.files, evidence.record
    said = parse_checkpoint_name(files.name)
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
        )
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
    )


def _in_order(checkpoints: Sequence[Checkpoint], listed: Mapping[str, int]) -> Sequence[Checkpoint]:
    """Sorts newest first; an order that was written down is never turned round by a clock."""
    times = {checkpoint.name: checkpoint.saved_at for checkpoint in checkpoints}
    recorded = [c for c in checkpoints if c.sequence is not None]
    only_listed = [c for c in checkpoints if c.sequence is None and c.name in listed]
    recorded.sort(key=lambda c: (c.sequence or 0, c.name))
    only_listed.sort(key=lambda c: listed[c.name])
    for known_order in (recorded, only_listed):
        latest = float("-inf")
        for checkpoint in known_order:
            latest = times[checkpoint.name] = max(latest, checkpoint.saved_at)

    def key(checkpoint: Checkpoint) -> tuple[bool, float, int, int, str]:
        name = checkpoint.name
        sequence = -1 if checkpoint.sequence is None else checkpoint.sequence
        writing = checkpoint.state is CheckpointState.WRITING
        return writing, times[name], sequence, listed.get(name, -1), name

    return sorted(checkpoints, key=key, reverse=True)


def _modified_at(evidence: Evidence) -> float:
    if evidence.files.index is not None:
        return evidence.files.index.modified_at
    newest = 0.0
    for files in (evidence.files, evidence.aside):
        if files is not None:
            times = [fact.modified_at for fact in files.facts]
            newest = max(newest, files.temporary_at or 0.0, *times)
    return newest


__all__ = ["Catalog", "Continuation", "Records", "continuation"]
