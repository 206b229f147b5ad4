"""Reads a directory with one JSON document per checkpoint, `NAME.json`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from heapq import nlargest
from pathlib import Path
from typing import Generic, TypeVar

from tfckpt_trainer.catalog.directory.listing import Listing
from tfckpt_trainer.errors import DamagedFileError, NewerFileError, RefusedError
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, VerificationRecord
from tfckpt_trainer.rundir.records.results import ResultsRecord
from tfckpt_trainer.rundir.storage.documents import load

DocumentT = TypeVar("DocumentT", CheckpointRecord, VerificationRecord, ResultsRecord)

_SUFFIX = ".json"


class Documents(Generic[DocumentT]):
    """The documents of one directory; a file is read again only after it was replaced.

    Attributes:
        found: The readable documents, by checkpoint.
        damaged: Checkpoints whose document exists and cannot be read.
        newer: Those of them whose document a newer release wrote, each with the release needed.
    """

    def __init__(
        self, directory: Path, kind: type[DocumentT], only: AbstractSet[str] | None = None
    ) -> None:
        """Prepares the documents.

        Args:
            directory: The directory.
            kind: The type of the documents.
            only: The only checkpoints whose documents are read; by default all.
        """
        self._directory = directory
        self._kind: type[DocumentT] = kind
        files = None if only is None else frozenset(f"{name}{_SUFFIX}" for name in only)
        self._listing = Listing(directory, lambda name: name.endswith(_SUFFIX), only=files)
        self._unread: set[str] = set()
        self.found: dict[str, DocumentT] = {}
        self.damaged: set[str] = set()
        self.newer: dict[str, str] = {}

    @property
    def deferred(self) -> int:
        """How many documents are not read yet."""
        return len(self._unread)

    def look(self) -> Mapping[str, DocumentT]:
        """Refreshes, and returns all documents by checkpoint.

        Raises:
            OSError: The directory cannot be read.
        """
        self.refresh()
        return self.found

    def refresh(self, at_most: int | None = None) -> set[str]:
        """Reads new and replaced documents, the newest first.

        Args:
            at_most: How many to read; later refreshes read the others.

        Returns:
            The checkpoints whose document changed or is gone.

        Raises:
            OSError: The directory cannot be read.
        """
        self._unread |= self._listing.refresh(missing_ok=True)
        facts = self._listing.facts
        gone = {file for file in self._unread if file not in facts}
        there = self._unread - gone
        if at_most is not None and len(there) > at_most:
            there = set(nlargest(at_most, there, key=lambda file: facts[file].modified_ns))
        changed = set()
        for file in gone | there:
            name = file.removesuffix(_SUFFIX)
            was_damaged = name in self.damaged
            self.damaged.discard(name)
            self.newer.pop(name, None)
            document = self._read(file, name) if file in there else None
            if document != self.found.get(name) or was_damaged != (name in self.damaged):
                changed.add(name)
            if document is not None:
                self.found[name] = document
            else:
                self.found.pop(name, None)
            self._unread.discard(file)
        return changed

    def refuse_newer(self) -> None:
        """Raises a `RefusedError` if a newer release wrote a document."""
        for newer in self.newer.values():
            raise RefusedError(f"{newer} Nothing was changed.")

    def _read(self, file: str, name: str) -> DocumentT | None:
        try:
            document = load(self._directory / file, self._kind)
        except FileNotFoundError:
            return None
        except (DamagedFileError, OSError) as error:
            if isinstance(error, NewerFileError):
                self.newer[name] = str(error)
            self.damaged.add(name)
            return None
        if document.name == name and is_plain_name(name):
            return document
        self.damaged.add(name)
        return None
