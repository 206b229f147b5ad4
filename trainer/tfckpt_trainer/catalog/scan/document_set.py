"""The documents that lie in one directory, one for each checkpoint, as `NAME.json`."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from pathlib import Path
from typing import Generic, TypeVar

from tfckpt_trainer.catalog.scan.directory_listing import Listing
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, VerificationRecord

DocumentT = TypeVar("DocumentT", CheckpointRecord, VerificationRecord)

_SUFFIX = ".json"


class Documents(Generic[DocumentT]):
    """The documents of one directory, read again only where a file was replaced.

    Attributes:
        found: Those that could be read, by the name of the checkpoint.
        damaged: The checkpoints whose document is there and cannot be read.
    """

    def __init__(self, directory: Path, kind: type[DocumentT]) -> None:
        self._directory = directory
        self._kind: type[DocumentT] = kind
        self._listing = Listing(directory, lambda name: name.endswith(_SUFFIX))
        self._unread: set[str] = set()
        self.found: dict[str, DocumentT] = {}
        self.damaged: set[str] = set()

    @property
    def put_off(self) -> int:
        """How many were not read yet."""
        return len(self._unread)

    def look(self) -> Mapping[str, DocumentT]:
        """Returns all of them by the name of the checkpoint.

        Raises:
            OSError: Their directory cannot be read.
        """
        self.refresh()
        return self.found

    def refresh(self, at_most: int | None = None) -> set[str]:
        """Looks again, and reads what is new, the newest first.

        Args:
            at_most: How many to read; the rest is put off to the next looks.

        Returns:
            Of which checkpoints the document is another than before, or gone.

        Raises:
            OSError: Their directory cannot be read.
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
            self.damaged.discard(name)
            document = self._read(file, name) if file in there else None
            if document != self.found.get(name):
                changed.add(name)
            if document is not None:
                self.found[name] = document
            else:
                self.found.pop(name, None)
            self._unread.discard(file)
        return changed

    def _read(self, file: str, name: str) -> DocumentT | None:
        try:
            document = load(self._directory / file, self._kind)
        except FileNotFoundError:
            return None
        except (DamagedFileError, OSError):
            self.damaged.add(name)
            return None
        if document.name == name and is_plain_name(name):
            return document
        self.damaged.add(name)
        return None
