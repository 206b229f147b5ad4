"""Updates TensorFlow's state file when checkpoints are pruned and brought back."""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence

from msgspec.structs import replace

from tfckpt_trainer.bundle.state_file import StateFile, write_state_file
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, trained_first
from tfckpt_trainer.catalog.directory.history import read_state_list
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import ListEntry, TrashedCheckpoint


def list_entries(state: StateFile | None) -> dict[str, ListEntry]:
    """Returns the entries of the state file by checkpoint name."""
    if state is None:
        return {}
    stamps = _stamps(state)
    return {
        os.path.basename(path): ListEntry(
            path=path, place=place, timestamp=stamps[place] if stamps else None
        )
        for place, path in enumerate(state.all_paths)
    }


def remove_from_state_file(
    run: RunDirectory, names: frozenset[str], remaining: Sequence[Checkpoint]
) -> bool:
    """Removes checkpoints from TensorFlow's state file; the next save replaces a damaged one.

    Args:
        run: The run directory.
        names: The checkpoints to remove.
        remaining: The other checkpoints, newest first.

    Returns:
        False if a state file is there that cannot be read.

    Raises:
        OSError: The state file cannot be written.
    """
    state = read_state_list(run)
    if state is None:
        return not os.path.lexists(run.state_file)
    if not names & {*state.names, state.latest_name}:
        return True
    stamps = _stamps(state)
    kept = [place for place, name in enumerate(state.names) if name not in names]
    paths = [state.all_paths[place] for place in kept]
    times = [stamps[place] for place in kept] if stamps else []
    latest = state.latest
    if state.latest_name in names:
        newest = _newest(remaining)
        if newest is None:
            # TensorFlow cannot read a state file without a latest checkpoint.
            return True
        place = next((n for n, p in enumerate(paths) if os.path.basename(p) == newest.name), None)
        latest = newest.name if place is None else paths.pop(place)
        stamp = newest.saved_at if place is None or not times else times.pop(place)
        paths.append(latest)
        if stamps:
            times.append(stamp)
    write_state_file(
        run.state_file,
        replace(state, latest=latest, all_paths=tuple(paths), timestamps=tuple(times)),
    )
    return True


def return_to_state_file(run: RunDirectory, returned: Sequence[TrashedCheckpoint]) -> None:
    """Adds checkpoints to TensorFlow's state file again, in their old places.

    The latest checkpoint of the file does not change.

    Raises:
        OSError: The state file cannot be written.
    """
    state = read_state_list(run)
    if state is None:
        return
    stamps = list(_stamps(state))
    paths = list(state.all_paths)
    names = frozenset(state.names)
    entries = [t.list_entry for t in returned if t.list_entry and t.name not in names]
    is_sorted = stamps == sorted(stamps)
    for entry in sorted(entries, key=lambda entry: entry.place):
        wanted = _place_by_time(entry, stamps) if is_sorted else entry.place
        place = max(0, min(wanted, len(paths) - 1))
        paths.insert(place, entry.path)
        if len(stamps) == len(paths) - 1 and (stamps or entry.timestamp is not None):
            stamps.insert(place, entry.timestamp or 0.0)
            around = stamps[max(0, place - 1) : place + 2]
            is_sorted = is_sorted and around == sorted(around)
    if entries:
        write_state_file(
            run.state_file, replace(state, all_paths=tuple(paths), timestamps=tuple(stamps))
        )


def _place_by_time(entry: ListEntry, stamps: Sequence[float]) -> int:
    """Returns the index for an entry in a list that is ordered by time."""
    if entry.timestamp is None or not stamps:
        return entry.place
    return bisect.bisect_left(stamps, entry.timestamp)


def _newest(remaining: Sequence[Checkpoint]) -> Checkpoint | None:
    head = next((checkpoint for checkpoint in remaining if checkpoint.is_head), None)
    return head or next((c for c in trained_first(remaining) if c.restorable), None)


def _stamps(state: StateFile) -> tuple[float, ...]:
    return state.timestamps if len(state.timestamps) == len(state.all_paths) else ()
