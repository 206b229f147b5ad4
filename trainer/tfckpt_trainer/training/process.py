"""How a worker process is asked to leave, and how it leaves without hanging."""

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
"""What a collective ends in when another worker is gone."""


def was_launched() -> bool:
    """Whether a supervisor started this process, so that it lives for one run alone."""
    return "TFCKPT_ATTEMPT" in os.environ


def on_signal(number: signal.Signals, act: Callable[[], None]) -> None:
    """Calls `act` on a signal, between two steps.

    TensorFlow's coordination service takes over SIGTERM when a multi-worker strategy is
    created, so this must come after it. Only the main thread can do it; in another thread the
    process keeps the handler it has.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    signal.signal(number, handle)


@contextmanager
def termination_kept() -> Iterator[None]:
    """Keeps a SIGTERM that comes while a strategy is created, for `was_terminated`.

    TensorFlow installs a handler of its own meanwhile, which swallows the signal. So it is blocked
    until the strategy is there, for the threads that TensorFlow starts too, and it is remembered
    from then on until a run takes it.
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


def was_terminated() -> bool:
    """Whether SIGTERM came after a strategy was created and before a run could take it."""
    return _terminated.is_set()


def leave(status: int) -> NoReturn:
    """Ends the process at once, with what was printed.

    Tearing down the interpreter waits for TensorFlow's threads, and those wait for peers that
    may be gone: it takes from seconds to for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def peers_watched(alone: bool, before_leaving: Callable[[str], None]) -> Iterator[None]:
    """Leaves with `RESTART_WORKERS` when a collective fails because another worker is gone.

    Args:
        alone: Whether there are no peers; then every error is one of the script.
        before_leaving: Told why, to write the last heartbeat.
    """
    try:
        yield
    except TornRestoreError as error:
        before_leaving(str(error))
        leave(ExitCode.RESTART_WORKERS)
    except PEER_ERRORS as error:
        if alone:
            raise
        before_leaving(f"Another worker is gone: {_last_word(error)}")
        leave(ExitCode.RESTART_WORKERS)


def on_uncaught_error(
    fail: Callable[[str], None], lose_peer: Callable[[str], None], *, alone: bool
) -> None:
    """Tells of an error that ends the script, and then does not wait for the other workers.

    Args:
        fail: Told what the script died of, to write the last heartbeat.
        lose_peer: Told the same where a script met by itself that another worker is gone, as it
            does when it reads a variable that a parameter server kept.
        alone: Whether there are no peers.
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
            lose_peer(f"Another worker is gone: {_last_word(error)}")
            leave(ExitCode.RESTART_WORKERS)
        fail(f"{kind.__name__}: {error}")
        if not alone:
            leave(ExitCode.PROBLEM)

    sys.excepthook = handle


def _last_word(error: tf.errors.OpError) -> str:
    """Returns the line of TensorFlow's message that names the cause; the others name the op."""
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    # The last line often names a node of a graph, which tells nobody anything.
    lines = [line for line in lines if not line.startswith("[[{{node")]
    causes = [line for line in lines if "UNAVAILABLE" in line or "failed" in line.lower()]
    return (causes or lines or [type(error).__name__])[-1][:300]
