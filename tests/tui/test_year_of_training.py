"""A year of training in miniature: what `.tfckpt` has is bounded, by bytes and by entries.

The code is that of a run. The limits are small, and time passes by the number of steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path

import pytest
from rundir_factory import RunFactory

from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.launch.processes.log_limit import LogLimit, check_seconds
from tfckpt_trainer.launch.processes.logs import open_run_log
from tfckpt_trainer.rundir import command_queue, log_times
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.heartbeats.heartbeat_file import HeartbeatFile
from tfckpt_trainer.rundir.leftover_files import LEFTOVER_SECONDS, delete_leftovers
from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveOverhead, VerificationRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.stacks import WorkerStacks
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import store

pytestmark = pytest.mark.tensorflow

WORKERS, SAVES, STEPS_OF_SAVE = 64, 60, 60
STATE = (".index", ".data-00000-of-00001", ".json")
KEPT, OUTCOMES, TIMES = 3, 20, 30
SERIES, JOURNAL, OVERHEADS, LOG = 60_000, 20_000, 5000, 4000
"""The limits in bytes; those of a run are some thousand times as large."""


class Year:
    """A run that trains for a year."""

    def __init__(self, root: Path) -> None:
        from tfckpt_trainer.training.checkpoint.saves.automatic_prune import AutomaticPruner
        from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter
        from tfckpt_trainer.training.telemetry.series_writer import SeriesWriter

        self.made = RunFactory(root).create()
        self.run = self.made.run
        self.queue = CommandQueue(self.run)
        self.events = EventLogWriter(self.run, self.queue, is_chief=True, limit=JOURNAL)
        self.series = SeriesWriter(self.run, limit=SERIES)
        settings = RetentionSettings(Policy(keep_last=KEPT), trash_hours=0.0)
        self.pruner = AutomaticPruner(self.run, settings, self.events)
        minutes, moments = count(), count(1)
        self.log_limit = LogLimit(LOG, clock=lambda: next(minutes) * check_seconds(WORKERS))
        self.log_times = LogTimesRecorder(clock=lambda: float(next(moments)))
        self.logs = [self.run.worker_log(index) for index in range(WORKERS)]
        self.heartbeats = [
            HeartbeatFile(self.run.worker_status(index), WorkerStatus) for index in range(WORKERS)
        ]

    def pass_save(self, number: int, outputs: list[AbstractContextManager]) -> None:
        """Trains some steps, saves, and does what people ask for meanwhile."""
        step = number * STEPS_OF_SAVE
        for one in range(step, step + STEPS_OF_SAVE):
            self.series.add([SeriesPoint(at=one, step=one, branch=0, metrics={"loss": one % 7})])
            self.series.flush()
        for index, output in enumerate(outputs):
            output.write(b"%d/1000 [====>.....] loss: 0.5\r" % step * 5 + b"\n")
            self._beat(index, step)
        self.log_times.record(self.logs)
        self.log_limit.apply_if_due(self.logs)
        self._save(step)
        self._answer(step)
        self._leave_behind(number)

    def _beat(self, index: int, step: int) -> None:
        status = WorkerStatus(
            index=index, host="host", pid=1, process_started_at=1.0, updated_at=float(step),
            interval_seconds=1.0, activity=Activity.TRAINING, step=step, branch=0,
        )  # fmt: skip
        self.heartbeats[index].write(status, status)
        stacks = WorkerStacks(index=index, request="r", at=1.0, threads=[])
        store(self.run.worker_stacks(index), stacks, durable=False)

    def _save(self, step: int) -> None:
        from tfckpt_trainer.training.telemetry.telemetry import append_overhead

        name = self.made.checkpoint(step, listed=False)
        states = self.run.worker_state_directory(name)
        states.mkdir()
        for index in range(WORKERS):
            for suffix in STATE:
                (states / f"worker-{index}{suffix}").write_bytes(b"x" * 100)
        result = VerificationRecord(
            name=name, verified_at=1.0, seconds=1.0, bytes=1, tensors=1, files={}
        )
        store(self.run.verification(name), result, durable=False)
        self.events.note(EventKind.SAVE, f"Saved {name}.", step=step, checkpoint=name)
        overhead = SaveOverhead(
            checkpoint=name, sequence=step, slowing_seconds=0.1, slowing_steps=10
        )
        append_overhead(self.run.overheads, overhead, OVERHEADS)
        self.pruner.after_save(None)

    def _answer(self, step: int) -> None:
        for is_taken in (True, False):
            command = self.queue.submit(
                CommandKind.SAVE, requested_by="cron", now=float(step), lifetime=1e9
            )
            if is_taken:
                taken = self.queue.claim(float(step))
                assert taken is not None
                self.queue.finish(advance(taken, CommandState.DONE, "Saved."))
            else:
                self.queue.withdraw(command)

    def _leave_behind(self, number: int) -> None:
        """Leaves what a kill leaves, and starts anew as a trainer does."""
        for place in (self.run.status_directory, self.run.control):
            path = place / f".head.json.{number:032x}.tmp"
            path.write_bytes(b"{")
            os.utime(path, (path.stat().st_mtime - 2 * LEFTOVER_SECONDS,) * 2)
        delete_leftovers(self.run)

    def rest(self) -> None:
        """Waits until nothing is thinned or deleted."""
        self.pruner._wait_for_deleting(None)
        if self.series._thinning is not None:
            self.series._thinning.join()

    def close(self) -> None:
        """Ends its threads."""
        self.series.close()
        self.events.close(60)


def sizes(run: RunDirectory) -> dict[str, int]:
    return {str(p.relative_to(run.control)): p.stat().st_size for p in files(run)}


def files(run: RunDirectory) -> Iterator[Path]:
    return (path for path in run.control.rglob("*") if path.is_file())


def entries(run: RunDirectory) -> dict[str, int]:
    places = [run.control, *(path for path in run.control.rglob("*") if path.is_dir())]
    return {str(place.relative_to(run.control)): len(list(place.iterdir())) for place in places}


def test_what_a_year_leaves_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_queue, "KEPT_OUTCOMES", OUTCOMES)
    monkeypatch.setattr(log_times, "MAX_RECORDS", TIMES)
    year = Year(tmp_path)
    half: dict[str, int] = {}
    with ExitStack() as opened:
        outputs = [
            opened.enter_context(open_run_log(year.run, path, 0, ["train"])) for path in year.logs
        ]
        for number in range(SAVES):
            year.pass_save(number, outputs)
            if number == SAVES // 2:
                year.rest()
                half = sizes(year.run)
    year.rest()
    year.close()
    size = sizes(year.run)
    require_bounds(size)
    require_entries(entries(year.run))
    assert sum(size.values()) < 1.5 * sum(half.values()), "the second half adds next to nothing"
    assert len(size) <= len(half) + 1
    assert year.series.trouble == ""


def require_bounds(size: dict[str, int]) -> None:
    # One flush, event or line may go over a limit before it is looked at.
    assert size["series.jsonl"] <= SERIES + 200
    assert size["journal.jsonl"] <= JOURNAL + 500
    assert size["journal.jsonl.1"] <= JOURNAL + 500
    assert size["overheads.jsonl"] <= OVERHEADS
    for index in range(WORKERS):
        assert size[f"logs/worker-{index}.log"] <= LOG + 400
        assert size[f"logs/worker-{index}.log.1"] <= LOG + 400
        assert size[f"logs/worker-{index}.times"] <= TIMES * 40


def require_entries(number: dict[str, int]) -> None:
    assert number["control/done"] == OUTCOMES
    assert number["control/inbox"] == number["control/active"] == 0
    assert number["status"] == number["stacks"] == WORKERS
    assert number["logs"] == 3 * WORKERS
    assert number["workers"] == number["verifications"] == KEPT
    assert number["records"] == 2 * KEPT
    assert number["trash"] == number["saving"] == number["pins"] == number["results"] == 0
    assert max(number.values()) <= 3 * WORKERS
    assert number["."] < 40
