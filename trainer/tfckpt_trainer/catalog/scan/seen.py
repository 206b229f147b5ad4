"""One look at a directory, as the diagnostics need it, and what a diagnostic is.

Advice may cost a checkpoint where the look is stale or incomplete: a listing on a network disk
lags, a save or a copy goes on, a file may not be read. So the facts that say how much a look is
worth are part of it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.scan.checkpoint_files import Files
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.directory_listing import FileFact
from tfckpt_trainer.catalog.scan.linked import file_names
from tfckpt_trainer.catalog.scan.version_one import VersionOne

SETTLED_SECONDS = 5.0
"""Two looks this far apart that see the same problem do not see a save that is under way."""

_NAMED = 3
"""So many names are given in a diagnostic on many."""


class Condition(StrEnum):
    """What can be said of TensorFlow's state file before what it says is looked at."""

    MISSING = "missing"
    EMPTY = "empty"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    """A link, or a file of another kind."""
    GOOD = "good"


class Lookup(StrEnum):
    """Whether a file exists, asked for by its name and not read from a listing."""

    THERE = "there"
    GONE = "gone"
    UNKNOWN = "unknown"
    """The system does not tell: permissions, a disk that fails."""


@dataclass(frozen=True)
class Diagnostic:
    """Something a person should know of.

    Attributes:
        kind: A short name for scripts.
        severity: A warning may cost a checkpoint or keep a trainer from starting; a note costs
            space at most.
        name: Of the file or the checkpoint; of the first of them if it is about several.
        message: What it is, what comes of it and what to do.
        bytes: What would become free, where it is about space.
    """

    kind: str
    severity: Literal["warning", "note"]
    name: str
    message: str
    bytes: int | None = None


@dataclass(frozen=True)
class Seen:
    """One look at a directory.

    Attributes:
        directory: Its real path.
        checkpoints: Newest first.
        files: Of each checkpoint.
        strays: Plain files of no checkpoint, by name; the state file is none of them, nor is a
            file to which a symbolic link leads.
        temporary_bytes: What lies in the `NAME_temp` of each checkpoint that has one.
        version_one: Checkpoints in TensorFlow's V1 format.
        condition: Of the state file.
        state: What it says, where it is good.
        state_file: Whether it exists.
        latest_index: Whether the index of the checkpoint that it names as the newest exists, in
            whatever directory that is.
        latest_others: Names of files here that begin like that checkpoint and are not of a
            format that this library knows.
        is_network: Whether other machines may write there, and listings may lag.
        changed_at: When the directory or the state file last changed, seconds since the epoch.
        same_since: Since when every look saw the same of state file and newest checkpoint.
    """

    directory: str
    checkpoints: Sequence[Checkpoint]
    files: Mapping[str, Files]
    strays: Mapping[str, FileFact] = field(default_factory=dict)
    temporary_bytes: Mapping[str, int] = field(default_factory=dict)
    version_one: Sequence[VersionOne] = ()
    condition: Condition = Condition.MISSING
    state: StateFile | None = None
    state_file: Lookup = Lookup.GONE
    latest_index: Lookup = Lookup.GONE
    latest_others: Sequence[str] = ()
    is_network: bool = False
    changed_at: float = 0.0
    same_since: float = 0.0

    @property
    def restorable(self) -> list[Checkpoint]:
        """Those that can be restored, newest first."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.restorable]

    def is_settled(self, now: float, quiet_seconds: float) -> bool:
        """Whether what was seen is no moment of a save or of a copy."""
        is_old = self.changed_at <= now - quiet_seconds
        return is_old or now - self.same_since >= SETTLED_SECONDS

    def path(self, name: str) -> str:
        """Returns the path of a file of the directory, as an argument of a command."""
        return shlex.quote(os.path.join(self.directory, name))

    def moving_away(self, names: Sequence[str]) -> str:
        """Returns the command that moves files aside, so that they can be moved back."""
        moved = file_names(names[:_NAMED])
        return (
            f"`cd {shlex.quote(self.directory)} && mkdir -p moved-away && "
            f"mv -n {moved} moved-away/`"
        )


def look_up(path: str) -> Lookup:
    """Asks for one file by its name; a symbolic link of that name counts, wherever it leads."""
    directory, name = os.path.split(path)
    if "\0" in path:
        return Lookup.GONE
    try:
        # A network file system asks its server anew about a directory that is opened.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return _lookup_in(None, path)
    except (FileNotFoundError, NotADirectoryError):
        return Lookup.GONE
    except OSError:
        return Lookup.UNKNOWN
    try:
        return _lookup_in(descriptor, name)
    finally:
        os.close(descriptor)


def _lookup_in(descriptor: int | None, name: str) -> Lookup:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return Lookup.GONE
    except OSError:
        return Lookup.UNKNOWN
    return Lookup.THERE


def these(names: Sequence[str]) -> str:
    """Returns names in words, the first few of many."""
    shown = list(names[:_NAMED])
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
