"""Writes the state of a run to a text file that node-exporter of Prometheus collects.

The format is that of OpenMetrics (https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.heartbeats.health import is_live
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.words.clean_text import clean

EXPORT_SECONDS = 15.0
"""Time between two writes, as Prometheus asks by default."""

_HELP = {
    "tfckpt_step": "Steps that training has done.",
    "tfckpt_total_steps": "The last step of the run.",
    "tfckpt_metric": "The newest value of a metric of the script.",
    "tfckpt_examples_per_second": "Throughput over all workers.",
    "tfckpt_step_seconds": "Median step time.",
    "tfckpt_saved_timestamp_seconds": "Time of the last save.",
    "tfckpt_failed_saves": "The newest saves that failed; 0 after a success.",
    "tfckpt_worker_up": "Whether the process of a worker runs.",
    "tfckpt_heartbeat_timestamp_seconds": "Time of the last heartbeat of a worker.",
    "tfckpt_restarts": "Starts of all workers after the first.",
}

_Sample = tuple[str, Mapping[str, object], float]
"""Its family, its labels beside the run, and its value."""


class OpenMetricsExport:
    """Writes the file again and again, in a thread that nobody waits for."""

    def __init__(self, run: RunDirectory, path: Path, note: Callable[[str], None]) -> None:
        """Begins to write.

        Args:
            run: The run directory.
            path: The file.
            note: Called in the thread with why the file cannot be written, once until it can be.
        """
        self._run = run
        self._path = path
        self._note = note
        self._has_ended = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="tfckpt-openmetrics", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Writes the file once more, and ends."""
        self._has_ended.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            # Before the write: the last one has what happened until the end.
            has_ended = self._has_ended.wait(0.0)
            self._write()
            if has_ended:
                return
            self._has_ended.wait(EXPORT_SECONDS)

    def _write(self) -> None:
        try:
            write_atomic(self._path, openmetrics_text(self._run, time.time()).encode())
        except (OSError, TfckptError) as error:
            if not self._is_failing:
                self._note(f"Metrics cannot be exported: {describe_error(error)}.")
            self._is_failing = True
        else:
            self._is_failing = False


def openmetrics_text(run: RunDirectory, now: float) -> str:
    """Returns the state of a run as OpenMetrics.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
    """
    samples = list(_samples(read_workers(run), read_supervisor(run), now))
    lines = []
    for family, told in _HELP.items():
        found = [(labels, value) for name, labels, value in samples if name == family]
        lines += [f"# HELP {family} {told}", f"# TYPE {family} gauge"] if found else []
        for labels, value in found:
            words = {"run": run.root, **labels}
            place = ",".join(f'{key}="{_escaped(word)}"' for key, word in words.items())
            lines.append(f"{family}{{{place}}} {_number(value)}")
    return "\n".join([*lines, "# EOF", ""])


def _samples(
    workers: list[WorkerStatus], supervisor: SupervisorStatus | None, now: float
) -> Iterator[_Sample]:
    for worker in workers:
        labels = {"worker": worker.index}
        runs = worker.activity is not Activity.EXITED and is_live(worker, now)
        yield "tfckpt_worker_up", labels, float(runs)
        yield "tfckpt_heartbeat_timestamp_seconds", labels, worker.updated_at
        if worker.index == 0:
            yield from _of_chief(worker)
    if supervisor is not None:
        yield "tfckpt_restarts", {}, supervisor.attempt


def _of_chief(chief: WorkerStatus) -> Iterator[_Sample]:
    saves = chief.saves
    known = {
        "tfckpt_total_steps": chief.total_steps,
        "tfckpt_examples_per_second": chief.examples_per_second,
        "tfckpt_step_seconds": chief.step_seconds,
        "tfckpt_saved_timestamp_seconds": saves.saved_at if saves is not None else None,
        "tfckpt_failed_saves": saves.failed if saves is not None else None,
    }
    yield "tfckpt_step", {"branch": chief.branch}, chief.step
    for family, value in known.items():
        if value is not None:
            yield family, {}, value
    for name, measured in chief.metrics.items():
        yield "tfckpt_metric", {"name": name}, math.nan if measured is None else measured


def _escaped(text: object) -> str:
    return clean(str(text)).replace("\\", r"\\").replace('"', r"\"")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(float(value))
