"""Gathers what the diagnostics of a directory need to know."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.scan.checkpoint_files import (
    FileFact,
    Identity,
    Look,
    owner_of,
    size_of_directory,
)
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.seen import Condition, Lookup, Seen, look_up
from tfckpt_trainer.catalog.scan.version_one import VersionOne, VersionOneLook
from tfckpt_trainer.rundir.filesystems import is_network_file_system
from tfckpt_trainer.rundir.paths import RunDirectory


class Seeing:
    """Remembers from look to look since when a directory is as it is."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._is_network = is_network_file_system(run.root)
        self._version_one = VersionOneLook(run.root)
        self._view: object = None
        self._since = 0.0

    def look(
        self,
        files: Look,
        checkpoints: Sequence[Checkpoint],
        state: StateFile | None,
        condition: Condition,
        identity: Identity | None,
        now: float,
    ) -> Seen:
        """Returns what is seen of the directory.

        Args:
            files: The last look at its files.
            checkpoints: What was made of them, newest first.
            state: What TensorFlow's state file says, where it is good.
            condition: Of that file.
            identity: Of that file.
            now: Seconds since the epoch.

        Raises:
            OSError: The directory cannot be read.
        """
        root = self._run.root
        strays, targets = files.strays(), files.link_targets()
        latest = state.latest if state is not None else None
        index = look_up(os.path.join(root, f"{latest}.index")) if latest else Lookup.GONE
        version_one = self._version_one.find(
            {**strays, **dict(_graphs(files))},
            [*state.names, state.latest_name or ""] if state is not None else [],
        )
        newest = next((c.name for c in checkpoints if c.restorable), "")
        return Seen(
            directory=os.path.realpath(root),
            checkpoints=checkpoints,
            files=files.files,
            strays={
                name: fact
                for name, fact in strays.items()
                if name != self._run.state_file.name and name not in targets
            },
            temporary_bytes={
                name: size_of_directory(root / f"{name}_temp")
                for name, found in files.files.items()
                if found.temporary_at is not None
            },
            version_one=version_one,
            condition=condition,
            state=state,
            state_file=look_up(os.fspath(self._run.state_file)),
            latest_index=index,
            latest_others=_named_like(files, state, version_one),
            is_network=self._is_network,
            changed_at=self._changed_at(),
            same_since=self._same_since((identity, condition, newest, index), now),
        )

    def _changed_at(self) -> float:
        times = [os.stat(self._run.root).st_mtime]
        with suppress(FileNotFoundError):
            times.append(os.lstat(self._run.state_file).st_mtime)
        return max(times)

    def _same_since(self, view: object, now: float) -> float:
        # A clock that was set back must not make a first look an old one.
        if view != self._view or now < self._since:
            self._view, self._since = view, now
        return self._since


def _graphs(files: Look) -> Iterator[tuple[str, FileFact]]:
    """Yields the graphs that are taken for part of a checkpoint in the V2 format."""
    for found in files.files.values():
        for fact in found.facts:
            if fact.name.endswith(".meta"):
                yield fact.name, fact


def _named_like(
    files: Look, state: StateFile | None, version_one: Sequence[VersionOne]
) -> tuple[str, ...]:
    """Returns what is named like the newest checkpoint and is of no format that is known."""
    name = state.latest_name if state is not None else None
    if not name:
        return ()
    known = {file for one in version_one for file in one.files}
    starts = f"{name}.", f"{name}-"
    return tuple(
        sorted(
            other
            for other in files.names()
            if (other == name or other.startswith(starts))
            and owner_of(other) not in files.files
            and other not in known
        )
    )
