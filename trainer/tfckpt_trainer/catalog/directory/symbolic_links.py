"""Checkpoints made of symbolic links: their targets, their state and the messages on them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from msgspec.structs import replace

from tfckpt_trainer.bundle.links import LinkEnd
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, owner_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.rundir.paths import RunDirectory

_SHOWN = 200
"""How many characters of a link's target are shown; a hostile one has thousands."""

_PATTERN = re.compile(r"[*?\[\]\\]")
"""Characters with a special meaning to `find -name`."""

_NAMED = 3
"""How many links a command names one by one."""


def link_problem(files: CheckpointFiles, name: str) -> tuple[CheckpointState, str] | None:
    """Returns state and problem of a checkpoint whose file `name` is a dead or outside link.

    Returns:
        None if `name` is not a link.
    """
    link = files.link(name)
    if link is None:
        return None
    what = f"{name} is a symbolic link to {shorten_target(link.target)}"
    if link.end is LinkEnd.OUTSIDE:
        problem = f"{what}, outside this directory; it is not followed."
        return CheckpointState.UNREADABLE, problem
    if link.end is LinkEnd.LOOP:
        return CheckpointState.INCOMPLETE, f"{what}, which leads back to itself."
    if link.end is LinkEnd.NOT_A_FILE:
        return CheckpointState.INCOMPLETE, f"{what}, which is not a regular file."
    return CheckpointState.INCOMPLETE, f"{what}, which does not exist."


def with_target_state(checkpoint: Checkpoint, target: Checkpoint | None) -> Checkpoint:
    """Returns a checkpoint of links with the state and the name of its target.

    Args:
        checkpoint: The checkpoint, with the state of its own files.
        target: The checkpoint that all its files link to, if there is one.
    """
    if target is None or target.links:
        first = checkpoint.links[0]
        what = f"{first.name} is a symbolic link to {shorten_target(first.target)}."
        problem = checkpoint.problem
        if not any(link.name in problem for link in checkpoint.links):
            problem = f"{what} {problem}".rstrip()
        if checkpoint.state.restorable:
            problem += " Replace its links by copies to restore it."
        return replace(checkpoint, problem=problem)
    advice = f"Name {target.name} instead." if target.restorable else target.problem
    problem = f"It is a symbolic link to {target.name}. {advice}"
    # A verification result of the same bytes is valid for both names.
    if checkpoint.verified_at is not None and checkpoint.verified_at > (target.verified_at or 0.0):
        return replace(checkpoint, problem=problem)
    return replace(checkpoint, state=target.state, verified_at=target.verified_at, problem=problem)


def link_reasons(checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Yields checkpoints that links protect from a prune, each with the reason.

    A link of a stranger protects none: anybody could fill the disk of a run with it.
    """
    linked = [checkpoint for checkpoint in checkpoints if checkpoint.links]
    if not linked:
        return
    there = {checkpoint.name for checkpoint in checkpoints}
    for checkpoint in linked:
        advice = f"if you do not need it, run `{_removal(checkpoint)}`"
        if checkpoint.stranger:
            advice = f"it belongs to {checkpoint.stranger}"
        yield checkpoint.name, f"symbolic links are not moved; {advice}"
    counted = [checkpoint for checkpoint in linked if not checkpoint.stranger]
    links = [(link, checkpoint.name) for checkpoint in counted for link in checkpoint.links]
    # Direct links first: they are the better reason.
    links.sort(key=lambda pair: pair[0].target.rpartition("/")[2] != pair[0].file)
    for link, name in links:
        target = owner_of(link.file)
        if target in there:
            yield target, f"{name} is a symbolic link to it"


def linked_from_below(run: RunDirectory) -> dict[str, str]:
    """Returns the checkpoints that symbolic links in subdirectories lead to, each with the reason.

    Such a link, `best/ckpt.index -> ../ckpt-300.index`, may be how another program finds it. One of
    a stranger does not count.

    Args:
        run: The run directory.

    Raises:
        OSError: The directory cannot be read.
    """
    reasons: dict[str, str] = {}
    root, owners = run.root, run.owners()
    real = os.path.realpath(root)
    with os.scandir(root) as entries:
        places = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for place in places:
        with suppress(OSError), os.scandir(os.path.join(root, place)) as entries:
            for entry in entries:
                if entry.is_symlink() and _counts(entry, owners):
                    target = _target_in(real, os.path.join(root, place), entry.name)
                    if target:
                        reason = f"{place}/{entry.name} is a symbolic link to it"
                        reasons.setdefault(target, reason)
    return reasons


def _counts(link: os.DirEntry[str], owners: AbstractSet[int] | None) -> bool:
    return owners is None or link.stat(follow_symlinks=False).st_uid in owners


def _target_in(root: str, directory: str, name: str) -> str:
    """Returns the checkpoint in `root` that a link elsewhere leads to; empty if none."""
    target = os.path.join(directory, os.readlink(os.path.join(directory, name)))
    place, file = os.path.split(os.path.normpath(target))
    return owner_of(file) if os.path.realpath(place) == root else ""


def shorten_target(target: str) -> str:
    """Returns the target of a link, shortened for display."""
    return target if len(target) <= _SHOWN else f"{target[:_SHOWN]}…"


def file_names(names: Iterable[str]) -> str:
    """Returns file names quoted for a shell; none can be taken for an option."""
    return shlex.join([f"./{name}" if name.startswith("-") else name for name in names])


def linked_checkpoint(files: CheckpointFiles) -> str:
    """Returns the checkpoint that all these files link to, each to its counterpart; else empty."""
    if not files.links or len(files.links) < len(files.facts):
        return ""
    targets = {owner_of(link.file) for link in files.links}
    target = targets.pop()
    length = len(files.name)
    is_alias = all(link.file == f"{target}{link.name[length:]}" for link in files.links)
    return target if is_alias and not targets else ""


def _removal(checkpoint: Checkpoint) -> str:
    names = [link.name for link in checkpoint.links]
    if len(names) <= _NAMED:
        return f"rm {file_names(names)}"
    own = _PATTERN.sub(r"\\\g<0>", checkpoint.name)
    index, data = shlex.quote(f"{own}.index"), shlex.quote(f"{own}.data-*-of-*")
    return f"find . -maxdepth 1 -type l '(' -name {index} -o -name {data} ')' -delete"
