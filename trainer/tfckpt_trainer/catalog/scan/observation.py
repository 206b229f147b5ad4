"""What one scan observed in a directory, and the diagnostic that is derived from it.

Advice based on a stale or partial scan can cost a checkpoint: a listing on a network file system
lags, a save or a copy is under way, a file may not be read. So an observation says how far it can
be trusted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from tfckpt_trainer.bundle.state_file import StateFile, StateFileCondition
from tfckpt_trainer.catalog.directory.checkpoint_files import (
    CheckpointFiles,
    FileFact,
    FileScanner,
    owner_of,
    size_of_directory,
)
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, trained_first
from tfckpt_trainer.catalog.directory.other_formats import (
    NO_NEIGHBOURS,
    Neighbours,
    find_neighbours,
    look_again,
)
from tfckpt_trainer.catalog.directory.save_directories import parts_directory
from tfckpt_trainer.catalog.directory.saved_model import is_in_saved_model
from tfckpt_trainer.catalog.directory.symbolic_links import file_names
from tfckpt_trainer.catalog.directory.version_one import VersionOne, VersionOneScanner
from tfckpt_trainer.catalog.scan.ownership import has_proven_parts
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import file_time
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.identity import Identity
from tfckpt_trainer.rundir.storage.trees import walk
from tfckpt_trainer.words.advice import Advice

SETTLED_SECONDS = 5.0
"""If two scans this far apart see the same problem, no running save causes it."""

SETTLED_SECONDS_NETWORK = 60.0
"""The same on a network disk, where both scans may see what this machine remembers."""

_MOST_MOVED = 3
"""How many files a command moves."""


class Presence(StrEnum):
    """Whether a file exists, by asking for its name instead of reading a listing."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """The system does not say: permissions, a failing disk."""


class Diagnostic(msgspec.Struct, frozen=True):
    """A problem of the directory that the user should know of.

    Attributes:
        kind: A short name for scripts.
        severity: A warning may cost a checkpoint or keep a trainer from starting. A note costs
            space at most.
        name: The file or the checkpoint; the first one if there are several.
        found: What it is, its consequence, and what to do if no command does it.
        bytes: Bytes that could be freed, if it is about space.
        advice: What to do.
    """

    kind: str
    severity: Literal["warning", "note"]
    name: str
    found: str
    bytes: int | None = None
    advice: Advice | None = None

    @property
    def message(self) -> str:
        """Everything, for the command line."""
        return f"{self.found} {self.advice}" if self.advice is not None else self.found


class ArrivingCopy(msgspec.Struct, frozen=True):
    """What of a checkpoint has arrived by a `copy` that has not ended.

    Attributes:
        name: The checkpoint.
        path: The directory with its parts.
        bytes: Their size.
        changed_at: When one of them last changed, in seconds since the epoch.
    """

    name: str
    path: str
    bytes: int
    changed_at: float


class Observation(msgspec.Struct, frozen=True):
    """What one scan observed in a directory.

    Attributes:
        directory: Its real path.
        checkpoints: Newest first.
        files: The files of each checkpoint, by its name.
        unowned: Regular files that belong to no checkpoint, by name. Without the state file, and
            without targets of symbolic links.
        other_directories: Directories `NAME_temp` that no save has made.
        temporary_bytes: Bytes in the `NAME_temp` of each checkpoint that has one.
        proven_temporaries: The checkpoints whose `NAME_temp` is known to be of a save.
        newer: For each document of a newer release, which release is needed.
        damaged_prunes: What is wrong with each prune in the trash that cannot be brought back, by
            its id.
        neighbours: Files of other formats, and checkpoints in subdirectories.
        arriving: What copies to this directory have brought, if they have not ended.
        version_one: Checkpoints in TensorFlow's V1 format.
        condition: The condition of the state file.
        state: The content of the state file, if it is good.
        state_file: Whether the state file exists.
        latest_index: Whether the index of the newest checkpoint in the state file exists. That
            may be in another directory.
        latest_others: Files whose names begin like that checkpoint, in no known format.
        is_saved_model: Whether this is the directory for the variables of a SavedModel.
        is_network: Whether other machines may write to the directory and listings may lag.
        changed_at: When the directory or the state file last changed, in seconds since the epoch.
        same_since: Since when every scan saw the same state file and newest checkpoint.
    """

    directory: str
    checkpoints: Sequence[Checkpoint]
    files: Mapping[str, CheckpointFiles]
    unowned: Mapping[str, FileFact] = {}
    other_directories: Sequence[str] = ()
    temporary_bytes: Mapping[str, int] = {}
    proven_temporaries: frozenset[str] = frozenset()
    newer: Sequence[str] = ()
    damaged_prunes: Mapping[str, str] = {}
    neighbours: Neighbours = NO_NEIGHBOURS
    arriving: Sequence[ArrivingCopy] = ()
    version_one: Sequence[VersionOne] = ()
    condition: StateFileCondition = StateFileCondition.MISSING
    state: StateFile | None = None
    state_file: Presence = Presence.ABSENT
    latest_index: Presence = Presence.ABSENT
    latest_others: Sequence[str] = ()
    is_saved_model: bool = False
    is_network: bool = False
    changed_at: float = 0.0
    same_since: float = 0.0

    @property
    def restorable(self) -> list[Checkpoint]:
        """Checkpoints that can be restored, newest first."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.restorable]

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be restored; one made from others if there is no other."""
        return next(iter(trained_first(self.restorable)), None)

    def is_settled(self, now: float, quiet_seconds: float) -> bool:
        """Whether no save or copy can be under way."""
        is_old = self.changed_at <= now - quiet_seconds
        settled = SETTLED_SECONDS_NETWORK if self.is_network else SETTLED_SECONDS
        return is_old or now - self.same_since >= settled

    def path(self, name: str) -> str:
        """Returns the path of a file in the directory, quoted for a shell."""
        return shlex.quote(os.path.join(self.directory, name))

    def move_command(self, names: Sequence[str]) -> str:
        """Returns a command that moves files into a subdirectory, so that it can be undone."""
        moved = file_names(names[:_MOST_MOVED])
        return (
            f"`cd {shlex.quote(self.directory)} && mkdir -p moved-away && "
            f"mv -n {moved} moved-away/`"
        )


class Observer:
    """Makes observations of one directory; remembers since when it is unchanged."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._is_network = is_network_file_system(run.root)
        self._version_one = VersionOneScanner(run.root)
        self._beside = NO_NEIGHBOURS
        self._looked_at = -1.0
        self._last_view: object = None
        self._since = 0.0

    def observe(
        self,
        files: FileScanner,
        checkpoints: Sequence[Checkpoint],
        others: Iterable[str],
        state: StateFile | None,
        condition: StateFileCondition,
        identity: Identity | None,
        newer_records: Mapping[str, str],
        damaged_prunes: Mapping[str, str],
        now: float,
    ) -> Observation:
        """Returns an observation of the directory.

        Args:
            files: The files, as last listed.
            checkpoints: The checkpoints made of them, newest first.
            others: The names of what is none of these, although its files are named so.
            state: The content of TensorFlow's state file, if it is good.
            condition: The condition of that file.
            identity: The identity of that file; None if there is none.
            newer_records: Checkpoints whose record a newer release wrote, each with that release.
            damaged_prunes: What is wrong with each prune in the trash that cannot be brought back,
                by its id.
            now: Seconds since the epoch.

        Raises:
            OSError: The directory cannot be read.
        """
        root, changed_at = self._run.root, self._changed_at()
        unowned, targets = files.unowned(), files.link_targets()
        latest = state.latest if state is not None else None
        index = presence(os.path.join(root, f"{latest}.index")) if latest else Presence.ABSENT
        version_one = self._version_one.find(
            {**unowned, **dict(_graphs(files))},
            [*state.names, state.latest_name or ""] if state is not None else [],
        )
        newest = next((c.name for c in trained_first(checkpoints) if c.restorable), "")
        saving = [one for one in files.files.values() if one.temporary_at is not None]
        return Observation(
            directory=os.path.realpath(root),
            checkpoints=checkpoints,
            files=files.files,
            unowned={
                name: fact
                for name, fact in {**unowned, **dict(_facts_of(others, files))}.items()
                if name != self._run.state_file.name and name not in targets
            },
            other_directories=files.other_directories(),
            temporary_bytes={
                one.name: size_of_directory(parts_directory(root, one.name)) for one in saving
            },
            proven_temporaries=frozenset(one.name for one in saving if has_proven_parts(root, one)),
            newer=[*self._newer_documents(), *newer_records.values()],
            damaged_prunes=damaged_prunes,
            neighbours=self._neighbours(changed_at),
            arriving=_arriving_copies(self._run.copying_directory),
            version_one=version_one,
            condition=condition,
            state=state,
            state_file=presence(os.fspath(self._run.state_file)),
            latest_index=index,
            latest_others=_named_like_latest(files, state, version_one),
            is_saved_model=is_in_saved_model(root),
            is_network=self._is_network,
            changed_at=changed_at,
            same_since=self._same_since((identity, condition, newest, index), now),
        )

    def _neighbours(self, changed_at: float) -> Neighbours:
        if changed_at != self._looked_at:
            self._beside, self._looked_at = find_neighbours(self._run.root), changed_at
        else:
            self._beside = look_again(self._run.root, self._beside)
        return self._beside

    def _newer_documents(self) -> list[str]:
        try:
            return self._run.newer_documents()
        except OSError:
            return []

    def _changed_at(self) -> float:
        times = [file_time(self._run.root)]
        with suppress(OSError):
            times.append(file_time(self._run.state_file))
        return max(times)

    def _same_since(self, view: object, now: float) -> float:
        # If the clock was set back, the last view counts as new.
        if view != self._last_view or now < self._since:
            self._last_view, self._since = view, now
        return self._since


def _arriving_copies(place: Path) -> list[ArrivingCopy]:
    copies: list[ArrivingCopy] = []
    with suppress(OSError):
        if place.is_symlink():
            return []
        for name in sorted(os.listdir(place)):
            paths = [os.path.join(top, file) for top, files in walk(place / name) for file in files]
            facts = [os.lstat(path) for path in (os.fspath(place / name), *paths)]
            size, changed_at = sum(f.st_size for f in facts[1:]), max(f.st_mtime for f in facts)
            path = os.fspath(place / name)
            copies.append(ArrivingCopy(name.rpartition(".")[0], path, size, changed_at))
    return copies


def presence(path: str) -> Presence:
    """Asks whether a file exists; a symbolic link counts, wherever it leads."""
    directory, name = os.path.split(path)
    if "\0" in path:
        return Presence.ABSENT
    try:
        # A network file system asks its server anew about a directory that is opened.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return _presence_in(None, path)
    except (FileNotFoundError, NotADirectoryError):
        return Presence.ABSENT
    except OSError:
        return Presence.UNKNOWN
    try:
        return _presence_in(descriptor, name)
    finally:
        os.close(descriptor)


def _presence_in(descriptor: int | None, name: str) -> Presence:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return Presence.ABSENT
    except OSError:
        return Presence.UNKNOWN
    return Presence.PRESENT


def _facts_of(names: Iterable[str], files: FileScanner) -> Iterator[tuple[str, FileFact]]:
    """Yields the files that are named like those of some checkpoints."""
    for name in names:
        for fact in files.files[name].facts:
            yield fact.name, fact


def _graphs(files: FileScanner) -> Iterator[tuple[str, FileFact]]:
    """Yields the graph files that were counted as part of a V2 checkpoint."""
    for checkpoint in files.files.values():
        graph = checkpoint.graph
        if graph is not None:
            yield graph.name, graph


def _named_like_latest(
    files: FileScanner, state: StateFile | None, version_one: Sequence[VersionOne]
) -> tuple[str, ...]:
    """Returns the files that are named like the newest checkpoint, in no known format."""
    name = state.latest_name if state is not None else None
    if not name:
        return ()
    v1_files = {file for checkpoint in version_one for file in checkpoint.files}
    starts = f"{name}.", f"{name}-"
    return tuple(
        sorted(
            other
            for other in files.names()
            if (other == name or other.startswith(starts))
            and owner_of(other) not in files.files
            and other not in v1_files
        )
    )
