"""Signals and exit of a worker process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn

import tensorflow as tf

from tfckpt_trainer.errors import ExitCode, TfckptError
from tfckpt_trainer.training.checkpoint.restorer import TornRestoreError

_terminated = threading.Event()

PEER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
)
"""Errors that a collective raises when another worker is lost."""


def was_launched() -> bool:
    """Whether a supervisor started this process."""
    return "TFCKPT_ATTEMPT" in os.environ


def on_signal(number: signal.Signals, act: Callable[[], None]) -> None:
    """Calls `act` when a signal arrives.

    Call this after creating a multi-worker strategy, which installs its own SIGTERM handler. Does
    nothing outside the main thread, where handlers cannot be set.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    signal.signal(number, handle)


@contextmanager
def defer_sigterm() -> Iterator[None]:
    """Remembers a SIGTERM that arrives while a strategy is created, for `sigterm_received`.

    TensorFlow's own handler would discard the signal. So the signal is blocked while the strategy
    is created, also in the threads that TensorFlow starts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        on_signal(signal.SIGTERM, _terminated.set)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def sigterm_received() -> bool:
    """Whether SIGTERM arrived between the creation of a strategy and the start of a run."""
    return _terminated.is_set()


def leave(status: int) -> NoReturn:
    """Exits immediately, after flushing the output.

    A normal exit would wait for TensorFlow's threads, which wait for other workers and may hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def exit_on_lost_peer(alone: bool, before_leaving: Callable[[str], None]) -> Iterator[None]:
    """Exits with `RESTART_WORKERS` if a collective fails because another worker is lost.

    Args:
        alone: Whether there are no other workers. Then all errors are raised.
        before_leaving: Called with the reason, to write the last heartbeat.
    """
    try:
        yield
    except TornRestoreError as error:
        before_leaving(str(error))
        leave(ExitCode.RESTART_WORKERS)
    except PEER_ERRORS as error:
        if alone:
            raise
        before_leaving(f"Another worker was lost: {_cause(error)}")
        leave(ExitCode.RESTART_WORKERS)


def on_uncaught_error(
    fail: Callable[[str], None], lose_peer: Callable[[str], None], *, alone: bool
) -> None:
    """Installs a handler for uncaught errors, which exits without waiting for other workers.

    Args:
        fail: Called with the error, to write the last heartbeat.
        lose_peer: Called instead if the error means that another worker was lost. This happens
            when a script reads a variable of a lost parameter server, for example.
        alone: Whether there are no other workers.
    """
    earlier = sys.excepthook

    def handle(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TfckptError):
            sys.stderr.write(f"{error}\n")
        else:
            earlier(kind, error, trace)
        if isinstance(error, PEER_ERRORS) and not alone:
            lose_peer(f"Another worker was lost: {_cause(error)}")
            leave(ExitCode.RESTART_WORKERS)
        fail(f"{kind.__name__}: {error}")
        if not alone:
            leave(ExitCode.PROBLEM)

    sys.excepthook = handle


def _cause(error: tf.errors.OpError) -> str:
    """Returns the line of TensorFlow's message that names the cause."""
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    # The last line often names a graph node, which does not help users.
    lines = [line for line in lines if not line.startswith("[[{{node")]
    causes = [line for line in lines if "UNAVAILABLE" in line or "failed" in line.lower()]
    return (causes or lines or [type(error).__name__])[-1][:300]
