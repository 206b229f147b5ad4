"""Sends the events of a run to all its receivers, in threads that nobody waits for."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.alerts.alert import ALERT_KINDS, BY_ALERTS, AlertMessage, Delivery, make_alert
from tfckpt_trainer.alerts.openmetrics import OpenMetricsExport
from tfckpt_trainer.alerts.receivers import Receiver, make_receivers
from tfckpt_trainer.errors import UsageError, describe_error
from tfckpt_trainer.rundir.event_log import EventLogTail, note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.words.counts import count, noun

MOST_WAITING = 100
"""Alerts that wait for one receiver; further ones are dropped."""

FLUSH_SECONDS = 5.0
"""How long the end of a process waits until all alerts are sent."""

FOLLOW_SECONDS = 1.0
"""Seconds between two looks at the event log."""

Note = Callable[[str], None]
"""Writes a sentence to the event log, as a note by `BY_ALERTS`."""


class AlertSender:
    """Sends events that are alerts to the receivers of a run.

    `send` never waits. Each alert is sent to each receiver at most once, and those that wait when
    the process is killed are lost. A webhook whose answer was lost may get a repetition.
    """

    def __init__(
        self,
        run: RunDirectory,
        note: Note,
        *,
        follows: bool = False,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Creates a sender; it reads the settings of the run in its thread.

        Args:
            run: The run directory.
            note: Writes to the event log that an alert could not be sent, in a thread.
            follows: Whether to send also the events that other processes write from now on.
            environment: The environment variables that have the secrets of receivers.
        """
        self._run = run
        self._note = note
        self._environment = environment
        self._tail = EventLogTail(run, from_end=True) if follows else None
        self._own: queue.SimpleQueue[EventEntry | None] = queue.SimpleQueue()
        self._sent: set[tuple[float, str]] = set()
        self._channels: list[_Channel] = []
        self._thread = threading.Thread(target=self._work, name="tfckpt-alerts", daemon=True)
        self._thread.start()

    def send(self, entry: EventEntry) -> None:
        """Sends an event of this process, if it is an alert; returns at once."""
        if self._thread.is_alive():
            self._own.put(entry)

    def end(self, seconds: float) -> None:
        """Takes the last events and no more; returns once that is done, or after some seconds."""
        self._own.put(None)
        self._thread.join(seconds)

    def close(self, seconds: float) -> None:
        """Takes the last events, and waits until all are sent, for so many seconds at most.

        What is not sent by then is never sent, but for an alert that a receiver hangs at: its
        thread ends at the limit of that receiver. All other threads have ended.
        """
        deadline = time.monotonic() + seconds
        self.end(seconds)
        for channel in self._channels:
            channel.close(deadline)

    def _work(self) -> None:
        try:
            config = read_run_config(self._run, to_send=True)
        except UsageError as error:
            self._note(f"No alerts are sent. {error}")
            return
        path, settings = config.export.openmetrics, config.alerts
        export = OpenMetricsExport(self._run, Path(path), self._note) if path else None
        kinds = ALERT_KINDS if settings.kinds is None else frozenset(settings.kinds)
        receivers = make_receivers(settings, self._environment)
        self._channels = [_Channel(receiver, self._note) for receiver in receivers]
        is_open = bool(receivers) or export is not None
        while is_open:
            entries, is_open = self._next_entries()
            for entry in entries:
                if entry.kind in kinds and entry.by != BY_ALERTS and self._is_new(entry):
                    self._put(entry)
        for channel in self._channels:
            channel.end()
        if export is not None:
            export.end()

    def _put(self, entry: EventEntry) -> None:
        """Has an event sent to all receivers. An error of ours ends no later alert."""
        try:
            alert = make_alert(self._run, entry)
            for channel in self._channels:
                channel.put(alert)
        except Exception as error:
            self._note(f"An alert was not sent: {describe_error(error)}")

    def _next_entries(self) -> tuple[list[EventEntry], bool]:
        """Waits for events; returns them, and whether more may come."""
        entries: list[EventEntry] = []
        is_open = True
        try:
            own = self._own.get(timeout=FOLLOW_SECONDS if self._tail is not None else None)
            is_open = own is not None
            entries += [own] if own is not None else []
        except queue.Empty:
            pass
        return entries + (self._tail.read_new() if self._tail is not None else []), is_open

    def _is_new(self, entry: EventEntry) -> bool:
        """Whether an event was not sent; an own one comes a second time from the event log."""
        key = (entry.at, entry.message)
        if self._tail is None:
            return True
        if key in self._sent:
            return False
        self._sent.add(key)
        return True


@contextmanager
def sending_alerts(run: RunDirectory, lock: int) -> Iterator[Callable[[EventEntry], None]]:
    """Sends alerts of a run that a supervisor supervises; gives what takes its own events.

    Args:
        run: The run directory.
        lock: The descriptor that holds the lock of the supervisor. It is closed at the end, before
            waiting for receivers: the next launch need not wait, and only its supervisor sends.
    """

    def note(words: str) -> None:
        note_event(run, EventKind.NOTE, words, by=BY_ALERTS)

    sender = AlertSender(run, note, follows=True)
    try:
        yield sender.send
    finally:
        sender.end(FLUSH_SECONDS)
        os.close(lock)
        sender.close(FLUSH_SECONDS)


class _Channel:
    """Sends alerts to one receiver, one after the other; one that hangs delays no other."""

    def __init__(self, receiver: Receiver, note: Note) -> None:
        self._receiver = receiver
        self._note = note
        self._waiting: queue.SimpleQueue[AlertMessage | None] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._unsent = 0
        self._is_closed = False
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="tfckpt-receiver", daemon=True)
        self._thread.start()

    def put(self, alert: AlertMessage) -> None:
        """Has an alert sent; drops it if too many wait."""
        if self._waiting.qsize() >= MOST_WAITING:
            self._failed(f"{count(MOST_WAITING, 'alert')} wait for it, and others are dropped")
            return
        with self._counting:
            self._unsent += 1
        self._waiting.put(alert)

    def end(self) -> None:
        """Has the thread end once all alerts are sent."""
        self._waiting.put(None)

    def close(self, deadline: float) -> None:
        """Waits until all alerts are sent; notes how many were not, and sends no more of them."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        with self._counting:
            self._is_closed = True
            unsent = self._unsent
        if unsent:
            self._failed(f"{count(unsent, 'alert')} {noun(unsent, 'was', 'were')} not sent in time")

    def _work(self) -> None:
        while (alert := self._waiting.get()) is not None and not self._is_closed:
            try:
                delivery = self._receiver.deliver(alert)
            except Exception as error:
                delivery = Delivery(self._receiver.name, False, describe_error(error), 0.0)
            if delivery.is_sent:
                self._is_failing = False
            else:
                self._failed(delivery.result)
            with self._counting:
                self._unsent -= 1

    def _failed(self, why: str) -> None:
        """Notes that the receiver fails, once until it accepts an alert."""
        if not self._is_failing:
            self._is_failing = True
            self._note(f"An alert was not sent: {self._receiver.name}: {why}.")
