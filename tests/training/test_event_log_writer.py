"""The chief rotates the event log, and loses no entry on a disk that refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from refusing_disk import RefusingDisk
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import WHOLE_LOG, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.disk import using

pytestmark = pytest.mark.tensorflow

LIMIT = 20_000


def test_the_event_log_is_bounded(tmp_path: Path) -> None:
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    run = RunDirectory(tmp_path)
    run.control.mkdir()
    writer = EventLogWriter(run, CommandQueue(run), is_chief=True, limit=LIMIT)
    for step in range(1000):
        writer.note(EventKind.SAVE, "Saved.", step=step)
    writer.close(60)
    assert sorted(path.name for path in run.control.iterdir()) == [
        "journal.jsonl",
        "journal.jsonl.1",
    ]
    assert all(path.stat().st_size <= LIMIT + 300 for path in run.control.iterdir())
    steps = [entry.step for entry in read_entries(run, WHOLE_LOG)]
    assert steps == list(range(1000 - len(steps), 1000))
    assert len(steps) > LIMIT // 300


@pytest.mark.parametrize("call", ["rename", "write"])
def test_a_refusal_loses_no_entry(tmp_path: Path, call: str) -> None:
    from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

    run = RunDirectory(tmp_path)
    run.control.mkdir()
    writer = EventLogWriter(run, CommandQueue(run), is_chief=True, limit=LIMIT)
    step = 0
    while not run.event_log.exists() or run.event_log.stat().st_size <= LIMIT:
        writer.note(EventKind.SAVE, "Saved.", step=step)
        step += 1
    with using(RefusingDisk(lambda _: True, calls=(call,))):
        writer.note(EventKind.SAVE, "Saved.", step=step)
        if call == "write":
            # A reader or a command may make a new file meanwhile.
            run.event_log.touch()
        writer.note(EventKind.SAVE, "Saved.", step=step + 1)
    writer.note(EventKind.SAVE, "Saved.", step=step + 2)
    writer.close(60)
    assert [entry.step for entry in read_entries(run, WHOLE_LOG)] == list(range(step + 3))
