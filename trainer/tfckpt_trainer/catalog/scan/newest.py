"""Finds the newest checkpoints of a directory without a scan of all, to show them at once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.bundle.index import read_shard_count, shard_path
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.remembered_listing import recall_newest
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name, parse_numbered_name
from tfckpt_trainer.rundir.storage.identity import identity_of

MOST_LINES = 16
"""Of more lines, the names do not tell which checkpoints are the newest."""

MOST_SHARDS = 256
"""A checkpoint with more data files is left to the scan of all."""

_INDEX = ".index"


def scan_newest(run: RunDirectory, count: int, now: float) -> Sequence[Checkpoint]:
    """Scans the newest checkpoints alone, which is quick in a directory with any number of them.

    Which these are follows from the remembered listing or, if the directory changed since, from
    the names: a scan of all may find others that are newer. What is returned of each checkpoint is
    what its files say now. Which one is the head is not determined.

    Args:
        run: The run directory.
        count: How many to scan.
        now: Seconds since the epoch.

    Returns:
        The checkpoints, newest first, without those that link to others; none if a scan of all is
        as quick, or if the names do not tell which are the newest.

    Raises:
        OSError: The directory cannot be read.
    """
    names = recall_newest(run.root)[:count] or _newest_by_name(run.root, count)
    shards = {name: _shard_count(run.root / name) for name in names}
    shards = {name: number for name, number in shards.items() if number <= MOST_SHARDS}
    if not shards:
        return []
    entries = {file for name, number in shards.items() for file in _file_names(name, number)}
    # Nothing is remembered of their content: they are read as in any scan.
    checkpoints = Catalog(run, shards.keys(), entries).scan(now, quick=True)
    return [
        replace(found, is_head=False)
        for found in checkpoints
        if not found.links and found.shards == shards[found.name]
    ]


def _newest_by_name(root: Path, count: int) -> Sequence[str]:
    """Returns the checkpoints with the newest index among those with the highest steps."""
    indexed = [name[: -len(_INDEX)] for name in os.listdir(root) if name.endswith(_INDEX)]
    if len(indexed) <= 2 * count:
        return ()
    lines = _lines(indexed)
    if len(lines) > MOST_LINES:
        return ()
    candidates = [name for line in lines for _, name in nlargest(count, line)]
    times = {name: _time_of_index(root, name) for name in filter(is_plain_name, candidates)}
    return nlargest(count, times, key=lambda name: times[name])


def _lines(names: Iterable[str]) -> Sequence[list[tuple[int, str]]]:
    """Returns the checkpoints, with their steps, by prefix and branch."""
    lines: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        # Most names without `parse_numbered_name`, which takes ten times as long.
        line, _, step = name.rpartition("-")
        if step.isdecimal():
            lines[line].append((int(step), name))
        else:
            said = parse_numbered_name(name)
            lines[said.prefix if said else line].append((said.step if said else -1, name))
    return list(lines.values())


def _time_of_index(root: Path, name: str) -> int:
    identity = identity_of(root / f"{name}{_INDEX}")
    return identity[1] if identity is not None else 0


def _shard_count(prefix: Path) -> int:
    """Returns how many data files a checkpoint seems to have; its index is read if not one."""
    if identity_of(shard_path(prefix, 0, 1)) is not None:
        return 1
    try:
        return read_shard_count(prefix)
    except (TfckptError, OSError):
        # The scan finds out what is wrong with it.
        return 1


def _file_names(name: str, shards: int) -> Iterator[str]:
    for number in range(shards):
        yield shard_path(Path(name), number, shards).name
    for ending in (_INDEX, ".meta", TEMPORARY):
        yield f"{name}{ending}"
