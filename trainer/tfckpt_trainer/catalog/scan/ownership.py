"""Tells whether files that are named like a checkpoint are one: by records and content.

Other programs use such names too (`faiss.index`, `train.data-00000-of-00001`). What is not known
to be a checkpoint is not listed, counted, verified, moved or deleted.

A folder `NAME_temp` counts only if it holds parts of a save alone: `look_into_temporary` tells.
Their names prove nothing. The index of a part does, which TensorFlow writes after its data.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from pathlib import Path

from tfckpt_trainer.bundle.index import IndexReader, index_path, shard_path
from tfckpt_trainer.bundle.recognition import IndexKind, is_meta_graph, recognize_index
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, owner_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.save_directories import parts_directory
from tfckpt_trainer.catalog.scan.states import CheckpointEvidence, StateVerdict
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_trainer.rundir.storage.files import facts_of, list_directory
from tfckpt_trainer.rundir.storage.owners import is_own_there


class Ownership(Enum):
    """What is known about the origin of files that are named like a checkpoint."""

    PROVEN = auto()
    """Content or a record shows that they are a checkpoint, or were one."""
    LIKELY = auto()
    """They may be a damaged checkpoint, or one that arrives. No rule moves them, and no command
    deletes them for good."""
    NONE = auto()
    """Nothing but names. They are no checkpoint."""


def ownership_of(root: Path, evidence: CheckpointEvidence, verdict: StateVerdict) -> Ownership:
    """Returns what is known about the origin of files.

    Reads only the index of what cannot be restored: what can be restored was recognized by its
    index, or that was put off and a later scan tells.

    Args:
        root: The run directory.
        evidence: What is known about them.
        verdict: The state that follows from it, if they are a checkpoint.
    """
    files = evidence.files
    if verdict.state.restorable or _is_recorded(evidence) or has_proven_parts(root, files):
        return Ownership.PROVEN
    kind = _kind_of_index(root, evidence)
    if kind is IndexKind.BUNDLE:
        return Ownership.PROVEN
    if kind is IndexKind.OTHER:
        return Ownership.NONE
    stored = evidence.verification
    if stored is not None and stored.fault is None and _was_verified(root, files, stored):
        return Ownership.PROVEN
    # An index that cannot be recognized is a damaged one if there is data beside it.
    is_dead_link = bool(files.links) and not files.has_index
    # What cannot be read, and what just arrived, tells nothing yet.
    is_open = verdict.state in (CheckpointState.WRITING, CheckpointState.UNREADABLE)
    is_likely = (
        files.has_index_and_data
        or files.temporary_at is not None
        or is_open
        or is_dead_link
        or evidence.listed
    )
    return Ownership.LIKELY if is_likely else Ownership.NONE


def is_left_by_others(run: RunDirectory, checkpoint: Checkpoint, *, has_begun: bool) -> bool:
    """Whether nothing shows that it is a checkpoint, and other users put all of its files there.

    Args:
        run: The run directory.
        checkpoint: The checkpoint.
        has_begun: Whether the run began without it: then no record shows that it is one.
    """
    root, name = run.root, checkpoint.name
    is_recorded = checkpoint.record is not None and not has_begun
    is_whole = checkpoint.restorable or is_recorded or index_path(root / name).is_file()
    if checkpoint.is_proven and is_whole:
        return False
    entries = [entry for entry in list_directory(root) if owner_of(entry.name) == name]
    found = [entry.stat(follow_symlinks=False) for entry in entries]
    found += filter(None, [facts_of(run.record(name))])
    owners = {facts.st_uid for facts in found}
    return bool(owners) and not any(is_own_there(root, one, os.geteuid()) for one in owners)


def _was_verified(root: Path, files: CheckpointFiles, stored: VerificationRecord) -> bool:
    """Whether files are those of a result: their index, or of a whole set of data files.

    A result may stay when its checkpoint is pruned. It names all that had the name.
    """
    names = stored.files.keys()
    if files.index is not None:
        return files.index.name in names
    prefix = root / files.name
    return any(
        count <= len(names)
        and all(shard_path(prefix, n, count).name in names for n in range(count))
        for count in files.shard_counts
    )


def _is_recorded(evidence: CheckpointEvidence) -> bool:
    """Whether this library saved or moved it."""
    return (
        evidence.record is not None
        or evidence.has_bad_record
        or evidence.aside is not None
        or evidence.in_transit
    )


def has_proven_parts(root: Path, files: CheckpointFiles) -> bool:
    """Whether a command of this library writes in `NAME_temp`, or it has the index of a part.

    Reads the indexes of the parts.
    """
    if files.temporary_at is None or files.writer:
        return bool(files.writer)
    try:
        parts = [
            path for path in parts_directory(root, files.name).iterdir() if ".index" in path.name
        ]
    except OSError:
        return False
    return any(_recognized(path) is IndexKind.BUNDLE for path in parts)


def _kind_of_index(root: Path, evidence: CheckpointEvidence) -> IndexKind:
    if not evidence.files.has_index:
        return IndexKind.UNKNOWN
    return _recognized(index_path(root / evidence.files.name))


def _recognized(index: Path) -> IndexKind:
    try:
        return recognize_index(index)
    except (OSError, DamagedFileError):
        return IndexKind.UNKNOWN


def names_of_others(root: Path, evidence: CheckpointEvidence, count: int | None = None) -> set[str]:
    """Returns the names of the files that the content of a checkpoint does not make its own.

    Args:
        root: The run directory.
        evidence: What is known about the checkpoint.
        count: The number of its data files; None to read its index.
    """
    files = evidence.files
    if files.is_usual:
        return set()
    names: set[str] = set()
    if files.has_index_and_data:
        try:
            if count is None:
                count = IndexReader.checked(str(index_path(root / files.name))).shard_count
            names |= {fact.name for fact in files.shards_of_other_counts(count)}
        except (BundleError, DamagedFileError, OSError):
            # A damaged index tells nothing. Of two sets of data files, either may be its own.
            if len(files.shard_counts) > 1:
                recorded = {f.name for f in evidence.record.files} if evidence.record else set()
                names |= {fact.name for fact in files.shards.values()} - recorded
    if files.graph is not None and not is_meta_graph(root / files.graph.name):
        names.add(files.graph.name)
    return names
