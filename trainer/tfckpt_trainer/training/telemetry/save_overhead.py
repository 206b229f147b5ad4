"""Measures by how much a save slows down the steps during and after it."""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveOverhead
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter
from tfckpt_trainer.training.telemetry.step_metrics import Call, StepMetrics, median

STEPS_AFTER_SAVE = 10
"""Number of steps after a save that are measured."""


@dataclass
class _Measurement:
    """The steps of one save.

    Attributes:
        usual: Median seconds of a step before the save.
        left: Steps still to be measured; None while the save is being written.
    """

    name: str
    sequence: int
    usual: float
    left: int | None = None
    steps: int = 0
    seconds: float = 0.0


class SaveOverheadMeter:
    """Compares the steps during and after a save with those before it; each worker by itself."""

    def __init__(self, run: RunDirectory, event_log: EventLogWriter, metrics: StepMetrics) -> None:
        self._run = run
        self._event_log = event_log
        self._metrics = metrics
        self._current: _Measurement | None = None

    def begin(self, name: str, sequence: int) -> None:
        """Starts measuring the save of checkpoint `name`, before its first byte is written."""
        self._write()
        usual = median(self._metrics.step_seconds)
        if usual is not None:
            self._current = _Measurement(name, sequence, usual)

    def saved(self) -> None:
        """Has the measurement end `STEPS_AFTER_SAVE` steps from now."""
        if self._current is not None:
            self._current.left = STEPS_AFTER_SAVE

    def discard(self) -> None:
        """Drops the measurement: nothing was saved."""
        self._current = None

    def call_done(self, call: Call) -> None:
        """Counts the steps of a call."""
        current = self._current
        if current is None:
            return
        current.steps += call.steps
        current.seconds += call.seconds - call.steps * current.usual
        if current.left is not None:
            current.left -= call.steps
            if current.left <= 0:
                self._write()

    def _write(self) -> None:
        measured, self._current = self._current, None
        if measured is not None and measured.steps:
            overhead = SaveOverhead(
                checkpoint=measured.name,
                sequence=measured.sequence,
                slowing_seconds=max(0.0, measured.seconds),
                slowing_steps=measured.steps,
            )
            # Not flushed: a power loss may lose a measurement, and nothing else.
            path = self._run.overheads
            self._event_log.later(path, lambda: append(path, overhead, durable=False))
