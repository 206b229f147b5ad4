"""What a year of training leaves in `.tfckpt`: the growth of each part, and what thinning costs.

    python tests/benchmarks/year_of_training.py [--days N] [--limit BYTES] [--saves N]

One step a second reports three metrics. The series is written for so many days, and thinned each
time that it is too long. Sizes of the other parts are those of a run of two workers that saves, and
prunes all but three checkpoints.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "training")]
from scripts.figures import report
from scripts.machine import on_quiet_machine
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series import find_thinned_part
from tfckpt_trainer.rundir.series_thinner import SERIES_LIMIT, SeriesThinner
from tfckpt_trainer.rundir.storage.documents import encode, load
from tfckpt_trainer.rundir.storage.files import append_line
from waiting import wait_until

DAY = 86_400
STEPS_OF_SAVE = 10


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--limit", type=int, default=SERIES_LIMIT)
    parser.add_argument("--saves", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure_series(RunDirectory(Path(directory, "series")), options.days, options.limit)
        measure_event_files(RunDirectory(Path(directory, "events")))
        measure_run(Path(directory, "run"), options.saves)


def point(step: int) -> SeriesPoint:
    """Returns a point as a trainer writes it, with values of sixteen digits."""
    noise = (step * 7919 % 1000) / 3000
    return SeriesPoint(
        at=1_790_000_000.123456 + step,
        step=step,
        branch=0,
        metrics={"loss": 1 / 3 + noise, "accuracy": 2 / 3 - noise / 3, "lr": 0.0003},
        examples_per_second=511.87342 + noise,
        step_seconds=1.0004342 + noise,
    )


def measure_series(run: RunDirectory, days: int, limit: int) -> None:
    """Writes a series, and thins it in this thread, without the pauses of a trainer."""
    run.control.mkdir(parents=True)
    lock, worked, waited, size, written = threading.Lock(), [], [], 0, 0
    largest = memory = 0

    @contextmanager
    def writing() -> Iterator[None]:
        with lock:
            began = time.perf_counter()
            yield
            waited.append(1000 * (time.perf_counter() - began))

    for hour in range(24 * days):
        steps = range(3600 * hour, 3600 * (hour + 1))
        lines = b"\n".join(encode(point(step)) for step in steps)
        written += len(lines) + 1
        size = append_line(run.series, lines, durable=False)
        largest = max(largest, size)
        if size > limit:
            before, began = resident(), time.thread_time()
            SeriesThinner(run, writing=writing(), pause=lambda: None, limit=limit).thin()
            worked.append(time.thread_time() - began)
            memory = max(memory, resident() - before)
            largest = max(largest, run.series.stat().st_size)
    report("a point of the series", [written / days / DAY], "bytes")
    report("the largest series", [largest / 2**20], "MiB", along="days", at=days)
    thinned = find_thinned_part(run)
    if thinned is None:
        return
    report("thinning: processor time", worked, "s")
    report("thinning: memory", [memory], "MiB")
    report("thinning: time for which a writer waits", waited, "ms")
    report("thinning: steps of an interval", [thinned.width], "steps", along="days", at=days)


def resident() -> float:
    """Returns the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_event_files(run: RunDirectory) -> None:
    """Measures what TensorBoard's event files get for a step."""
    from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics, StepSummary
    from tfckpt_trainer.training.telemetry.summaries import SummaryWriter

    for index, who in ((0, "the chief"), (1, "another worker")):
        writer = SummaryWriter(run, run.tensorboard, index, StepMetrics())
        metrics = point(1).metrics if index == 0 else {}
        event = writer._step_event(StepSummary(1.79e9, 10**7, 0, 1.0, metrics))
        # A record has its length, and a checksum of each part.
        size = len(event.SerializeToString()) + 16
        report(f"event files: a step of {who}", [size], "bytes")


def measure_run(root: Path, saves: int) -> None:
    """Measures what a run of two workers leaves for each save, worker and command."""
    words = ["--save-every", str(STEPS_OF_SAVE), "--keep-last", "3", "--trash-hours", "0"]
    with Cluster(root, "steered.py", words, 2) as cluster:
        steered = SteeredRun(cluster)
        steered.wait_for_step(5)
        answered = steered.ask(CommandKind.SAVE)
        steered.wait_for_step(saves * STEPS_OF_SAVE)
        steered.ask(CommandKind.STOP)
        wait_until(lambda: all(p.poll() is not None for p in cluster.processes), 60, "the end")
    run = steered.run
    events = run.event_log.read_bytes()
    saved = events.count(b'"kind":"save"')
    report("a save: bytes of the event log", [len(events) / saved], "bytes")
    report("a save: bytes of overheads.jsonl", [run.overheads.stat().st_size / saved], "bytes")
    record = max(run.records_directory.glob("*.json"), key=lambda path: path.stat().st_mtime)
    facts = load(record, CheckpointRecord).workers[0]
    each = len(msgspec.json.encode(facts))
    report("a record without workers", [record.stat().st_size - 2 * each], "bytes")
    report("a record, for each worker", [each], "bytes")
    states = list(run.worker_state_directory(record.stem).glob("worker-1.*"))
    report("state of a worker: files", [len(states)], "files")
    report("state of a worker", [sum(path.stat().st_size for path in states)], "bytes")
    report("a heartbeat of the chief", [run.worker_status(0).stat().st_size], "bytes")
    report("a heartbeat of a worker", [run.worker_status(1).stat().st_size], "bytes")
    report("an answer", [(run.done / f"{answered.id}.json").stat().st_size], "bytes")


if __name__ == "__main__":
    main()
