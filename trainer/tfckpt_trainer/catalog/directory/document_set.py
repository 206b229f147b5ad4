"""Reads a directory with one JSON document per checkpoint, `NAME.json`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from sys import intern
from typing import Generic, TypeVar

from tfckpt_trainer.catalog.directory.listing import NameList
from tfckpt_trainer.errors import DamagedFileError, NewerFileError, RefusedError
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, VerificationRecord
from tfckpt_trainer.rundir.records.results import ResultsRecord
from tfckpt_trainer.rundir.storage.documents import load_with_text
from tfckpt_trainer.rundir.storage.identity import identity_in

DocumentT = TypeVar("DocumentT", CheckpointRecord, VerificationRecord, ResultsRecord)
KeptT = TypeVar("KeptT")

_SUFFIX = ".json"
_END = -len(_SUFFIX)


class Documents(Generic[DocumentT, KeptT]):
    """The documents of one directory; a file is read again only after it was replaced.

    Attributes:
        directory: The directory.
        found: What is kept of the readable documents, by checkpoint.
        damaged: Checkpoints whose document exists and cannot be read.
        newer: Those of them whose document a newer release wrote, each with the release needed.
    """

    def __init__(
        self,
        directory: Path,
        kind: type[DocumentT],
        keep: Callable[[DocumentT, bytes], KeptT],
        only: AbstractSet[str] | None = None,
    ) -> None:
        """Prepares the documents.

        Args:
            directory: The directory.
            kind: The type of the documents.
            keep: Returns what is kept of a document, which was decoded from this text.
            only: The only checkpoints whose documents are read; by default all.
        """
        self.directory = directory
        self._kind: type[DocumentT] = kind
        self._keep: Callable[[DocumentT, bytes], KeptT] = keep
        files = None if only is None else frozenset(f"{name}{_SUFFIX}" for name in only)
        self._entries = NameList(directory, only=files)
        self._unread: set[str] = set()
        # What each file was when it was read.
        self._identities: dict[str, int] = {}
        self.found: dict[str, KeptT] = {}
        self.damaged: set[str] = set()
        self.newer: dict[str, str] = {}

    @property
    def deferred(self) -> int:
        """How many documents are not read yet."""
        return len(self._unread)

    def look(self) -> Mapping[str, KeptT]:
        """Refreshes, and returns what is kept of all documents, by checkpoint.

        Raises:
            OSError: The directory cannot be read.
        """
        self.refresh()
        return self.found

    def refresh(
        self, at_most: int | None = None, saved_at: Callable[[str], float] | None = None
    ) -> set[str]:
        """Reads new and replaced documents.

        Args:
            at_most: How many to read; later refreshes read the others.
            saved_at: When a checkpoint was saved; the documents of the newest are read first.

        Returns:
            The checkpoints whose document changed or is gone.

        Raises:
            OSError: The directory cannot be read.
        """
        changes = self._entries.compare(missing_ok=True)
        gone: list[str] = _names_of(changes.gone)
        self._unread.update(
            _names_of(changes.new), filter(self._is_modified, _names_of(changes.turn))
        )
        self._unread.difference_update(gone)
        self._entries.keep(changes)
        chosen: Collection[str] = self._unread
        if at_most is not None and len(chosen) > at_most:
            # Imported here: only a look in haste leaves documents for later.
            from heapq import nlargest

            chosen = nlargest(at_most, chosen, key=saved_at)
        changed = {name for name in [*chosen, *gone] if self._look_at(name)}
        # One that was moved away since it was listed may come back as the same file.
        known = (self.found, self.damaged, self.newer)
        moved = [name for name in chosen if not any(name in names for names in known)]
        # A set keeps the memory of its most members: it is made anew.
        self._unread = self._unread.difference(chosen).union(moved)
        return changed

    def refuse_newer(self) -> None:
        """Raises a `RefusedError` if a newer release wrote a document."""
        for newer in self.newer.values():
            raise RefusedError(f"{newer} Nothing was changed.")

    def _is_modified(self, name: str) -> bool:
        """Whether a document that was read was changed in place since."""
        known = self._identities.get(name)
        return known is not None and known != self._identity(name)

    def _look_at(self, name: str) -> bool:
        """Reads a document; returns whether it changed."""
        was_damaged = name in self.damaged
        self.damaged.discard(name)
        self.newer.pop(name, None)
        before, kept = self.found.pop(name, None), self._read(name)
        if kept is not None:
            self.found[name] = kept
        return kept != before or was_damaged != (name in self.damaged)

    def _read(self, name: str) -> KeptT | None:
        identity = self._identity(name)
        if identity is None:
            self._identities.pop(name, None)
            return None
        self._identities[name] = identity
        try:
            document, text = load_with_text(self._path(name), self._kind)
        except FileNotFoundError:
            return None
        except (DamagedFileError, OSError) as error:
            if isinstance(error, NewerFileError):
                self.newer[name] = str(error)
            self.damaged.add(name)
            return None
        if document.name == name and is_plain_name(name):
            return self._keep(document, text)
        self.damaged.add(name)
        return None

    def _identity(self, name: str) -> int | None:
        """Returns what differs if a file was modified or replaced; None if there is none."""
        try:
            seen = os.lstat(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return hash(identity_in(seen))

    def _path(self, name: str) -> str:
        return f"{self._entries.directory}/{name}{_SUFFIX}"


def _names_of(files: Collection[str]) -> list[str]:
    """Returns the checkpoints that files are documents of."""
    return [intern(file[:_END]) for file in files if file.endswith(_SUFFIX)]
