"""What must be true of a run directory after any fault, judged by names and bytes alone.

Nothing of the product is imported here: its own idea of what is whole is what is tried.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_OF_CHECKPOINT = re.compile(r"(?P<name>.+)\.(?:index|data-\d{5}-of-\d{5})")
_LISTED = re.compile(r'^all_model_checkpoint_paths: "([^"]*)"$', re.MULTILINE)
_LATEST = re.compile(r'^model_checkpoint_path: "([^"]*)"$', re.MULTILINE)
_TRASH = Path(".tfckpt", "trash")


class Facts(NamedTuple):
    """What can be told of a file.

    Attributes:
        content: A digest of its bytes, or where a link leads.
        mode: Kind and permissions.
        changed_at: Time of its last change, in nanoseconds.
    """

    content: str
    mode: int
    changed_at: int


def facts_of(path: Path) -> Facts:
    """Returns the facts of a file, a link or a directory."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        content = ""
    return Facts(content, found.st_mode, found.st_mtime_ns)


def facts_below(directory: Path) -> dict[str, Facts]:
    """Returns the facts of all that is below a directory, by its relative path."""
    return {str(path.relative_to(directory)): facts_of(path) for path in directory.rglob("*")}


def checkpoints_in(directory: Path) -> dict[str, dict[str, str]]:
    """Returns the contents of the files of each checkpoint in a directory, by their names."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        match = _OF_CHECKPOINT.fullmatch(path.name)
        if match is not None and path.is_file() and not path.is_symlink():
            found.setdefault(match["name"], {})[path.name] = facts_of(path).content
    return found


class Ledger:
    """The checkpoints and the other files of a run, as they were before the faults."""

    def __init__(self, root: Path, others: Collection[str] = ()) -> None:
        """Takes stock.

        Args:
            root: The run directory.
            others: Relative paths of files of other people.
        """
        self._root = root
        self._others: Mapping[str, Facts] = {name: facts_of(root / name) for name in others}
        self._checkpoints = self._here()

    def at(self, root: Path) -> Ledger:
        """Returns the same for another place."""
        moved = copy.copy(self)
        moved._root = root
        return moved

    def lost(self, may_go: Collection[str] = ()) -> list[str]:
        """Returns which bytes are nowhere below the run, at any moment; empty if all are.

        Args:
            may_go: Checkpoints that a command was asked to delete for good.
        """
        paths = [path for path in self._root.rglob("*") if path.is_file()]
        kept = {facts_of(path).content for path in paths}
        found = [
            f"{file} is nowhere"
            for name, files in self._checkpoints.items()
            for file, content in files.items()
            if content not in kept and name not in may_go
        ]
        here = self._here()
        listed, latest = self._listed()
        for name in listed:
            # The list of TensorFlow may name what was deleted, but not as the latest.
            if name in may_go and name != latest:
                continue
            if name not in here or here[name] != self._checkpoints.get(name, here[name]):
                found.append(f"the state file lists {name}, which is not whole")
        return [*found, *self._changed_others()]

    def violations(self, may_go: Collection[str] = ()) -> list[str]:
        """Returns what is not as it must be once somebody has looked after a fault.

        Args:
            may_go: Checkpoints that a command was asked to delete for good.
        """
        here, trashed = self._here(), self._trashed()
        missing = [
            f"{name} is whole nowhere"
            for name, files in self._checkpoints.items()
            if here.get(name) != files and files not in trashed.get(name, [])
            if name not in may_go
        ]
        return [*self.lost(may_go), *missing]

    def leave_out(self, others: Collection[str]) -> None:
        """Takes further files for those of other people."""
        self._others = {**self._others, **{name: facts_of(self._root / name) for name in others}}

    def latest(self) -> str:
        """Returns the checkpoint that the state file calls the latest."""
        return self._listed()[1]

    def in_trash(self) -> set[str]:
        """Returns the checkpoints of which the trash has files."""
        return {*self._trashed()}

    def _here(self) -> dict[str, dict[str, str]]:
        """The checkpoints of the run, without what somebody else has named like their shards."""
        found = {
            name: {file: content for file, content in files.items() if file not in self._others}
            for name, files in checkpoints_in(self._root).items()
        }
        return {name: files for name, files in found.items() if files}

    def _changed_others(self) -> Iterator[str]:
        for name, before in self._others.items():
            path = self._root / name
            if not os.path.lexists(path):
                yield f"{name} of somebody else is gone"
            elif facts_of(path) != before:
                yield f"{name} of somebody else has changed"

    def _trashed(self) -> dict[str, list[dict[str, str]]]:
        """The checkpoints in the trash, by name; several prunes may have one of a name."""
        found: dict[str, list[dict[str, str]]] = {}
        for directory in [path for path in (self._root / _TRASH).rglob("*") if path.is_dir()]:
            for name, files in checkpoints_in(directory).items():
                found.setdefault(name, []).append(files)
        return found

    def _listed(self) -> tuple[list[str], str]:
        """The checkpoints that the state file lists, and the latest."""
        state_file = self._root / "checkpoint"
        text = state_file.read_text() if state_file.is_file() else ""
        return _LISTED.findall(text), "".join(_LATEST.findall(text)[:1])
