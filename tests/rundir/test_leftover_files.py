"""What killed processes left is deleted; what may be in use, or is of others, stays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

from refusing_disk import RefusingDisk
from tfckpt_trainer.rundir.leftover_files import LEFTOVER_SECONDS, delete_leftovers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.disk import using


def put(path: Path, age: float = LEFTOVER_SECONDS + 60) -> Path:
    path.write_text("{")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def temporary(directory: Path) -> Path:
    return directory / f".worker-0.json.{uuid4().hex}.tmp"


def test_only_old_temporary_files_of_replacements_are_deleted(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create()
    old = [put(temporary(place)) for place in (run.control, *run.directories)]
    old += [
        put(run.control / ".series.jsonl.tmp"),
        put(run.logs_directory / ".worker-0.log.tmp"),
    ]
    kept = [
        put(temporary(run.status_directory), 60),
        put(run.status_directory / "worker-0.json"),
        put(run.control / ".notes.tmp"),
        put(run.control / f"notes.{uuid4().hex}.tmp"),
        put(tmp_path / f".model.{uuid4().hex}.tmp"),
    ]
    link = temporary(run.control)
    link.symlink_to(tmp_path)
    with using(RefusingDisk(lambda _: True)):
        delete_leftovers(run)
    assert all(path.exists() for path in old)
    delete_leftovers(run)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in [*kept, link])
