"""What `ls` lists, and its report for `--json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.directory.version_one import VersionOne
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic
from tfckpt_trainer.catalog.scan.states import CheckpointEvidence
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_tui.formats.checkpoint_columns import json_record, json_values
from tfckpt_tui.reports.base import LazyRecords
from tfckpt_tui.reports.listing import (
    ListedDiagnostic,
    ListedFile,
    ListedRun,
    ListReport,
    UnsupportedCheckpoint,
)


class DirectoryContents(msgspec.Struct, frozen=True):
    """All that `ls` shows.

    Attributes:
        checkpoints: Newest first.
        version_one: Checkpoints in TensorFlow's V1 format, which is not supported.
        other_files: Files of other formats, newest first.
        evidence: Returns what the scan found for a checkpoint.
    """

    checkpoints: Sequence[Checkpoint]
    diagnostics: Sequence[Diagnostic]
    version_one: Sequence[VersionOne]
    other_files: Sequence[OtherFile]
    evidence: Callable[[str], CheckpointEvidence]


def list_with_diagnostics(run: RunDirectory, *, opens_usual: bool = True) -> DirectoryContents:
    """Returns all checkpoints and the diagnostics of the directory.

    Args:
        run: The run directory.
        opens_usual: See `Catalog.scan`.
    """
    catalog, now = Catalog(run), time.time()
    checkpoints = catalog.scan(now, opens_usual=opens_usual)
    diagnostics = catalog.diagnostics(now)
    return DirectoryContents(
        checkpoints, diagnostics, catalog.version_one, catalog.other_files, catalog.evidence
    )


def list_report(run: RunDirectory, contents: DirectoryContents) -> ListReport:
    """Returns the report that `ls --json` prints."""
    info = load_if_exists(run.run_file, RunInfo)
    listed = json_record()
    diagnostics = tuple(
        msgspec.convert(diagnostic, ListedDiagnostic, from_attributes=True)
        for diagnostic in contents.diagnostics
    )
    return ListReport(
        run=ListedRun(info.id if info else None, str(run.root)),
        checkpoints=LazyRecords(contents.checkpoints, lambda found: listed(*json_values(found))),
        unsupported=tuple(
            UnsupportedCheckpoint(name=old.name, format="V1", bytes=old.size, files=old.files)
            for old in contents.version_one
        ),
        other_files=tuple(
            ListedFile(
                name=file.name,
                format=file.format.name,
                epoch=file.epoch,
                step=file.step,
                bytes=file.size,
                saved_at=file.saved_at,
                loaded_by="" if file.is_link_of_others else file.format.reader.replace("`", ""),
            )
            for file in contents.other_files
        ),
        diagnostics=diagnostics,
    )
