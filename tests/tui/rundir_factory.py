"""Writes real run directories: a run of two workers and two branches, and parts of one."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from bundle_writing import write_floats
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.state_file import StateFile, write_state_file
from tfckpt_trainer.rundir.event_log import write_entry
from tfckpt_trainer.rundir.heartbeats.process_table import own_process
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.failure import ScriptFault, WorkerLoss
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, Hyperparameter, PlannedChange
from tfckpt_trainer.rundir.records.run import GuardInForce, GuardSource, RunInfo
from tfckpt_trainer.rundir.records.worker import Activity, Ending, SaveStatus, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import append, load, store

HOST = "trainhost"
"""Another machine, so that only the age of a heartbeat counts."""

HYPERPARAMETERS = [
    Hyperparameter(
        name="learning_rate",
        value=0.0003,
        script_value=0.003,
        bounds=Bounds(low=0),
        step=400,
        changed_at=390,
        changed_by="ann@desk, command line",
        planned=PlannedChange(value=0.0001, begins=500, steps=100, by="ann@desk, app"),
    ),
    Hyperparameter(
        name="generator/beta_1",
        value=0.5,
        script_value=0.5,
        bounds=Bounds(low=0, high=1, below=True),
    ),
]

SPIKE = "spike loss: go_back, skip_batches 10"
ABOVE = "above loss 3: notify"


FAULT = ScriptFault(
    place="train.py:41", function="load", source="with open(path) as f:", error="KeyError: 'x'"
)
LOSS = WorkerLoss(
    worker=1,
    exit_code=1,
    log=["epoch 3", "KeyError: 'x'"],
    fault=FAULT,
    step=438,
    memory_bytes=912_000_000,
    memory_limit_bytes=16_000_000_000,
    disk_free_bytes=41_000_000_000,
    verdict="All 3 restarts are used.",
)


class RunFactory:
    """Builds a run directory; times are seconds before `now`."""

    def __init__(self, root: Path, now: float | None = None) -> None:
        self.run = RunDirectory(root)
        self.now = time.time() if now is None else now
        self._sequence = 0
        self._listed: list[str] = []

    def create(self, **info: Any) -> RunFactory:
        """Writes `run.json` and the directories."""
        self.run.create()
        fields = {
            "id": "language-model",
            "created_at": self.now - 3600,
            "strategy": "MultiWorkerMirroredStrategy",
            "worker_count": 2,
            "replica_count": 2,
            "total_steps": 5000,
            "host": HOST,
        }
        store(self.run.run_file, RunInfo(**{**fields, **info}))
        return self

    def worker(self, index: int, **changes: Any) -> WorkerStatus:
        """Writes a heartbeat."""
        fields: dict[str, Any] = {
            "index": index,
            "host": HOST,
            "pid": 4711 + index,
            "process_started_at": self.now - 3600,
            "updated_at": self.now - 0.4,
            "interval_seconds": 1.0,
            "activity": Activity.TRAINING,
            "step": 438,
            "branch": 1,
            "total_steps": 5000,
            "step_seconds": 0.118,
            "step_seconds_p95": 0.151,
            "input_wait_seconds": 0.0021,
            "loss": 2.144,
            "metrics": {"loss": 2.144},
            "examples_per_second": 412.3,
            "cpu_percent": 98.2,
            "memory_bytes": 912_000_000,
            "last_step_at": self.now - 0.5,
        }
        status = WorkerStatus(**{**fields, **changes})
        store(self.run.worker_status(index), status)
        # Whether it may be alive is told by the file's age.
        os.utime(self.run.worker_status(index), (status.updated_at, status.updated_at))
        return status

    def live_worker(self, index: int = 0, **changes: Any) -> WorkerStatus:
        """Writes a heartbeat of this very process, so that it is alive without beating."""
        import socket

        return self.worker(
            index,
            host=socket.gethostname(),
            **own_process()._asdict(),
            interval_seconds=3600.0,
            last_step_at=None,
            **changes,
        )

    def tells(self, *hyperparameters: Hyperparameter) -> RunFactory:
        """Has the chief tell these hyperparameters."""
        path = self.run.worker_status(0)
        status = load(path, WorkerStatus)
        store(path, msgspec.structs.replace(status, hyperparameters=list(hyperparameters)))
        os.utime(path, (status.updated_at, status.updated_at))
        return self

    def guarded(self, **info: Any) -> RunFactory:
        """Has the trainer evaluate two guards, of which one fired."""
        guards = [
            GuardInForce(rule=SPIKE, source=GuardSource.SCRIPT),
            GuardInForce(rule=ABOVE, source=GuardSource.CONFIG),
        ]
        self.run.config_file.write_text(f"guards = [{ABOVE!r}]\n")
        what = "spike loss: loss is 91.2, 14.3 deviations above 2.31. Went back to ckpt-300."
        details = {"rule": SPIKE, "worker": 1}
        self.event_log(EventKind.GUARD, what, 80, step=420, branch=1, details=details)
        return self.create(guards=guards, **info)

    def records(self, name: str, *hyperparameters: Hyperparameter) -> None:
        """Has the record of a checkpoint hold these hyperparameters."""
        path = self.run.record(name)
        record = load(path, CheckpointRecord)
        store(path, msgspec.structs.replace(record, hyperparameters=list(hyperparameters)))

    def checkpoint(
        self,
        step: int,
        branch: int = 0,
        parent: str | None = None,
        *,
        name: str | None = None,
        seconds_ago: float = 0.0,
        trigger: str = "every 50 steps",
        recorded: bool = True,
        listed: bool = True,
        metrics: dict[str, float | None] | None = None,
        not_finite: dict[str, str] | None = None,
        duration: float = 0.21,
    ) -> str:
        """Writes a whole checkpoint, with its record; returns its name."""
        name = checkpoint_name(step, branch) if name is None else name
        paths = write_floats(self.run.root / name, (float(step), 0.5))
        self._sequence += 1
        saved_at = self.now - seconds_ago
        for path in paths:
            os.utime(path, (saved_at, saved_at))
        if recorded:
            facts = [
                FileFacts(name=p.name, size=p.stat().st_size, crc32c=crc32c(p.read_bytes()))
                for p in paths
            ]
            record = CheckpointRecord(
                name=name,
                step=step,
                branch=branch,
                sequence=self._sequence,
                saved_at=saved_at,
                trigger=trigger,
                parent=parent,
                metrics={"loss": loss_at(step)} if metrics is None else metrics,
                not_finite=not_finite or {},
                duration_seconds=duration,
                files=facts,
            )
            store(self.run.record(name), record)
        if listed:
            self._listed.append(name)
            write_state_file(
                self.run.state_file,
                StateFile(
                    latest=name,
                    all_paths=tuple(self._listed),
                    timestamps=tuple(saved_at for _ in self._listed),
                    last_preserved=None,
                ),
            )
        return name

    def event_log(
        self, kind: EventKind, message: str, seconds_ago: float = 0.0, **more: Any
    ) -> None:
        """Appends to the journal."""
        write_entry(
            self.run, EventEntry(at=self.now - seconds_ago, kind=kind, message=message, **more)
        )

    def series(
        self, first: int, last: int, branch: int, every: int = 4, metric: str = "loss"
    ) -> None:
        """Appends measurements."""
        for step in range(first, last + 1, every):
            point = SeriesPoint(
                at=self.now - 1000 + step,
                step=step,
                branch=branch,
                metrics={metric: loss_at(step) - 0.1 * branch},
                examples_per_second=400.0 + 10 * math.sin(step),
                step_seconds=0.118,
            )
            append(self.run.series, point)


def loss_at(step: int) -> float:
    """A loss as it should be."""
    return 2.0 + 3.5 * math.exp(-step / 180)


def two_branches(root: Path, now: float | None = None, *, live: bool = False) -> RunFactory:
    """A run of two workers that went back once: from step 500 to 300, where branch 1 began."""
    made = RunFactory(root, now).create()
    parent: str | None = None
    for step in range(100, 501, 100):
        parent = made.checkpoint(step, 0, parent, seconds_ago=2000 - 2 * step)
        made.event_log(
            EventKind.SAVE, f"Saved {parent}.", 2000 - 2 * step, step=step, checkpoint=parent
        )
    made.event_log(
        EventKind.RESTORE, "Back to ckpt-300; branch 1 begins.", 900, step=300, by="ada@trainhost"
    )
    made.checkpoint(400, 1, "ckpt-300", seconds_ago=300, trigger="command")
    made.series(0, 500, 0)
    made.series(300, 438, 1)
    for index in range(2):
        (made.live_worker if live else made.worker)(index)
    return made


def fail(made: RunFactory, loss: WorkerLoss = LOSS) -> RunFactory:
    """Has worker 1 fail; worker 0 ends because of it."""
    made.event_log(EventKind.START, "Started 2 workers.", 500)
    lost = msgspec.to_builtins(loss)
    made.event_log(EventKind.WORKER_LOST, "Worker 1 ended.", 60, details=lost)
    saves = SaveStatus(saved_step=400, unsaved_steps=38, unsaved_seconds=4.5)
    made.worker(0, activity=Activity.EXITED, ending=Ending.PEER_LOST, saves=saves)
    made.worker(1, activity=Activity.EXITED, ending=Ending.FAILED, detail="train.py:41: …")
    return made


def stall(made: RunFactory) -> RunFactory:
    """Has both workers stand still, and tell where."""
    stacks = {"0": "train.py:9: step()", "1": "data.py:3: time.sleep(9)", "x": 1}
    what = "No worker made a step in 61 s."
    made.event_log(EventKind.STALLED, what, 5, details={"stacks": stacks})
    for index in range(2):
        made.worker(index, step_seconds=0.1, last_step_at=made.now - 66)
    return made


def without_heartbeats(made: RunFactory) -> RunFactory:
    """Takes the heartbeats of both workers away: the trainer of the run is gone."""
    for index in range(2):
        made.run.worker_status(index).unlink()
    return made
