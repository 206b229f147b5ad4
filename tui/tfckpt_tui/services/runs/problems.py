"""Files of a run that cannot be read, and that an account leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.documents import Document, load_if_exists
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.clock import load_heartbeat
from tfckpt_tui.formats.text import clean

_OUTCOMES_READ = 20
"""How many outcomes of commands are read: a network disk takes long to open hundreds of files."""


def find_unreadable_files(run: RunDirectory) -> tuple[str, ...]:
    """Returns a sentence, safe to show, for each file that cannot be read.

    Looks at heartbeats, the record of the batch job, commands and the newest outcomes.
    """
    found = []
    for read in _readings(run):
        try:
            read()
        except (TfckptError, OSError, msgspec.MsgspecError) as error:
            found.append(clean(describe_error(error)))
    return tuple(found)


def _readings(run: RunDirectory) -> Iterator[Callable[[], Document | None]]:
    for path in _json_files(run.status_directory):
        if path.name.startswith("worker-"):
            yield partial(load_heartbeat, run, path, WorkerStatus)
    yield partial(load_heartbeat, run, run.supervisor_status, SupervisorStatus)
    yield partial(load_if_exists, run.job_file, BatchJob)
    commands = [*_json_files(run.inbox), *_json_files(run.active)]
    for path in [*commands, *_json_files(run.done)[-_OUTCOMES_READ:]]:
        yield partial(load_if_exists, path, Command)


def _json_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"))
