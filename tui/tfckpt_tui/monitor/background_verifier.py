"""Verifies checkpoints beside the app: what a person asks for at once, new ones when idle."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified
from tfckpt_trainer.errors import TfckptError, in_words
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.verify import verify_and_remember

_LOWEST_PRIORITY = 19


@dataclass(frozen=True)
class VerificationProgress:
    """A verification under way; bytes, and seconds since it began."""

    name: str
    done: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second so far."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class VerificationOutcome:
    """How a verification ended.

    Attributes:
        found: What it found; None where it failed.
        problem: Why it failed, or why its result could not be written down; empty if neither.
        asked: Whether a person asked for it.
    """

    name: str
    found: Verified | None
    problem: str
    asked: bool


class BackgroundVerifier:
    """Two queues: of what was asked for, and of new checkpoints, read slowly in the background.

    Their threads are daemons; nothing waits for them.
    """

    def __init__(
        self,
        run: RunDirectory,
        on_done: Callable[[VerificationOutcome], None],
        *,
        read_only: bool = False,
    ) -> None:
        """Makes a verifier that does nothing yet.

        Args:
            run: The run directory.
            on_done: Told every outcome, in the thread of its queue.
            read_only: Whether nothing is to be written into the run directory.
        """
        self._asked = _Queue(run, on_done, asked=True, into_run=not read_only)
        self._background = _Queue(run, on_done, asked=False, into_run=not read_only)

    @property
    def reading(self) -> VerificationProgress | None:
        """What is being verified because a person asked for it."""
        return self._asked.reading

    @property
    def is_busy(self) -> bool:
        """Whether something that a person asked for is not done yet."""
        return self._asked.is_busy

    def ask(self, name: str) -> None:
        """Verifies checkpoint `name` as soon as what was asked for before is done."""
        self._background.drop(name)
        self._asked.add(name)

    def suggest(self, name: str) -> None:
        """Verifies checkpoint `name` when nothing else is to be done."""
        self._background.add(name)

    def cancel(self) -> None:
        """Gives up what was asked for."""
        self._asked.cancel()

    def stop(self) -> None:
        """Ends everything; the threads leave at the next megabyte."""
        self._asked.cancel()
        self._background.cancel()


class _Queue:
    """One thread that verifies one checkpoint after the other, while there are any."""

    def __init__(
        self,
        run: RunDirectory,
        on_done: Callable[[VerificationOutcome], None],
        *,
        asked: bool,
        into_run: bool,
    ) -> None:
        self._run = run
        self._on_done = on_done
        self._is_asked = asked
        self._into_run = into_run
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self.reading: VerificationProgress | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None

    def add(self, name: str) -> None:
        with self._lock:
            current = self.reading
            if name in self._waiting or (current is not None and current.name == name):
                return
            self._waiting.append(name)
            if self._thread is None:
                self._cancelled = threading.Event()
                self._thread = threading.Thread(
                    target=self._work, args=(self._cancelled,), name="verify", daemon=True
                )
                self._thread.start()

    def drop(self, name: str) -> None:
        with self._lock, suppress(ValueError):
            self._waiting.remove(name)

    def cancel(self) -> None:
        with self._lock:
            self._waiting.clear()
            self._cancelled.set()
            self._thread = None
            self.reading = None

    def _work(self, cancelled: threading.Event) -> None:
        if not self._is_asked:
            # Only this thread: Linux has a priority for each.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        while True:
            with self._lock:
                if cancelled.is_set():
                    return
                if not self._waiting:
                    self._thread = None
                    return
                name = self._waiting.popleft()
                self.reading = VerificationProgress(name, 0, 0, 0.0)
            outcome = self._verify(name, cancelled)
            if cancelled.is_set():
                return
            with self._lock:
                self.reading = None
            if outcome is not None:
                self._on_done(outcome)

    def _verify(self, name: str, cancelled: threading.Event) -> VerificationOutcome | None:
        began = last = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal last
            if not cancelled.is_set():
                self.reading = VerificationProgress(name, done, total, time.monotonic() - began)
            if not self._is_asked:
                # As long a pause as the reading took: half of the disk stays to the trainer.
                cancelled.wait(time.monotonic() - last)
                last = time.monotonic()

        try:
            found, problem = verify_and_remember(
                self._run,
                name,
                on_progress=advance,
                cancelled=cancelled.is_set,
                into_run=self._into_run,
            )
        except (TfckptError, OSError) as error:
            return VerificationOutcome(name, None, in_words(error), self._is_asked)
        if found is None:
            return None
        return VerificationOutcome(name, found, problem, self._is_asked)
