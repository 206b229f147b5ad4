"""The documents that lie in one directory, one for each checkpoint, as `NAME.json`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, TypeVar

from tfckpt_trainer.catalog.files import identity_of_stat
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records import CheckpointRecord, VerificationRecord

DocumentT = TypeVar("DocumentT", CheckpointRecord, VerificationRecord)


class Documents(Generic[DocumentT]):
    """The documents of one directory, read again only where a file was replaced."""

    def __init__(self, directory: Path, kind: type[DocumentT]) -> None:
        self._directory = directory
        self._kind: type[DocumentT] = kind
        self._known: dict[str, tuple[tuple[int, int, int], DocumentT | None]] = {}

    def look(self) -> dict[str, DocumentT]:
        """Returns them by the name of the checkpoint; damaged ones are left out.

        Raises:
            OSError: Their directory cannot be read.
        """
        known = {}
        for entry in entries_of(self._directory):
            name = entry.name.removesuffix(".json")
            if name == entry.name:
                continue
            try:
                identity = identity_of_stat(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                # A prune took it between the listing and the look at it.
                continue
            before = self._known.get(name)
            if before is not None and before[0] == identity:
                known[name] = before
            else:
                known[name] = identity, self._read(Path(entry.path), name)
        self._known = known
        return {name: document for name, (_, document) in known.items() if document is not None}

    def _read(self, path: Path, name: str) -> DocumentT | None:
        try:
            document = load(path, self._kind)
        except (DamagedFileError, OSError):
            return None
        return document if document.name == name and is_plain_name(name) else None


def entries_of(directory: Path) -> list[os.DirEntry[str]]:
    """Returns what is in `directory`, which need not exist."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
