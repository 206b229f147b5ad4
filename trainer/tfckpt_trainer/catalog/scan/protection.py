"""Which checkpoints and files no prune may delete, and why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tfckpt_trainer.catalog.directory.checkpoints import (
    Checkpoint,
    CheckpointState,
    newest_finite,
    rule_groups,
)
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, find_neighbours
from tfckpt_trainer.catalog.directory.symbolic_links import link_reasons
from tfckpt_trainer.catalog.scan.states import quiet_seconds_of
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.records.results import values_of
from tfckpt_trainer.words.advice import only_command
from tfckpt_trainer.words.clean_text import is_utf8

NOT_IN_USE: Mapping[str, str] = MappingProxyType({})
"""No checkpoint is in use."""

_NO_FILE = "it is a directory or a symbolic link"
_OTHER_CONTENT = "its content is not that of the format which its name tells"

LAST_VERIFIED = "the last verified"
"""Why the newest checkpoint with a good verification result is protected."""


def protections(
    checkpoints: Sequence[Checkpoint], in_use: Mapping[str, str] = NOT_IN_USE
) -> dict[str, str]:
    """Returns the names of the checkpoints that no prune may delete, each with the reason.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
    """
    # A prune looks at very many checkpoints, of which hardly any has a reason of its own.
    special = [
        c
        for c in checkpoints
        if c.pinned
        or c.is_head
        or not c.state.restorable
        or c.name in in_use
        or not c.name.isascii()
    ]
    reasons = {c.name: reason for c in special if (reason := _reason(c, in_use))}
    for name, reason in link_reasons(checkpoints):
        reasons.setdefault(name, reason)
    # Those that the run saved, or else others, if there are any.
    groups = rule_groups(checkpoints)
    restorable = groups[0] if groups else [c for c in checkpoints if c.restorable]
    if restorable:
        reasons.setdefault(restorable[0].name, "the newest that can be restored")
    for name, reason in _newest_finite(restorable):
        reasons.setdefault(name, reason)
    verified = next((c for c in restorable if c.state is CheckpointState.VERIFIED), None)
    if verified is not None:
        reasons.setdefault(verified.name, LAST_VERIFIED)
    return reasons


def _newest_finite(restorable: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Yields the newest checkpoints to go back to after NaN, each with what is known of it."""
    metrics = next((c for c in restorable if _is_measured(c) and not c.not_finite), None)
    if metrics is not None:
        yield metrics.name, "the newest with finite metrics"
    unsuspected = newest_finite(restorable)
    read = next((c for c in restorable if c.not_finite_tensors == 0), None)
    if read is not None and unsuspected is not restorable[0]:
        # The newest is known to be bad, and those before it may be so too where nobody looked.
        yield read.name, "the newest whose values are known to be finite"
    if unsuspected is not None:
        yield unsuspected.name, "the newest with no known NaN or infinite value"


def _is_measured(checkpoint: Checkpoint) -> bool:
    """Whether it has metrics of training; users' own actions say nothing about its values."""
    return bool(checkpoint.metrics.keys() - values_of(checkpoint.results).keys())


def _reason(checkpoint: Checkpoint, in_use: Mapping[str, str]) -> str:
    if checkpoint.pinned:
        return "pinned"
    if not checkpoint.state.restorable:
        if checkpoint.state is CheckpointState.WRITING:
            return "being written"
        if checkpoint.state is CheckpointState.TRASHED:
            return "a prune or undo of it is not finished"
    if checkpoint.name in in_use:
        return in_use[checkpoint.name]
    if checkpoint.is_head:
        return "training continues from it"
    if not is_utf8(checkpoint.name):
        # No manifest can hold it.
        return "its name is not UTF-8; rename its files first"
    return ""


def file_protections(files: Sequence[OtherFile], root: Path, now: float) -> dict[str, str]:
    """Returns the names of the files of other formats that no prune may move, with the reason.

    Args:
        files: All of a directory, newest first.
        root: The directory.
        now: Seconds since the epoch.
    """
    reasons: dict[str, str] = {}
    newest: set[str] = set()
    quiet = quiet_seconds_of(root)
    for file in files:
        is_newest = file.format.name not in newest and file.begins_as_named(root) is True
        if is_newest:
            newest.add(file.format.name)
        if not file.is_readable or (root / file.name).is_symlink():
            reasons[file.name] = _NO_FILE
        elif is_newest:
            reasons[file.name] = f"the newest {file.format.name}"
        elif now - file.saved_at < quiet:
            reasons[file.name] = "it just changed: perhaps a program still writes it"
    return reasons


def require_prunable_files(root: Path, names: Sequence[str], now: float) -> list[OtherFile]:
    """Returns the files of other formats with these names.

    Raises:
        UsageError: A file does not exist.
        RefusedError: A file is protected.
    """
    beside = find_neighbours(root)
    by_name = {file.name: file for file in beside.others}
    reasons = file_protections(beside.others, root, now)
    for name in names:
        if name not in by_name and os.path.lexists(root / name):
            why = _OTHER_CONTENT if name in beside.misnamed else _NO_FILE
            raise RefusedError(f"{name} cannot be pruned: {why}. Nothing was changed.")
        if name not in by_name:
            raise UsageError(f"There is no file {name} of another format in {root}.")
    refuse_protected_files(names, reasons)
    return [by_name[name] for name in dict.fromkeys(names)]


def refuse_protected_files(names: Iterable[str], reasons: Mapping[str, str]) -> None:
    """Refuses a prune of a file that `file_protections` names.

    Raises:
        RefusedError: A file is protected.
    """
    for name in names:
        if name in reasons:
            raise RefusedError(f"{name} cannot be pruned: {reasons[name]}. Nothing was changed.")


def require_proven(root: Path, checkpoints: Iterable[Checkpoint]) -> None:
    """Refuses to delete for good what neither content nor a record shows to be a checkpoint.

    Raises:
        RefusedError: One of them is not known to be a checkpoint.
    """
    for checkpoint in checkpoints:
        if not checkpoint.is_proven:
            raise RefusedError(
                f"{checkpoint.name} is not deleted for good: neither its content nor a record "
                f"shows that it is a checkpoint ({checkpoint.problem.rstrip('.')}). Nothing was "
                "changed.",
                only_command("Move it to the trash with ", "prune", root, checkpoint.name),
            )
