"""Takes commands from the command queue as they arrive, in a thread of the chief."""

from __future__ import annotations

import threading
import time
from collections import deque

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.records.command import Command, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.training.telemetry.telemetry import Telemetry

POLL_SECONDS = 0.02

CLEAN_SECONDS = 2.0
"""How often the poller removes files from the queue that are not commands."""


class CommandPoller:
    """Claims commands in a thread, so that the training loop only reads an attribute.

    Attributes:
        has_commands: Whether claimed commands are waiting for the next synchronization.
    """

    def __init__(self, queue: CommandQueue, telemetry: Telemetry) -> None:
        self._queue = queue
        self._telemetry = telemetry
        self._cleaned_at = time.monotonic()
        self._claimed: deque[Command] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfckpt-poller", daemon=True)
        self.has_commands = False

    def start(self) -> None:
        """Starts claiming commands."""
        self._thread.start()

    def stop(self) -> None:
        """Stops claiming; commands that were claimed and not carried out have failed."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        for command in self.take():
            self._queue.finish(
                advance(
                    command, CommandState.FAILED, "The trainer ended before it ran the command."
                )
            )

    def take(self) -> list[Command]:
        """Returns the claimed commands, oldest first, and forgets them."""
        self.has_commands = False
        taken = []
        while self._claimed:
            taken.append(self._claimed.popleft())
        return taken

    def _run(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                while (command := self._queue.claim(time.time())) is not None:
                    self._claimed.append(command)
                self._remove_damaged()
                self._telemetry.command_trouble = ""
            except (OSError, TfckptError) as error:
                self._telemetry.command_trouble = (
                    f"commands cannot be read: {describe_error(error)}"
                )
            if self._claimed:
                self.has_commands = True

    def _remove_damaged(self) -> None:
        now = time.monotonic()
        if now - self._cleaned_at >= CLEAN_SECONDS:
            self._cleaned_at = now
            for removed in self._queue.clear_damaged(now):
                self._telemetry.journal.note(JournalKind.NOTE, removed)
