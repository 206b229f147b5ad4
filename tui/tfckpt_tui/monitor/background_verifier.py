"""Verifies checkpoints in the background: requested ones first, new ones when idle."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.machine.priority import lower_priority
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.checkpoints.verify import Verifier

_LOWEST_PRIORITY = 19


class VerificationProgress(msgspec.Struct, frozen=True):
    """A verification in progress.

    Attributes:
        name: The checkpoint.
        done: Bytes read.
        total: Bytes to read.
        seconds: Seconds since it started.
    """

    name: str
    done: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second so far."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


class VerificationOutcome(msgspec.Struct, frozen=True):
    """The outcome of a verification.

    Attributes:
        name: The checkpoint.
        found: The result; None if it failed.
        problem: Why it failed, or why the result could not be saved; empty if neither.
        requested: Whether a user requested it.
    """

    name: str
    found: Verified | None
    problem: str
    requested: bool


class BackgroundVerifier:
    """Verifies checkpoints in two queues: requested ones at full speed, new ones at half speed."""

    def __init__(
        self,
        run: RunDirectory,
        on_done: Callable[[VerificationOutcome], None],
        *,
        read_only: bool = False,
        describe: Callable[[Exception], str] = describe_error,
    ) -> None:
        """Creates a verifier with empty queues.

        Args:
            run: The run directory.
            on_done: Called with each outcome, in the thread of the queue.
            read_only: Whether to write nothing into the run directory.
            describe: Returns the message of an error.
        """
        into_run = not read_only
        self._requested = _Queue(run, on_done, describe, requested=True, into_run=into_run)
        self._background = _Queue(run, on_done, describe, requested=False, into_run=into_run)

    @property
    def reading(self) -> VerificationProgress | None:
        """The requested verification in progress."""
        return self._requested.reading

    @property
    def is_busy(self) -> bool:
        """Whether requested verifications are not done yet."""
        return self._requested.is_busy

    def request(self, name: str) -> None:
        """Verifies a checkpoint after those requested before."""
        self._background.drop(name)
        self._requested.add(name)

    def add_when_idle(self, name: str) -> None:
        """Verifies a checkpoint at low priority and half speed."""
        self._background.add(name)

    def cancel(self) -> None:
        """Cancels the requested verifications."""
        self._requested.cancel()

    def stop(self) -> None:
        """Cancels everything; the threads end after the next megabyte."""
        self._requested.cancel()
        self._background.cancel()


class _Queue:
    """A thread that verifies one checkpoint after another."""

    def __init__(
        self,
        run: RunDirectory,
        on_done: Callable[[VerificationOutcome], None],
        describe: Callable[[Exception], str],
        *,
        requested: bool,
        into_run: bool,
    ) -> None:
        self._run = run
        self._on_done = on_done
        self._describe = describe
        self._is_requested = requested
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
        if not self._is_requested:
            lower_priority(_LOWEST_PRIORITY)
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
            with self._lock:
                if cancelled.is_set():
                    return
                self.reading = None
            if outcome is not None:
                self._on_done(outcome)

    def _verify(self, name: str, cancelled: threading.Event) -> VerificationOutcome | None:
        began = last = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal last
            with self._lock:
                if not cancelled.is_set():
                    seconds = time.monotonic() - began
                    self.reading = VerificationProgress(name, done, total, seconds)
            if not self._is_requested:
                # A pause as long as the read leaves half of the disk bandwidth to the trainer.
                cancelled.wait(time.monotonic() - last)
                last = time.monotonic()

        try:
            verifier = Verifier(self._run, only=frozenset({name}), into_run=self._into_run)
            verified, problem = verifier.verify(
                name, on_progress=advance, cancelled=cancelled.is_set
            )
        except (TfckptError, OSError) as error:
            return VerificationOutcome(name, None, self._describe(error), self._is_requested)
        if verified is None:
            return None
        return VerificationOutcome(name, verified, problem, self._is_requested)
