"""Checkpoints that are symbolic links: what they lead to, and what is said of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tfckpt_trainer.bundle.links import LinkEnd
from tfckpt_trainer.catalog.scan.checkpoint_files import Files, owner_of
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState

_SHOWN = 200
"""Characters of a link's target that are shown; a hostile one has thousands."""

_PATTERN = re.compile(r"[*?\[\]\\]")
"""What has a meaning of its own to `find -name`."""

_NAMED = 3
"""So many links are named in a command."""


def broken(files: Files, name: str) -> tuple[CheckpointState, str] | None:
    """Returns state and problem of a checkpoint whose file `name` is a link to no readable file.

    Returns:
        None where it is no link.
    """
    link = files.link(name)
    if link is None:
        return None
    said = f"{name} is a symbolic link to {shown(link.target)}"
    if link.end is LinkEnd.OUTSIDE:
        problem = f"{said}, outside this directory; it is not followed."
        return CheckpointState.UNREADABLE, problem
    if link.end is LinkEnd.LOOP:
        return CheckpointState.INCOMPLETE, f"{said}, which leads back to itself."
    if link.end is LinkEnd.NOT_A_FILE:
        return CheckpointState.INCOMPLETE, f"{said}, which is not a regular file."
    return CheckpointState.INCOMPLETE, f"{said}, which does not exist."


def described(checkpoint: Checkpoint, target: Checkpoint | None) -> Checkpoint:
    """Returns a checkpoint that has links, with the state and the name of what it links to.

    Args:
        checkpoint: As its own files make it.
        target: The one to which all its files are links, if there is one; see `alias_of`.
    """
    if target is None or target.links:
        first = checkpoint.links[0]
        said = f"{first.name} is a symbolic link to {shown(first.target)}."
        problem = checkpoint.problem
        if not any(link.name in problem for link in checkpoint.links):
            problem = f"{said} {problem}".rstrip()
        if checkpoint.state.restorable:
            problem += " Replace its links by copies to restore it."
        return replace(checkpoint, problem=problem)
    cure = f"Name {target.name} instead." if target.restorable else target.problem
    problem = f"It is a symbolic link to {target.name}. {cure}"
    # What verifying found of the same bytes holds for both names.
    if checkpoint.verified_at is not None and checkpoint.verified_at > (target.verified_at or 0.0):
        return replace(checkpoint, problem=problem)
    return replace(checkpoint, state=target.state, verified_at=target.verified_at, problem=problem)


def link_reasons(checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Yields why links keep checkpoints from being pruned: those they lead to, and their own."""
    linked = [checkpoint for checkpoint in checkpoints if checkpoint.links]
    if not linked:
        return
    there = {checkpoint.name for checkpoint in checkpoints}
    for checkpoint in linked:
        cure = f"if you do not need it, run `{_removal(checkpoint)}`"
        yield checkpoint.name, f"symbolic links are not moved; {cure}"
    links = [(link, checkpoint.name) for checkpoint in linked for link in checkpoint.links]
    # What leads there by way of another link is the lesser reason.
    links.sort(key=lambda found: found[0].target.rpartition("/")[2] != found[0].file)
    for link, name in links:
        target = owner_of(link.file)
        if target in there:
            yield target, f"{name} is a symbolic link to it"


def shown(target: str) -> str:
    """Returns what a link names, no longer than can be read."""
    return target if len(target) <= _SHOWN else f"{target[:_SHOWN]}…"


def file_names(names: Iterable[str]) -> str:
    """Returns file names as arguments of a command, none of which is taken for an option."""
    return shlex.join([f"./{name}" if name.startswith("-") else name for name in names])


def alias_of(files: Files) -> str:
    """Returns the one checkpoint to whose files all of these are links, each to its like."""
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
