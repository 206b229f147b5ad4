"""All checkpoints of a directory, by an incremental look at its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.state_file import StateFile, read_state_file
from tfckpt_trainer.catalog.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.files import Files, look
from tfckpt_trainer.catalog.pins import pinned_names
from tfckpt_trainer.catalog.states import Verdict, judge
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load, load_if_there
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name, parse_checkpoint_name
from tfckpt_trainer.rundir.records import CheckpointRecord, Head


@dataclass(frozen=True)
class Continuation:
    """Where a cold start goes on: from which checkpoint, on which branch.

    Attributes:
        sequence: The highest place in the order of saves and restores so far.
    """

    checkpoint: str
    branch: int
    sequence: int


class Catalog:
    """Looks at one directory again and again; what did not change is not read twice."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._records = Records(run)
        self._verdicts: dict[str, tuple[tuple[object, ...], Verdict]] = {}

    def scan(self, now: float) -> tuple[Checkpoint, ...]:
        """Returns all checkpoints, newest first.

        Those with a record come in the order in which they were saved; others in the order of
        the state file, then of their times. Numbers say nothing: a run that went back saves
        small numbers late.

        Args:
            now: Seconds since the epoch.

        Raises:
            OSError: The directory cannot be read.
        """
        found = look(self._run.root)
        aside = _names_in_saving(self._run)
        for name in aside:
            found.setdefault(name, Files(name))
        records = self._records.look()
        state = _state_file(self._run)
        head = continuation_from(records, _head(self._run), state)
        pins = pinned_names(self._run)
        checkpoints = [
            self._checkpoint(files, records.get(name), state, head, name in pins, now, aside)
            for name, files in found.items()
        ]
        self._verdicts = {name: self._verdicts[name] for name in found if name in self._verdicts}
        order = {name: place for place, name in enumerate(state.names if state else ())}
        return tuple(
            sorted(
                checkpoints,
                key=lambda c: (
                    c.sequence if c.sequence is not None else -1,
                    order.get(c.name, -1),
                    c.saved_at,
                    c.name,
                ),
                reverse=True,
            )
        )

    def _checkpoint(
        self,
        files: Files,
        record: CheckpointRecord | None,
        state: StateFile | None,
        head: Continuation | None,
        pinned: bool,
        now: float,
        aside: Mapping[str, float],
    ) -> Checkpoint:
        if files.name in aside and files.temporary_at is None:
            files.temporary_at = aside[files.name]
        verdict = self._verdict(files, record, now, files.name in aside)
        said = parse_checkpoint_name(files.name)
        return Checkpoint(
            name=files.name,
            step=record.step if record else said.step if said else None,
            branch=record.branch if record else said.branch if said else 0,
            state=verdict.state,
            size=files.size,
            shards=verdict.shards,
            saved_at=record.saved_at if record else _saved_at(files),
            parent=record.parent if record else None,
            sequence=record.sequence if record else None,
            trigger=record.trigger if record else "",
            metrics=record.metrics if record else {},
            pinned=pinned,
            is_head=head is not None and head.checkpoint == files.name,
            listed=state is not None and files.name in state.names,
            problem=verdict.problem,
            record=record,
        )

    def _verdict(
        self, files: Files, record: CheckpointRecord | None, now: float, in_saving: bool
    ) -> Verdict:
        identity = (*files.identity, files.temporary_at, in_saving, record)
        known = self._verdicts.get(files.name)
        if known is not None and known[0] == identity:
            verdict = known[1]
            passing = verdict.state is CheckpointState.WRITING
            if not passing:
                return verdict
        verdict = judge(files, record, now=now, in_saving=in_saving)
        self._verdicts[files.name] = (identity, verdict)
        return verdict


class Records:
    """The records of a run, read again only where a file was replaced."""

    def __init__(self, run: RunDirectory) -> None:
        self._directory = run.records_directory
        self._known: dict[str, tuple[tuple[int, int, int], CheckpointRecord | None]] = {}

    def look(self) -> dict[str, CheckpointRecord]:
        """Returns the records by name; damaged ones are left out."""
        known = {}
        for entry in _entries(self._directory):
            name = entry.name.removesuffix(".json")
            if name == entry.name or not entry.is_file(follow_symlinks=False):
                continue
            facts = entry.stat(follow_symlinks=False)
            identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            before = self._known.get(name)
            if before is not None and before[0] == identity:
                known[name] = before
            else:
                known[name] = identity, _read_record(Path(entry.path), name)
        self._known = known
        return {name: record for name, (_, record) in known.items() if record is not None}


def continuation(run: RunDirectory) -> Continuation | None:
    """Returns where a cold start goes on, or None where there is nothing to go on from.

    It is the checkpoint that was saved or restored last. A directory without records follows
    TensorFlow's state file.
    """
    return continuation_from(Records(run).look(), _head(run), _state_file(run))


def continuation_from(
    records: Mapping[str, CheckpointRecord], head: Head | None, state: StateFile | None
) -> Continuation | None:
    """The rule of `continuation`, from what was read."""
    newest = max(records.values(), key=lambda record: record.sequence, default=None)
    if head is not None and (newest is None or head.sequence > newest.sequence):
        return Continuation(head.checkpoint, head.branch, head.sequence)
    if newest is not None:
        return Continuation(newest.name, newest.branch, newest.sequence)
    if state is not None and state.latest_name:
        said = parse_checkpoint_name(state.latest_name)
        return Continuation(state.latest_name, said.branch if said else 0, 0)
    return None


def _head(run: RunDirectory) -> Head | None:
    try:
        return load_if_there(run.head_file, Head)
    except DamagedFileError:
        return None


def _state_file(run: RunDirectory) -> StateFile | None:
    try:
        return read_state_file(run.state_file)
    except DamagedFileError:
        return None


def _read_record(path: Path, name: str) -> CheckpointRecord | None:
    try:
        record = load(path, CheckpointRecord)
    except (DamagedFileError, OSError):
        return None
    return record if record.name == name and is_plain_name(name) else None


def _names_in_saving(run: RunDirectory) -> dict[str, float]:
    """Names of checkpoints that our library writes aside, with the newest time of each."""
    names: dict[str, float] = {}
    for entry in _entries(run.saving_directory):
        name = entry.name.split(".data-")[0].removesuffix(".index").removesuffix("_temp")
        try:
            modified_at = entry.stat(follow_symlinks=False).st_mtime
        except FileNotFoundError:
            continue
        if parse_checkpoint_name(name) is not None:
            names[name] = max(names.get(name, 0.0), modified_at)
    return names


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _saved_at(files: Files) -> float:
    times = [fact.modified_at for fact in files.all]
    if files.index is not None:
        return files.index.modified_at
    return max(times, default=files.temporary_at or 0.0)
