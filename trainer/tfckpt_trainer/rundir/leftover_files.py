"""Deletes temporary files that killed processes left below `.tfckpt`."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import delete_file, list_directory

LEFTOVER_SECONDS = 86_400.0
"""Age at which a temporary file is left over. Clocks of machines may differ by hours."""

_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{32}|jsonl|log)\.tmp", re.DOTALL)
"""The names of replacements: of documents, of the series, and of logs that are emptied."""


def delete_leftovers(run: RunDirectory) -> None:
    """Deletes temporary files of replacements that never ended, as far as the disk allows it.

    Each kill may leave one, and a run that is preempted each hour for a year has many.
    """
    before = time.time() - LEFTOVER_SECONDS
    for directory in (run.control, *run.directories):
        with suppress(OSError):
            for entry in list_directory(directory):
                is_temporary = _TEMPORARY.fullmatch(entry.name) and entry.is_file(
                    follow_symlinks=False
                )
                if is_temporary and entry.stat(follow_symlinks=False).st_mtime < before:
                    delete_file(Path(entry.path))
