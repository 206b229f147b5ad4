"""What verifying found of each checkpoint, remembered as long as its files stay as they were."""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.catalog.files import FileFact
from tfckpt_trainer.catalog.history import entries_of
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load, store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import VerificationRecord


class Verifications:
    """The verifications of a run, read again only where a file was replaced."""

    def __init__(self, run: RunDirectory) -> None:
        self._directory = run.verifications_directory
        self._known: dict[str, tuple[tuple[int, int, int], VerificationRecord | None]] = {}

    def look(self) -> dict[str, VerificationRecord]:
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
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # A prune took it between the listing and the look at it.
                continue
            identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            before = self._known.get(name)
            if before is not None and before[0] == identity:
                known[name] = before
            else:
                known[name] = identity, _read(Path(entry.path), name)
        self._known = known
        return {name: record for name, (_, record) in known.items() if record is not None}


def holds_for(record: VerificationRecord, files: tuple[FileFact, ...]) -> bool:
    """Whether the files are those that were verified, and none was changed since."""
    return record.files == {fact.name: fact.identity for fact in files}


def remember(run: RunDirectory, record: VerificationRecord) -> None:
    """Writes down what verifying found.

    Raises:
        OSError: The directory cannot be written.
        UsageError: A name in it is not UTF-8.
    """
    make_directory(run.verifications_directory)
    store(run.verification(record.name), record)


def _read(path: Path, name: str) -> VerificationRecord | None:
    try:
        record = load(path, VerificationRecord)
    except (DamagedFileError, OSError):
        return None
    return record if record.name == name else None
