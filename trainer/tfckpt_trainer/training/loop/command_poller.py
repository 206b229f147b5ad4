"""The chief's poller: takes commands from the box as they come, and times scheduled saves."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from tfckpt_trainer.errors import TfckptError, in_words
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.records.command import Command, CommandState

LOOK_EVERY_SECONDS = 0.02

CLEAR_EVERY_SECONDS = 2.0
"""How often the box is searched for files that are no commands."""


class CommandPoller:
    """Claims commands in a thread, so that the loop only looks at an attribute.

    Attributes:
        wants_attention: Whether something waits for all workers to come together.
        trouble: Why the box could not be looked into, if the last look failed.
    """

    def __init__(
        self, box: CommandQueue, save_every_seconds: float | None, note: Callable[[str], None]
    ) -> None:
        """Makes a poller.

        Args:
            box: The command box.
            save_every_seconds: After how many seconds a save is due; None for never.
            note: Writes a sentence into the journal.
        """
        self._box = box
        self._note = note
        self._cleared_at = time.monotonic()
        self._claimed: deque[Command] = deque()
        self._save_every = save_every_seconds
        self._next_save = self._schedule()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfckpt-poller", daemon=True)
        self.wants_attention = False
        self.trouble = ""

    def start(self) -> None:
        """Starts to take commands."""
        self._thread.start()

    def stop(self) -> None:
        """Stops to take commands; what was claimed and not served is answered as failed."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        for command in self.take():
            self._box.finish(
                advance(command, CommandState.FAILED, "The trainer ended before it came to it.")
            )

    def take(self) -> list[Command]:
        """Returns the claimed commands, oldest first, and lowers the flag."""
        self.wants_attention = False
        taken = []
        while self._claimed:
            taken.append(self._claimed.popleft())
        return taken

    @property
    def schedule(self) -> str:
        """Names the schedule of the clock, as the trigger of its saves."""
        return f"every {self._save_every:g} s"

    @property
    def save_is_due(self) -> bool:
        """Whether a save by the clock is due."""
        return self._next_save is not None and time.monotonic() >= self._next_save

    def saved(self) -> None:
        """Starts the clock of scheduled saves anew."""
        self._next_save = self._schedule()

    def _schedule(self) -> float | None:
        return None if self._save_every is None else time.monotonic() + self._save_every

    def _clear_damaged(self) -> None:
        now = time.monotonic()
        if now - self._cleared_at >= CLEAR_EVERY_SECONDS:
            self._cleared_at = now
            for cleared in self._box.clear_damaged(now):
                self._note(cleared)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_SECONDS):
            try:
                while (command := self._box.claim(time.time())) is not None:
                    self._claimed.append(command)
                self._clear_damaged()
                self.trouble = ""
            except (OSError, TfckptError) as error:
                self.trouble = f"commands cannot be read: {in_words(error)}"
            if self._claimed or self.save_is_due:
                self.wants_attention = True
