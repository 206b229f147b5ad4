"""Finds named checkpoints, and whether a prune may move them, without scanning all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nlargest

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState, is_derived
from tfckpt_trainer.catalog.directory.history import load_head, read_state_list
from tfckpt_trainer.catalog.directory.stored_results import names_with_results
from tfckpt_trainer.catalog.scan.catalog import Catalog, scan_checkpoints
from tfckpt_trainer.catalog.scan.protection import LAST_VERIFIED, protections
from tfckpt_trainer.rundir.paths import (
    RunDirectory,
    is_plain_name,
    parse_checkpoint_name,
    parse_numbered_name,
)
from tfckpt_trainer.rundir.storage.files import list_directory

NEWEST_COMPARED = 16
"""How many of the newest checkpoints are compared with the named ones."""

_INDEX, _DOCUMENT = ".index", ".json"


def find_named(run: RunDirectory, texts: Iterable[str], now: float) -> dict[str, Checkpoint]:
    """Finds checkpoints by their names, or else by their steps, with one scan of these alone.

    Whether they are pinned, listed or the head is not determined.

    Args:
        run: The run directory.
        texts: Names and steps.
        now: Seconds since the epoch.

    Returns:
        The checkpoints by text. Texts are left out if only a scan of the whole directory tells
        which checkpoint they mean, or whether there is one.

    Raises:
        OSError: The directory cannot be read.
    """
    named, steps = set(), set()
    for text in texts:
        if is_plain_name(text) and index_path(run.root / text).exists():
            named.add(text)
        elif text.isascii() and text.isdecimal():
            steps.add(text)
    with_step = _names_with_steps(run, steps) if steps else {}
    checkpoints = scan_checkpoints(run, named.union(*with_step.values()), now)
    chosen = {text: checkpoints[text] for text in named if text in checkpoints}
    for text, names in with_step.items():
        checkpoint = _only_trained(text, [checkpoints.get(name) for name in names])
        if checkpoint is not None:
            chosen[text] = checkpoint
    return chosen


def _names_with_steps(run: RunDirectory, steps: AbstractSet[str]) -> dict[str, set[str]]:
    """Returns the checkpoints that may have each of some steps, from file names alone.

    The name of a checkpoint that training saved has its step. Others may have it in their record.
    The number in another name counts only if no such name has the step: it may be an epoch.
    """
    by_step: dict[str, set[str]] = {step: set() for step in steps}
    numbered: dict[str, set[str]] = {step: set() for step in steps}
    for directory in (run.root, run.saving_directory):
        for entry in list_directory(directory):
            name = owner_of(entry.name)
            said = parse_checkpoint_name(name)
            number = said or parse_numbered_name(name)
            if number is not None and str(number.step) in steps:
                (numbered if said is None else by_step)[str(number.step)].add(name)
    recorded = [
        entry.name.removesuffix(_DOCUMENT) for entry in list_directory(run.records_directory)
    ]
    others = {name for name in recorded if parse_checkpoint_name(name) is None}
    others = {name for name in others if index_path(run.root / name).exists()}
    return {step: (names or numbered[step]) | others for step, names in by_step.items()}


def _only_trained(step: str, candidates: Sequence[Checkpoint | None]) -> Checkpoint | None:
    """Returns the only checkpoint with a step that training saved; None if that is not certain.

    Nothing tells who writes what is not whole.
    """
    checkpoints = [candidate for candidate in candidates if candidate is not None]
    begun = {CheckpointState.WRITING, CheckpointState.ORPHANED}
    if len(checkpoints) < len(candidates) or any(c.state in begun for c in checkpoints):
        return None
    trained = [
        checkpoint
        for checkpoint in checkpoints
        if str(checkpoint.step) == step and not is_derived(checkpoint)
    ]
    return trained[0] if len(trained) == 1 else None


def scan_for_prune(
    run: RunDirectory, names: Iterable[str], in_use: Mapping[str, str], now: float
) -> tuple[Catalog, tuple[Checkpoint, ...]]:
    """Scans as much of a directory as tells whether a prune may move named checkpoints.

    Most protections go to the newest checkpoint of some kind. A named one that is not the newest
    of the named ones and a few others is not the newest of all. Otherwise, or if their order
    depends on checkpoints that were not compared, scans all.

    Args:
        run: The run directory.
        names: The checkpoints.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
        now: Seconds since the epoch.

    Returns:
        The catalog, and what it found, newest first.

    Raises:
        OSError: The directory cannot be read.
    """
    chosen = frozenset(names)
    sample = _sample(run, chosen)
    if sample is not None:
        some = Catalog(run, sample.names)
        checkpoints = some.scan(now)
        if _is_decided(checkpoints, sample, in_use):
            return some, checkpoints
    catalog = Catalog(run)
    return catalog, catalog.scan(now)


@dataclass(frozen=True)
class _Sample:
    """Checkpoints that a prune may move, and others to compare them with.

    Attributes:
        chosen: The checkpoints that a prune may move.
        names: These and the others.
        shows_last_verified: Whether the last verified one of them is that of the directory.
        has_records: Whether the directory has records of checkpoints.
    """

    chosen: AbstractSet[str]
    names: AbstractSet[str]
    shows_last_verified: bool
    has_records: bool


def _sample(run: RunDirectory, chosen: AbstractSet[str]) -> _Sample | None:
    """Returns the chosen checkpoints and others; None if all have to be compared.

    The others are the newest according to their names, those that the state file and the last
    restore name, and all that links lead from.
    """
    entries = list_directory(run.root)
    indexed = {e.name.removesuffix(_INDEX) for e in entries if e.name.endswith(_INDEX)}
    linked = {name for e in entries if e.is_symlink() and (name := owner_of(e.name))}
    state = read_state_list(run)
    latest = state.latest_name if state is not None else None
    others = indexed - chosen
    if not chosen <= indexed or latest in chosen or len(others) < len(chosen):
        return None
    verified = others & names_with_results(run)
    listed = indexed & frozenset(state.names if state is not None else ())
    has_records = bool(list_directory(run.records_directory))
    if chosen <= listed and not has_records:
        # Their order is that of the list, which says nothing about others.
        others &= listed
    head, _ = load_head(run)
    used_last = {latest, head.checkpoint if head is not None else None}
    compared = {
        *nlargest(NEWEST_COMPARED, others, key=_place),
        *nlargest(NEWEST_COMPARED, others & verified, key=_place),
        *linked,
        *(listed if len(listed) <= NEWEST_COMPARED else ()),
        *(name for name in used_last if name in indexed),
    }
    names = chosen | compared
    # A record counts as verification. The places of listed ones depend on the others in the list.
    is_exact = verified <= compared and not has_records and (listed <= names or names <= listed)
    return _Sample(chosen, names, shows_last_verified=is_exact, has_records=has_records)


def _is_decided(
    checkpoints: Sequence[Checkpoint], sample: _Sample, in_use: Mapping[str, str]
) -> bool:
    """Whether a scan of all checkpoints would protect the same chosen ones."""
    named = [checkpoint for checkpoint in checkpoints if checkpoint.name in sample.chosen]
    is_ordered = _is_order_known(checkpoints, named, has_records=sample.has_records)
    if len(named) < len(sample.chosen) or not is_ordered:
        return False
    final = {"", LAST_VERIFIED} if sample.shows_last_verified else {""}
    protected = protections(checkpoints, in_use)
    return all(
        checkpoint.pinned
        or checkpoint.name in in_use
        or protected.get(checkpoint.name, "") in final
        for checkpoint in named
    )


def _is_order_known(
    checkpoints: Sequence[Checkpoint], named: Sequence[Checkpoint], *, has_records: bool
) -> bool:
    """Whether no other checkpoint can change the order of these; see `Catalog.scan`."""
    if all(checkpoint.sequence is not None for checkpoint in checkpoints):
        return True
    if has_records:
        return False
    if any(checkpoint.listed for checkpoint in named):
        return all(checkpoint.listed for checkpoint in checkpoints)
    return True


def _place(name: str) -> tuple[int, int]:
    said = parse_numbered_name(name)
    return (said.branch, said.step) if said is not None else (-1, -1)
