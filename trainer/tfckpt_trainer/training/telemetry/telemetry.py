"""What one worker measures and reports."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.alerts.alert import BY_ALERTS
from tfckpt_trainer.alerts.sender import FLUSH_SECONDS, AlertSender
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, newest_finite
from tfckpt_trainer.catalog.scan.alerts import not_finite_alert
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.heartbeats.attention import Attention
from tfckpt_trainer.rundir.heartbeats.gathered import HeartbeatGatherer, are_gathered
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveOverhead
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import BEGINS, CHANGE, EventEntry, EventKind
from tfckpt_trainer.rundir.records.exactness import Exactness
from tfckpt_trainer.rundir.records.hyperparameter import ConfirmedChange
from tfckpt_trainer.rundir.storage.documents import append, keep_newest_lines
from tfckpt_trainer.rundir.storage.tail import TAIL_BYTES
from tfckpt_trainer.training.hyperparameters.hyperparameters import ValueChange, details_of
from tfckpt_trainer.training.process.signals_and_exit import was_launched
from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter
from tfckpt_trainer.training.telemetry.finite_watch import check_values
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.step_metrics import Call, StepMetrics, median
from tfckpt_trainer.training.telemetry.summaries import SummaryWriter
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import noun

STEPS_AFTER_SAVE = 10
"""Number of steps after a save that are measured."""


OVERHEADS_LIMIT = TAIL_BYTES
"""Size in bytes that the measurements of saves have at most: a reader reads no more."""


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
            path = self._run.overheads
            self._event_log.later(path, lambda: append_overhead(path, overhead))


def append_overhead(path: Path, overhead: SaveOverhead, limit: int = OVERHEADS_LIMIT) -> None:
    """Appends a measurement; above `limit` bytes, the older half of all is dropped.

    Raises:
        OSError: The disk refuses.
    """
    # Not flushed: a power loss may lose a measurement, and nothing else.
    if append(path, overhead, durable=False) > limit:
        # What cannot be shortened grows on.
        with suppress(OSError, TfckptError):
            keep_newest_lines(path, limit // 2)


_FEWEST_READINGS, _MOST_READINGS = 3, 10
"""Saves that an estimate needs, and those that it looks at."""


class DiskTrend:
    """Follows the free space. What others write, and what is pruned, counts too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._free: deque[tuple[float, int]] = deque(maxlen=_MOST_READINGS)

    def full_in(self, saved_at: float | None) -> float | None:
        """Measures after each save; returns seconds until the disk is full, None if unknown.

        Args:
            saved_at: When the last save succeeded, in seconds since the epoch.

        Raises:
            OSError: The free space cannot be read.
        """
        if saved_at is not None and (not self._free or self._free[-1][0] < saved_at):
            self._free.append((saved_at, shutil.disk_usage(self._directory).free))
        return seconds_until_full(self._free)


def seconds_until_full(free: deque[tuple[float, int]]) -> float | None:
    """Returns in how many seconds no byte is free if it goes on like this; None if unknown.

    Args:
        free: Times and free bytes, oldest first.
    """
    if len(free) < _FEWEST_READINGS:
        return None
    (began, before), (now, left) = free[0], free[-1]
    used = before - left
    return left * (now - began) / used if used > 0 and now > began else None


class Telemetry:
    """The metrics, heartbeat, event log and summaries of one worker.

    Attributes:
        metrics: What the training loop measures.
        queue: Commands of front ends, and their answers.
        event_log: Writes the event log and the answers to commands.
        summaries: Writes TensorBoard's event files and the charts of the terminal app.
        attention: Whether somebody looks at the run. On the chief, who waits for commands tells it.
        heartbeat: Writes the status file.
        save_overhead: Measures the cost of saves.
        command_trouble: Why the command queue cannot be read; empty if it can.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        *,
        tensorboard: Path,
        total_steps: int | None,
    ) -> None:
        """Creates the writers; `heartbeat.start` starts the first of them.

        Args:
            run: The run directory.
            group: The workers.
            tensorboard: Directory of TensorBoard's event files.
            total_steps: Steps of the whole training; None if unknown.
        """
        self._run = run
        self.metrics = StepMetrics()
        self.queue = CommandQueue(run)
        self._alerts: AlertSender | None = None
        self._starting_alerts = threading.Lock()
        self.event_log = EventLogWriter(
            run, self.queue, is_chief=group.is_chief, on_event=self._send_alert
        )
        self.summaries = SummaryWriter(run, tensorboard, group.index, self.metrics)
        self.attention = Attention(run, asks=not group.is_chief)
        is_gathered = are_gathered(run, group.size)
        self.heartbeat = Heartbeat(
            run,
            group.index,
            self.metrics,
            total_steps=total_steps,
            attention=self.attention,
            every_second=self._write_pending,
            on_unwritten=self._note_unwritten,
            job=group.job,
            gatherer=HeartbeatGatherer(run, group.size) if is_gathered and group.is_chief else None,
            is_member=is_gathered and not group.is_chief,
        )
        self.save_overhead = SaveOverheadMeter(run, self.event_log, self.metrics)
        self.command_trouble = ""
        self._exactness: Exactness | None = None
        self._disk = DiskTrend(run.root)

    def note(
        self, kind: EventKind, message: str, command: Command | None = None, **fields: Any
    ) -> None:
        """Appends to the event log at the present step and branch, on the chief only.

        Args:
            kind: What happened.
            message: What happened, as a sentence.
            command: The command that asked for it, if one did.
            **fields: Further fields of `EventEntry`.
        """
        position = {"step": self.metrics.step, "branch": self.metrics.branch}
        by = command.requested_by if command else ""
        self.event_log.note(kind, message, **{**position, "by": by, **fields})

    def note_changes(
        self,
        message: str,
        changes: Sequence[ValueChange],
        *,
        step: int,
        by: str,
        begins: int | None = None,
        confirmed: ConfirmedChange | None = None,
    ) -> None:
        """Tells event log and TensorBoard which hyperparameters were changed, or will be.

        Args:
            message: What was changed, as a sentence.
            changes: The changes.
            step: Steps done.
            by: Who asked for them.
            begins: Steps done when they change; None for these.
            confirmed: What a start after a crash makes again; None for nothing.
        """
        details = details_of(changes)
        if begins is not None:
            details[BEGINS] = begins
        if confirmed is not None:
            details[CHANGE] = msgspec.to_builtins(confirmed)
        self.note(EventKind.SET, message, by=by, step=step, details=details)
        self.summaries.write_event(step, message)
        self.summaries.write_hyperparameters(step, {one.name: one.before for one in changes})
        self.write_hyperparameters(step)

    def write_hyperparameters(self, step: int) -> None:
        """Writes the present values to TensorBoard, as those of the next step.

        Args:
            step: Steps done.
        """
        values = {one.name: one.value for one in self.metrics.hyperparameters()}
        self.summaries.write_hyperparameters(step + 1, values)

    def close_alerts(self) -> None:
        """Waits for alerts that are being sent, for a few seconds at most."""
        if self._alerts is not None:
            self._alerts.close(FLUSH_SECONDS)

    def _send_alert(self, entry: EventEntry) -> None:
        """Sends an event to the receivers of alerts, unless a supervisor does."""
        if was_launched():
            return
        with self._starting_alerts:
            if self._alerts is None:
                self._alerts = AlertSender(
                    self._run,
                    lambda words: self.event_log.note(EventKind.NOTE, words, by=BY_ALERTS),
                )
        self._alerts.send(entry)

    def note_exactness(self, exactness: Exactness) -> bool:
        """Writes to the event log what prevents an exact resume, if it was not noted before.

        Returns:
            Whether `exactness` differs from the last call.
        """
        if exactness == self._exactness:
            return False
        noted = self._exactness.reasons if self._exactness is not None else []
        self._exactness = exactness
        if exactness.is_missing_state and exactness.reasons != noted:
            restored = "; ".join(
                pipeline.restored for pipeline in exactness.inputs if pipeline.reason
            )
            after = f"After a restore, {restored}." if restored else ""
            self.note(
                EventKind.NOTE,
                f"Exact resume is {exactness.explained}. {after}".rstrip(),
                details={"exactness": msgspec.to_builtins(exactness)},
            )
        return True

    def _note_not_finite(self) -> None:
        """Notes metrics that became NaN or infinite since the last heartbeat."""
        begun = self.metrics.not_finite.take_begun()
        if not begun or not self.event_log.is_chief:
            return
        checkpoints = self._checkpoints()
        finite = newest_finite(checkpoints)
        self.note(
            EventKind.NOT_FINITE,
            not_finite_alert(self._run.root, begun, checkpoints).text,
            step=begun[0].step,
            details={
                "metrics": {metric.name: metric.value for metric in begun},
                "finite_checkpoint": finite.name if finite is not None else None,
            },
        )
        threading.Thread(
            target=check_values,
            args=(self._run, self._note_values),
            name="tfckpt-finite",
            daemon=True,
        ).start()

    def _note_values(self, name: str, tensors: int) -> None:
        what = f"{tensors:,} of its tensors {noun(tensors, 'has', 'have')}"
        self.note(
            EventKind.NOTE,
            f"{name} was saved with finite metrics, but {what} NaN or infinite values: do not go "
            "back to it.",
            checkpoint=name,
        )

    def _checkpoints(self) -> Sequence[Checkpoint]:
        try:
            # A whole scan of a large directory would delay the heartbeat.
            return Catalog(self._run).scan(time.time(), quick=True)
        except (TfckptError, OSError):
            # The event matters more than the checkpoint to go back to.
            return ()

    def _note_unwritten(self, problem: str) -> None:
        """Notes that nobody sees heartbeats any more: a status file cannot say so itself."""
        self.note(
            EventKind.NOTE,
            f"The heartbeat cannot be written: {problem}. Training goes on; what `status` shows of "
            "this worker is old until the cause is removed.",
        )

    def _write_pending(self, writes_steps: bool) -> str:
        """Writes pending lines and perhaps steps; returns what cannot be written or read."""
        self._note_not_finite()
        saves = self.metrics.saves
        with suppress(OSError):
            saves.disk_full_in = self._disk.full_in(saves.saved_at)
        self.summaries.add_new_steps()
        if writes_steps:
            self.summaries.flush()
        self.metrics.write_problem = ""
        try:
            self.event_log.retry()
        except OSError as error:
            problem = describe_error(error)
            # A full disk has an alert of its own.
            self.metrics.write_problem = "" if is_full(error) else problem
            return f"a file of the run cannot be written: {problem}"
        return self.summaries.trouble or self.command_trouble or self.event_log.trouble
