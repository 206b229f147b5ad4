"""Signals and exit of a worker process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import NoReturn

import tensorflow as tf

from tfckpt_trainer.errors import ExitCode, TfckptError, TornRestoreError
from tfckpt_trainer.scripts.script_errors import ScriptError, describe_script_error, split_message

_terminations: list[int] = []
"""One for each SIGTERM; a handler must take no lock, as an event does."""

_INTERRUPT_WORDS = (
    b"\nSaving after this step, then stopping. Press ctrl+c again to end at once, without a save.\n"
)

PEER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
)
"""Errors that a collective raises when another worker is lost."""

ABORTED = "Collective ops is aborted"
"""How the message of a collective begins that failed because of another one."""

_PREEMPTION_KEY = "TF_DEFAULT_PREEMPTION_NOTICE_KEY"


def was_launched() -> bool:
    """Whether a supervisor started this process."""
    return "TFCKPT_ATTEMPT" in os.environ


def is_restart() -> bool:
    """Whether a supervisor has started this process again."""
    return os.environ.get("TFCKPT_ATTEMPT", "0") != "0"


def in_main_thread() -> bool:
    """Whether this is the thread that Python calls signal handlers in."""
    return threading.current_thread() is threading.main_thread()


def on_signal(number: signal.Signals, act: Callable[[], None]) -> None:
    """Calls `act` when a signal arrives.

    Call this after creating a multi-worker strategy, which installs its own SIGTERM handler. Does
    nothing outside the main thread, where handlers cannot be set.
    """
    if not in_main_thread():
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    signal.signal(number, handle)


def on_interrupt(act: Callable[[], None]) -> Callable[[], None]:
    """Calls `act` at the first ctrl+c; a second one raises `KeyboardInterrupt` at once.

    Leaves SIGINT to a handler of the script or of its launcher.

    Returns:
        A function that brings the earlier handler back.
    """
    if not in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return lambda: None

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):
            # Python's own output may be in the middle of a line of this thread.
            os.write(2, _INTERRUPT_WORDS)
        act()

    signal.signal(signal.SIGINT, handle)
    return lambda: _bring_back(handle)


def _bring_back(handler: Callable[[int, FrameType | None], None]) -> None:
    if in_main_thread() and signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def defer_sigterm() -> Iterator[None]:
    """Remembers a SIGTERM that arrives while a strategy is created, for `sigterm_received`.

    TensorFlow's own handler would discard the signal. So the signal is blocked while the strategy
    is created, also in the threads that TensorFlow starts.
    """
    if not in_main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        on_signal(signal.SIGTERM, lambda: _terminations.append(signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def sigterm_received() -> bool:
    """Whether SIGTERM arrived between the creation of a strategy and the start of a run."""
    return bool(_terminations)


def leave(status: int) -> NoReturn:
    """Exits immediately, after flushing the output.

    A normal exit would wait for TensorFlow's threads, which wait for other workers and may hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class PeerWatch:
    """A context that exits with `restart_status` if another worker is lost within it.

    It is entered several times in each step; a class costs a fifth of a generator.
    """

    def __init__(
        self,
        alone: bool,
        explain: Callable[[str], str],
        before_leaving: Callable[[str], None],
        restart_status: int,
    ) -> None:
        """Prepares the watch.

        Args:
            alone: Whether there are no other workers. Then all errors are raised.
            explain: Returns which worker was lost and why; empty if unknown. It may wait. It gets
                the message of the error, or nothing if another error may have caused it.
            before_leaving: Called with the reason, to write the last heartbeat.
            restart_status: The exit status that makes all workers start again.
        """
        self._alone = alone
        self._explain = explain
        self._before_leaving = before_leaving
        self._restart_status = restart_status

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        why = ""
        if isinstance(error, TornRestoreError):
            why = str(error)
        elif isinstance(error, tf.errors.OpError) and not self._alone:
            why = _loss(error, self._explain)
        if why:
            self._before_leaving(why)
            leave(self._restart_status)


def on_uncaught_error(
    fail: Callable[[BaseException, ScriptError], None],
    interrupt: Callable[[], None],
    explain: Callable[[str], str],
    lose_peer: Callable[[str], None],
    *,
    alone: bool,
    restart_status: int,
) -> None:
    """Installs a handler for uncaught errors, which exits without waiting for other workers.

    It prints the line of the script and the message before the stack.

    Args:
        fail: Called with the error and its description, to write the last heartbeat.
        interrupt: Called instead of `fail` after ctrl+c.
        explain: See `PeerWatch`.
        lose_peer: Called instead of `fail` if the error means that another worker was lost. This
            happens when a script reads a variable of a lost parameter server, for example.
        alone: Whether there are no other workers.
        restart_status: See `PeerWatch`.
    """
    earlier = sys.excepthook

    def handle(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            # Whoever pressed ctrl+c knows; the place where it was noticed says nothing.
            sys.stderr.write("Interrupted.\n")
            interrupt()
            if not alone:
                leave(ExitCode.INTERRUPTED)
            return
        described = describe_script_error(error)
        if isinstance(error, TfckptError):
            sys.stderr.write(f"{error}\n")
            described = ScriptError(None, described.message)
        else:
            source = f"    {described.line.source}\n" if described.line is not None else ""
            sys.stderr.write(f"{described}\n{source}\n")
            earlier(kind, error, trace)
        if isinstance(error, tf.errors.OpError) and not alone:
            why = _loss(error, explain)
            if why:
                lose_peer(why)
                leave(restart_status)
        fail(error, described)
        if not alone:
            leave(ExitCode.PROBLEM)

    if in_main_thread():
        sys.excepthook = handle
    else:
        _handle_errors_of_thread(threading.current_thread(), handle)


def _handle_errors_of_thread(
    thread: threading.Thread,
    handle: Callable[[type[BaseException], BaseException, TracebackType | None], None],
) -> None:
    earlier = threading.excepthook

    def handle_if_own(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is thread and failure.exc_value is not None:
            handle(failure.exc_type, failure.exc_value, failure.exc_traceback)
        else:
            earlier(failure)

    threading.excepthook = handle_if_own


def _loss(error: tf.errors.OpError, explain: Callable[[str], str]) -> str:
    """Returns which worker was lost, if that is the cause of the error; else an empty string."""
    if isinstance(error, PEER_ERRORS):
        return explain(str(error.message)) or f"Another worker was lost: {_cause(error)}"
    # A collective passes on any error of another worker, with the code of that error.
    _, cause = split_message(error.message)
    return explain("") if cause.startswith(ABORTED) else ""


def _cause(error: tf.errors.OpError) -> str:
    """Returns the line of TensorFlow's message that names the cause."""
    lines = [line for line in str(error.message).splitlines() if not _says_nothing(line)]
    causes = [line for line in lines if "UNAVAILABLE" in line or "failed" in line.lower()]
    _, cause = split_message((causes or lines or [type(error).__name__])[-1])
    return cause[:300]


def _says_nothing(line: str) -> bool:
    """Whether a line is empty or only repeats that a collective failed."""
    return not line.strip() or any(
        words in line for words in ("[[{{node", "[[{node", "The error could be from a previous")
    )


def on_preemption_of_cluster(act: Callable[[str], None]) -> None:
    """Calls `act`, in a thread of its own, when SIGTERM reaches any worker of a cluster.

    A multi-worker strategy has a signal handler of its own, which tells all workers. In the main
    thread ours replaces it. There is no public API for it.

    Args:
        act: Called with a sentence that names the worker.
    """
    threading.Thread(
        target=_await_preemption, args=(act,), name="tfckpt-preemption", daemon=True
    ).start()


def _await_preemption(act: Callable[[str], None]) -> None:
    from tensorflow.python.eager import context

    try:
        worker = context.context().get_config_key_value(_PREEMPTION_KEY)
    except tf.errors.OpError:
        # The cluster has ended.
        return
    act(f"SIGTERM reached {worker}")
