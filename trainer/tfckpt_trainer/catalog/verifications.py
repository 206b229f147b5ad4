"""What verifying found of each checkpoint, remembered as long as its files stay as they were."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.documents import Documents
from tfckpt_trainer.catalog.files import FileFact
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import VerificationRecord


class Verifications(Documents[VerificationRecord]):
    """The verifications of a run, read again only where a file was replaced."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run.verifications_directory, VerificationRecord)


def holds_for(record: VerificationRecord, files: Iterable[FileFact]) -> bool:
    """Whether the files are those that were verified, and none was changed since.

    A `.meta`, the graph of a checkpoint of TensorFlow 1, is no part of what is verified.
    """
    verified = {name: who for name, who in record.files.items() if not name.endswith(".meta")}
    there = {fact.name: fact.identity for fact in files if not fact.name.endswith(".meta")}
    return verified == there


def remember(run: RunDirectory, record: VerificationRecord) -> None:
    """Writes down what verifying found.

    Raises:
        OSError: The directory cannot be written.
        UsageError: A name in it is not UTF-8.
    """
    make_directory(run.verifications_directory)
    store(run.verification(record.name), record)
