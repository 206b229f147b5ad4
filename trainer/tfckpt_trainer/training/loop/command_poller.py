"""Takes commands from the command queue as they arrive, in a thread of the chief."""

from __future__ import annotations

import threading
import time
from collections import deque

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.directory_changes import DirectoryChanges, watch_directory
from tfckpt_trainer.training.process.signals_and_exit import was_launched
from tfckpt_trainer.training.telemetry.telemetry import Telemetry

CLEAN_SECONDS = 2.0
"""How often the poller looks at files in the queue that are not commands, while there are any."""

ANYWAY_SECONDS = 20.0
"""Longest time between two looks at the queue, even if it does not seem to have changed."""

IDLE_ANYWAY_SECONDS = 300.0
"""The same on a network disk while nobody looks at the run."""

RETRY_SECONDS = 1.0
"""How long the poller waits after a disk error."""


class CommandPoller:
    """Claims commands in a thread, so that the training loop only looks at a queue in memory."""

    def __init__(self, run: RunDirectory, telemetry: Telemetry) -> None:
        self._run = run
        self._queue = telemetry.queue
        self._telemetry = telemetry
        self._claimed: deque[Command] = deque()
        self._stopping = threading.Event()
        self._changes: DirectoryChanges | None = None
        self._thread = threading.Thread(target=self._work, name="tfckpt-poller", daemon=True)

    @property
    def has_commands(self) -> bool:
        """Whether claimed commands are waiting for the next synchronization."""
        return bool(self._claimed)

    def start(self) -> None:
        """Starts claiming commands."""
        self._thread.start()

    def stop(self) -> None:
        """Stops claiming; commands that were claimed and not carried out have failed.

        A supervisor carries out a command to stop all the same, so it is left to it.
        """
        self._stopping.set()
        changes = self._changes
        if changes is not None:
            changes.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        metrics = self._telemetry.metrics
        is_saved = not metrics.saves.status(metrics.step).unsaved_steps
        saved = " Its last step is saved." if is_saved else ""
        for command in self.take():
            if command.kind is CommandKind.STOP and was_launched():
                continue
            message = f"The trainer ended before it ran the command.{saved}"
            self._telemetry.event_log.advance_command(command, CommandState.FAILED, message)

    def take(self, most: int | None = None) -> list[Command]:
        """Returns the claimed commands, oldest first, or so many at most; forgets them."""
        taken: list[Command] = []
        while self._claimed and len(taken) != most:
            taken.append(self._claimed.popleft())
        return taken

    def _work(self) -> None:
        may_have_changed = True
        while not self._stopping.is_set():
            try:
                if self._changes is None:
                    self._changes = watch_directory(self._run.inbox)
                self._claim_all()
                if may_have_changed or self._queue.has_damaged:
                    self._clear_damaged()
                self._telemetry.command_trouble = ""
                # A file that is not a command may still be being written.
                may_have_changed = self._changes.wait(self._longest_wait)
                if may_have_changed:
                    self._telemetry.attention.notice()
            except Exception as error:
                # Whatever it is, the heartbeat reports it, and the thread has to go on.
                self._stopping.wait(RETRY_SECONDS)
                self._telemetry.command_trouble = (
                    f"commands cannot be read: {describe_error(error)}"
                )
        # The poller itself may be part of a cycle that is collected late.
        self._changes = None

    @property
    def _longest_wait(self) -> float:
        if self._queue.has_damaged:
            return CLEAN_SECONDS
        return ANYWAY_SECONDS if self._telemetry.attention.is_given else IDLE_ANYWAY_SECONDS

    def _claim_all(self) -> None:
        for command in self._queue.claims(time.time()):
            if command.state.is_final:
                message = f"{command.kind}: {command.message}"
                by = command.requested_by
                self._telemetry.event_log.note(EventKind.REFUSED, message, by=by)
                continue
            self._claimed.append(command)

    def _clear_damaged(self) -> None:
        for removed in self._queue.clear_damaged(time.monotonic()):
            self._telemetry.event_log.note(EventKind.NOTE, removed)
