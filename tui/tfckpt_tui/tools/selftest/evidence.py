"""What the self-test found, before it is judged, and on which machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfckpt_trainer import __version__
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.selftest import (
    KilledWorker,
    RecordedStep,
    killed_file,
    steps_file,
)
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.rundir.storage.filesystems import mounted_type
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_tui.formats import units

Steps = tuple[RecordedStep, ...]

_SECONDS = 10.0


@dataclass(frozen=True)
class TrainingEvidence:
    """What one training left.

    Attributes:
        steps: The recorded steps of each worker, in the order in which they were trained.
        killed: The worker that was killed; None if none was.
        restarts: Restarts in the event log.
        records: Records of the checkpoints, oldest first.
        verified: Results of verifying them, by name.
    """

    steps: tuple[Steps, ...]
    killed: KilledWorker | None = None
    restarts: int = 0
    records: tuple[CheckpointRecord, ...] = ()
    verified: dict[str, Verified] = field(default_factory=dict)

    def lines(self) -> Iterator[RecordedStep]:
        """Yields the steps of all workers, of the chief first."""
        for steps in self.steps:
            yield from steps


def read_evidence(run: RunDirectory, directory: Path, workers: int) -> TrainingEvidence:
    """Reads what a training left, and verifies its checkpoints.

    Args:
        run: The run directory.
        directory: Where the workers recorded their steps.
        workers: Number of workers.

    Raises:
        TfckptError: A file is damaged.
    """
    found = [packed.unpack() for packed in Records(run).look().values()]
    records = sorted(found, key=lambda record: record.sequence)
    results = ((record.name, verify_checkpoint(run, record.name)) for record in records)
    return TrainingEvidence(
        steps=tuple(
            tuple(Tail(steps_file(directory, worker), RecordedStep).read_new())
            for worker in range(workers)
        ),
        killed=load_if_exists(killed_file(directory), KilledWorker),
        restarts=sum(entry.kind is EventKind.RESTART for entry in read_entries(run)),
        records=tuple(records),
        verified={name: verified for name, verified in results if verified is not None},
    )


def describe_machine(evidence: TrainingEvidence, directory: Path) -> dict[str, str]:
    """Returns facts by name.

    Args:
        evidence: What the workers recorded; empty if none started.
        directory: The scratch directory.
    """
    devices = [step.devices for step in evidence.lines() if step.devices is not None]
    facts = {"tfckpt-tui": __version__, **(devices[0].versions if devices else {})}
    # Each process of a worker recorded them: count those of the first process.
    processes = {steps[0].process for steps in evidence.steps if steps}
    names = Counter(
        name
        for step in evidence.lines()
        if step.devices is not None and step.process in processes
        for name in step.devices.gpus
    )
    listed = ", ".join(f"{number} × {name}" for name, number in names.items())
    facts["GPUs"] = listed or ("none" if devices else "unknown")
    if names:
        facts["driver"] = _driver()
    if devices:
        replicas = units.count(devices[0].replicas, "replica")
        workers = units.count(len(evidence.steps), "worker")
        facts["strategy"] = f"{devices[0].strategy}, {workers}, {replicas}"
    load = os.getloadavg()[0]
    facts["CPUs"] = f"{os.cpu_count()}, load {load:.1f}"
    facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts["file system"] = f"{mounted_type(directory) or 'unknown'}, of {directory.parent}"
    return facts


def _driver() -> str:
    """Returns the version of NVIDIA's driver; `unknown` without its tool."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return ", ".join(dict.fromkeys(done.stdout.split())) or "unknown"
